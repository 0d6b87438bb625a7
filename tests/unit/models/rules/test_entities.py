import cProfile
import itertools
import string

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corpusmill.models.rules import entity_spans, statements
from corpusmill.names import normal_form
from tests.shared import shared_data

MIXED = st.text(
    alphabet=string.ascii_letters + " .,-'\"\n0123456789" + "北京大学的是。कीमत है।ประเทศไทยالعربيةÉß’“”·", max_size=200
)


def names(text):
    return [mention.name for mention in entity_spans(text)]


@given(MIXED)
@settings(max_examples=200, deadline=None)
@example("A. B. C.")
@example("'s The And of of")
@example("“ ” «»")
def test_mentions_are_verbatim_disjoint_and_in_order(text):
    found = entity_spans(text)
    assert found == entity_spans(text)
    for mention in found:
        assert mention.span.of(text) == mention.name and normal_form(mention.name)
    for a, b in itertools.pairwise(found):
        assert a.span.end <= b.span.start


@given(MIXED)
@settings(max_examples=100, deadline=None)
def test_statements_lie_in_order_and_hold_their_entities(text):
    found = statements(text)
    for statement in found:
        assert statement.entities
        assert len({normal_form(n) for n in statement.entities}) == len(statement.entities)
        assert statement.text == " ".join(statement.span.of(text).split())
        assert all(name in statement.span.of(text) for name in statement.entities)
    for a, b in itertools.pairwise(found):
        assert a.span.end <= b.span.start


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "The editor is Jan Philip Solovej from the University of Copenhagen.",
            ["Jan Philip Solovej", "University of Copenhagen"],
        ),
        ("He moved to New York on 4 July 1976.", ["New York", "4 July 1976"]),
        ("PutObject takes `x-amz-acl` and max_keys.", ["PutObject", "x-amz-acl", "max_keys"]),
        ("A CopyObjectRequest fails with s3:GetObject missing.", ["CopyObjectRequest", "s3:GetObject"]),
        ("It covers “The Time Machine” by H. G. Wells.", ["The Time Machine", "H. G. Wells"]),
        ("The U.S. Senate met in the 19th century.", ["U.S. Senate", "19th century"]),
        ("St. Patrick's Academy lies near Canada's Ottawa River.", ["St. Patrick's Academy", "Canada", "Ottawa River"]),
        ("Die Universität Wien liegt an der Donau.", ["Universität Wien", "Donau"]),
        ("《红楼梦》的作者是曹雪芹。", ["红楼梦"]),
        ("职业碗防守截锋卡万·肖特以 11 分领先。", ["卡万·肖特"]),
        ("映画『千と千尋の神隠し』はスタジオジブリの作品です。", ["千と千尋の神隠し", "スタジオジブリ"]),
    ],
)
def test_names_that_must_be_found(text, wanted):
    found = {normal_form(name) for name in names(text)}
    assert {normal_form(name) for name in wanted} <= found, names(text)


@pytest.mark.parametrize(
    "text",
    [
        "However, it was never built.",
        "They went there. He was late. She and I were not.",
        "This is what they are for.",
        "After the war it was sold. Many were lost.",
    ],
)
def test_function_words_at_the_start_of_sentences_are_no_names(text):
    found = {normal_form(name) for name in names(text)}
    assert not found & {"however", "they", "he", "she", "i", "this", "after", "many", "it", "what"}


@pytest.mark.parametrize(
    "text",
    [
        "Soil erosion lowers the yield of a field.",
        "कीमत बहुत अधिक बढ़ गई।",
        "الاقتصاد ينمو بسرعة كبيرة.",
        "ประเทศไทยมีประชากรจำนวนมาก",
        "他们在北方建造了很大的水坝。",
        "Экономика быстро растёт.",
        "경제가 빠르게 성장하고 있다.",
    ],
)
def test_a_sentence_of_any_script_has_something_to_hold_on_to(text):
    (statement,) = statements(text)
    assert statement.entities


def test_repeated_terms_of_a_script_without_spaces_are_found():
    text = "黑豹队的防守很好。野马队击败了黑豹队。黑豹队输了。"
    assert names(text).count("黑豹队") == 3


def test_repeated_terms_of_a_script_without_capitals_are_found():
    text = "डेविस ने सैक किया। बाद में डेविस ने टैकल किया।"
    assert names(text).count("डेविस") == 2


def test_a_long_line_without_sentences_takes_linear_work():
    def calls(n):
        profile = cProfile.Profile()
        profile.runcall(statements, "Alpha Beta of gamma_delta 北京大学北京 " * n)
        return sum(entry.callcount for entry in profile.getstats())

    calls(100)
    assert calls(1200) < 7 * calls(200)


def test_precision_and_recall_on_redocred_keep_their_level():
    import importlib.util
    import sys
    from pathlib import Path

    shared_data("redocred")
    path = Path(__file__).resolve().parents[4] / "benchmarks" / "extraction.py"
    spec = importlib.util.spec_from_file_location("extraction_benchmark", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    documents = module.load(40)
    score = module.measure_entities(documents, lambda text: [m.name for m in entity_spans(text)])
    assert score.precision > 0.72 and score.recall > 0.78
    assert module.measure_relations(documents)[1].recall > 0.65
