"""Questions without a model: the names to look up, and an answer made of the evidence's own sentences."""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from corpusmill.models.rules.entities import distinct_names, entity_spans
from corpusmill.models.rules.lexicon import ASKING, ENGLISH, STOP_WORDS
from corpusmill.models.rules.types import Answer, AnswerSentence
from corpusmill.names import normal_form
from corpusmill.retrieval.tokenizer import tokens
from corpusmill.segmentation.sentences import sentences
from corpusmill.spans import Span

MAX_ANSWER_SENTENCES = 3
_ENOUGH = 0.6  # of the best score: what a further sentence needs
_MIN_COVER = 0.2  # share of the question's weight that the best sentence must hold
_MIN_COVER_OF_OTHERS = 0.4
_ADDS = 0.5  # of what is unsaid, and
_ADDS_LEAST = 0.15  # of the whole question: what a sentence needs to be added for what it adds
_SUITS = 1.5
_ASKS_NUMBER = re.compile(
    r"\b(how (many|much|long|large|big|old|far|often)|when|what (year|date|number|size|range)|which year"
    r"|maximum|minimum|limit)\b",
    re.I,
)
_ITEM = re.compile(r"[-*•]\s+")
_ASKS_NAME = re.compile(r"\b(who|whom|whose|where)\b", re.I)


@dataclass(frozen=True)
class _Ranked:
    """A sentence with the share of the question that each of its words is worth."""

    sentence: AnswerSentence
    share: dict[str, float]
    factor: float

    def adds(self, unsaid: set[str]) -> float:
        return sum(value for word, value in self.share.items() if word in unsaid) * self.factor


def query_entities(question: str) -> list[str]:
    """Names in the question in order of mention; a question's own opening word is none. May be empty."""
    names = distinct_names(entity_spans(question))
    return [name for name in names if normal_form(name) not in ASKING and normal_form(name) not in ENGLISH]


def answer(question: str, evidences: Sequence[str], scores: Sequence[Sequence[float]] | None = None) -> Answer:
    """The sentences of `evidences` that speak of what is asked, in the order chosen, at most three, verbatim.

    A sentence is scored by the share of the question's content words it holds, weighted by their rarity among all
    sentences; names count double. `scores[e][s]` (for example cosines with the question, in [0, 1]) is added for
    sentence s of evidence e. A sentence that holds the kind of thing asked for (a number, somebody's name) counts
    more. After the best one, those nearly as good follow, and those that hold much of what is still unsaid. Nothing
    overlaps enough: an answer without sentences; twice as much is needed where no name of the question occurs anywhere.
    """
    wanted = _weights(question)
    pool = [
        (e, span, span.of(text))
        for e, text in enumerate(evidences)
        for span in (_unmarked(text, whole) for whole in sentences(text))
    ]
    if not wanted or not pool:
        return Answer(())
    held = [frozenset(_words(sentence)) for _, _, sentence in pool]
    seen = Counter(word for own in held for word in own if word in wanted)
    weight = {w: boost * math.log(1 + (len(pool) + 1) / (seen[w] + 1)) for w, boost in wanted.items()}
    total = sum(weight[w] for w in sorted(weight))
    suits = _suits(question)
    ranked: list[_Ranked] = []
    places: Counter[int] = Counter()
    for (e, span, sentence), own in zip(pool, held, strict=True):
        place, places[e] = places[e], places[e] + 1
        share = {w: weight[w] / total for w in sorted(own & weight.keys())}
        extra = scores[e][place] if scores is not None else 0.0
        if share:
            factor = _fullness(own) * suits(sentence)
            score = (sum(share.values()) + extra) * factor
            ranked.append(_Ranked(AnswerSentence(sentence, e, span, score), share, factor))
    ranked.sort(key=lambda r: (-r.sentence.score, r.sentence.evidence, r.sentence.span))
    least = _MIN_COVER_OF_OTHERS if _speaks_of_others(question, frozenset().union(*held)) else _MIN_COVER
    if not ranked or ranked[0].sentence.score < least:
        return Answer(())
    return Answer(tuple(_chosen(ranked)))


def _weights(question: str) -> dict[str, float]:
    """The question's content words; those of names count double."""
    named = {word for name in query_entities(question) for word in _words(name)}
    words = [w for w in tokens(question) if w not in STOP_WORDS and w not in ASKING]
    return {w: 2.0 if w in named else 1.0 for w in map(_stem, words)}


def _unmarked(text: str, span: Span) -> Span:
    """A sentence without the mark of a list item before it."""
    mark = _ITEM.match(text, span.start, span.end)
    return Span(mark.end(), span.end) if mark and mark.end() < span.end else span


def _words(text: str) -> list[str]:
    return [_stem(word) for word in tokens(text)]


def _stem(word: str) -> str:
    """English plurals and third persons without their s, so that "returns" answers "return"."""
    if len(word) > 3 and word.isascii() and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        return word[:-1]
    return word


def _speaks_of_others(question: str, said: frozenset[str]) -> bool:
    """Whether the question names something by a capital or a digit, and no word of any such name is said."""
    names = [name for name in query_entities(question) if any(ch.isupper() or ch.isdigit() for ch in name)]
    words = {word for name in names for word in _words(name) if word not in STOP_WORDS}
    return bool(words) and not words & said


def _fullness(own: frozenset[str]) -> float:
    """Fragments and headings, which hold the question's words and say nothing of them, count less."""
    return min(1.0, len(own) / 6)


def _suits(question: str) -> Callable[[str], float]:
    """A factor for sentences that hold the kind of thing asked for: a number or date, a name that is not the
    question's. Knows the English question words alone."""
    if _ASKS_NUMBER.search(question):
        known = set(tokens(question))
        return lambda sentence: (
            _SUITS if any(ch.isdigit() for w in tokens(sentence) if w not in known for ch in w) else 1.0
        )
    if _ASKS_NAME.search(question):
        asked = set(tokens(question))
        return lambda sentence: _SUITS if _names_beyond(sentence, asked) else 1.0
    return lambda sentence: 1.0


def _names_beyond(sentence: str, asked: set[str]) -> bool:
    names = distinct_names(entity_spans(sentence))
    return any(name[:1].isupper() and not asked & set(tokens(name)) for name in names)


def _repeats(form: str, said: set[str]) -> bool:
    return any(form in other or other in form for other in said)


def _chosen(ranked: list[_Ranked]) -> list[AnswerSentence]:
    """The best sentence; then, while there is room, the one that adds most of what is unsaid, if it adds enough, else
    the next that is nearly as good as the best."""
    out: list[AnswerSentence] = []
    unsaid = {w for r in ranked for w in r.share}
    weight = {w: share for r in ranked for w, share in r.share.items()}
    said: set[str] = set()
    while len(out) < MAX_ANSWER_SENTENCES:
        left = [r for r in ranked if not _repeats(normal_form(r.sentence.text), said)]
        if not left:
            break
        best = left[0]
        if out:
            missing = sum(weight[w] for w in sorted(unsaid))
            adding = max(left, key=lambda r: r.adds(unsaid))
            if adding.adds(unsaid) >= max(_ADDS * missing, _ADDS_LEAST):
                best = adding
            elif best.sentence.score < _ENOUGH * out[0].score:
                break
        out.append(best.sentence)
        said.add(normal_form(best.sentence.text))
        unsaid -= best.share.keys()
    return out
