"""Closed word classes that the rules need: words that name nothing by themselves, in the languages met most."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Pronouns, articles, prepositions, conjunctions, auxiliaries, and adverbs that begin English sentences.
ENGLISH = _words(
    """
    a about above according across actually additionally after afterwards again against ago all almost alone along
    already also although always am amid among amongst an and another any anybody anyone anything are around as aside at
    away back be became because become becomes been before beginning begun behind being below beneath beside besides
    best better between beyond born both briefly but by came can cannot come comes commonly compared consequently
    considering could currently depending despite did do does doing done down due during each earlier early either
    else elsewhere enough especially essentially etc even eventually ever every everybody everyone everything
    except few fewer finally first firstly five following for former formerly found four from further furthermore gave
    generally get gets given gives go goes gone got had half hardly has have having he hence her here hers herself high
    him himself his historically how however i if immediately in including indeed initially inside instead into is it
    its itself just known largely last lastly late later latter least left less let like likewise little located long
    made mainly make makes making many may maybe me meanwhile might mine more moreover most mostly much must my myself
    namely near nearby nearly neither never nevertheless new next nine no nobody none nonetheless nor not note nothing
    notably now nowadays of off often on once one only onto or originally other others otherwise ought our ours out
    outside over overall own particularly past per perhaps please possibly presumably previously primarily prior
    probably provided rather recently regarding regardless reportedly respectively returns said same say says second
    secondly see seen seven several shall she should similarly simply since six so some somebody someone something
    sometimes somewhat soon still subsequently such supposedly take taken takes ten than that the their theirs them
    themselves then there thereafter therefore these they third this those though three through throughout thus to
    today together too took toward towards traditionally two typically ultimately under unfortunately unless unlike
    until up upon us use used uses using usually various very via was we well went were what whatever when whenever
    where whereas wherever whether which while who whoever whole whom whose why widely will with within without would
    yes yet you your yours yourself
    """
)

# Verbs and nouns that begin instructions, captions and headings, where a capital says nothing.
OPENERS = _words(
    """
    add allow apply ask assume build call change check choose click complete configure consider contact contains copy
    create defines delete describes determines disable download edit enable ensure enter example examples figure
    find follow for get go help implement important includes indicates install keep list look make move name notes open
    optional overview pass press provide provides put read reference remove replace represents request requests require
    required requires response retrieves return returns run save section select send set show sign specified specifies
    specify start stop store summary support supports table tip try turn type update upload use valid value values
    verify view visit warning write adds aborts allows applies associates causes completes configures copies creates
    deletes disables downloads enables encodes ends end expects gets grants initiates lists permissions places puts
    removes renames restores sets shows starts stops stores updates uploads writes
    """
)

# Articles, prepositions, pronouns and conjunctions of other languages in Latin script that begin sentences.
EUROPEAN = _words(
    """
    le la les l un une des du de d en dans au aux ce cette ces il elle ils elles on et ou mais si que qui pour par sur
    sous avec sans son sa ses leur leurs après avant depuis selon ainsi aussi c est sont
    el los las unos unas del al por para con sin sobre entre desde hasta según es su sus se lo esta este estos estas
    ese esa esos esas y o pero cuando como donde fue son
    der die das den dem ein eine einer eines einem einen und oder aber nicht ist sind war im am zum zur von vom mit nach
    bei seit aus auf für als wenn dass sie er es wir ihr sein seine nach vor über unter zwischen durch
    il gli i uno dei delle della dello nel nella nei negli sul sulla e ma se che chi per da dal dalla fra tra non
    o os as um uma do da dos das no na nos nas ao à pelo pela em mas quando onde foi
    het een van voor met aan op bij uit naar is zijn wordt deze dit die dat
    och eller men att som för till från med om är var den det de ett en på av i
    """
)

RUSSIAN = _words(
    """
    в во на и с со по к ко у о об от из за до для не но а как что это он она они оно его её ее их мы вы я был была было
    были есть при после перед через между также однако если когда где который которая которые этот эта эти так же бы ли
    """
)

HINDI = _words(
    """
    के का की को में से पर और है हैं था थे थी हो हुआ हुई हुए होता होती होते कर करते करने करना किया किए की गया गई गए ने भी
    एक यह ये वह वे इस उस इन उन इसके उसके इसकी उनके अपने अपनी अपना जो जिस जिसे जिसमें कि तो ही तक लिए साथ बाद पहले या
    नहीं कुछ सभी दो जब तब जहाँ रूप द्वारा जाता जाती जाते रहा रहे रही सकता सकते सकती क्या कौन कब कहाँ कैसे क्यों कितने
    किस किसने किसी वाले वाली वाला तथा एवं बीच दौरान अधिक
    """
)

ARABIC = _words(
    """
    في من على إلى الى عن مع هذا هذه ذلك تلك التي الذي الذين هو هي هم كان كانت يكون تكون أن ان إن لا ما لم لن قد كما
    أو او ثم حيث بعد قبل بين عند كل بعض غير حتى إذا اذا لكن أي اي منذ خلال حول دون فقط أيضا ايضا وقد وكان وهو وهي
    به بها له لها فيه فيها منها منه عليه عليها متى أين كيف لماذا كم
    از به با برای در که را این آن است بود شد می های یک و تا هم یا هر ما او
    """
)

STOP_WORDS = ENGLISH | EUROPEAN | RUSSIAN | HINDI | ARABIC

# Single characters that join Chinese and Japanese words rather than being part of names.
HAN_FUNCTION = frozenset(
    "的了是在和与與及或不也有为為以于於而其这這那我你您他她它们們个個之被把从從对對将將会會能可就都很但并並"
    "所由到自至若如则則因还還又只更最让讓使此该該每各某等中上下时時后後前里裡内內外间間来來去说說吗嗎呢吧啊么麼什"
    "谁誰哪何几幾多少年月日一二三四五六七八九十两兩次名位种種些"
)

ASKING = _words("what which who whom whose when where why how name tell describe explain list give")

# Words of the list above that also begin names ("New York", "First World War", "High Court").
NAME_OPENERS = _words(
    """
    new first second third last high long little left best early late near upper two three four five six seven eight
    nine ten one all our own great major former next
    """
)

# Nouns too general to be what a text is about.
GENERIC = _words(
    """
    part parts place places time times year years month months day days week weeks number numbers name names way ways
    case cases work works group groups people person persons area areas thing things form forms kind kinds type types
    use used user users example examples end start set sets list lists point points side line lines member members
    end ends result results fact facts order level levels role man men woman women world life home house hand order
    several different important large small major common general main full total possible available specified
    however therefore include includes including included contain contains made making called known based become
    began begin continued following according published released born died won played went came found given held
    """
)

# Offices before a person's name, which the name does without; "of" after them makes them part of one.
OFFICES = _words(
    """
    president senator democrat republican chancellor captain colonel professor governor mayor congressman congresswoman
    minister premier ambassador lieutenant sergeant commander admiral
    """
)

# Bodies whose names run on over "and" and "for": "Department of Health and Welfare".
BODIES = _words(
    """
    academy agency association authority board bureau center centre chamber college commission committee council court
    department faculty federation foundation fund institute institution league minister ministry museum national office
    organisation organization party programme program royal school secretary service society union university
    """
)

# Possessives inside names ("Men's Studies Press", "St. Patrick's Academy").
NAMING_POSSESSIVES = _words("men women people children king queen prince lord master bachelor farmers mother father")

NAME_LINKS = _words("of og de la le du des del della di da do dos das van von der den zu zur af av al el bin ibn ben y")

TITLES = _words("mr mrs ms dr prof sir lady lord st rev gen col capt lt sgt jr sr gov sen rep hon")

# Characters that spell foreign names in Chinese; they tell where such a name begins beside a middle dot.
TRANSLITERATION = frozenset(
    "阿埃艾爱安昂奥奧巴白拜班邦保鲍贝本比彼宾波伯勃博布查达戴丹当德邓迪蒂丁东杜多顿恩尔法凡方菲费芬丰佛夫弗福盖冈高戈格葛古圭哈海汉"
    "豪赫黑亨洪胡华怀惠霍基吉加贾简杰金久卡凯坎康考柯科克肯孔库夸奎拉莱赖兰朗劳勒雷累黎李里理利莉连廉列林琳隆卢鲁路露伦罗洛马玛迈麦"
    "曼芒毛梅门蒙米密明莫默姆穆纳娜奈南瑙尼妮宁牛纽努诺欧帕派潘庞培佩彭皮平珀普齐奇契恰乔琼丘让热仁日茹瑞若萨塞赛桑瑟森沙莎尚绍舍"
    "申圣史施什斯丝思司苏素索塔泰坦汤唐陶特腾提田廷通图托陀瓦万旺威韦维魏温文翁沃乌吾伍西希锡夏香肖歇谢辛休许逊雅亚延扬耶叶伊因英"
    "尤于约宰赞泽曾扎詹章珍芝朱卓兹子宗祖佐作"
)

MONTHS = (
    "January|February|March|April|May|June|July|August|September|October|November|December"
    "|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept|Sep|Oct|Nov|Dec"
)
