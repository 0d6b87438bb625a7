"""Questions without a model: the names to look up, and an answer made of the evidence's own sentences."""

import math
from collections import Counter
from collections.abc import Sequence

from corpusmill.models.rules.entities import distinct_names, entity_spans
from corpusmill.models.rules.lexicon import ASKING, ENGLISH, STOP_WORDS
from corpusmill.models.rules.types import Answer, AnswerSentence
from corpusmill.names import normal_form
from corpusmill.retrieval.tokenizer import tokens
from corpusmill.segmentation.sentences import sentences

MAX_ANSWER_SENTENCES = 3
_ENOUGH = 0.6  # of the best score: what a further sentence needs
_MIN_COVER = 0.2  # share of the question's weight that the best sentence must hold
_MIN_COVER_OF_OTHERS = 0.4


def query_entities(question: str) -> list[str]:
    """Names in the question in order of mention; a question's own opening word is none. May be empty."""
    names = distinct_names(entity_spans(question))
    return [name for name in names if normal_form(name) not in ASKING and normal_form(name) not in ENGLISH]


def answer(question: str, evidences: Sequence[str], scores: Sequence[Sequence[float]] | None = None) -> Answer:
    """The sentences of `evidences` that speak of what is asked, best first, at most three, verbatim.

    A sentence is scored by the share of the question's content words it holds, weighted by their rarity among all
    sentences; names count double. `scores[e][s]` (for example cosines with the question, in [0, 1]) is added for
    sentence s of evidence e. Nothing overlaps enough: an answer without sentences; twice as much is needed where no
    name of the question occurs anywhere.
    """
    wanted = _weights(question)
    pool = [(e, span, span.of(text)) for e, text in enumerate(evidences) for span in sentences(text)]
    if not wanted or not pool:
        return Answer(())
    held = [frozenset(tokens(sentence)) for _, _, sentence in pool]
    seen = Counter(word for own in held for word in own if word in wanted)
    weight = {w: boost * math.log(1 + (len(pool) + 1) / (seen[w] + 1)) for w, boost in wanted.items()}
    total = sum(weight[w] for w in sorted(weight))
    ranked: list[AnswerSentence] = []
    places: Counter[int] = Counter()
    for (e, span, sentence), own in zip(pool, held, strict=True):
        place, places[e] = places[e], places[e] + 1
        cover = sum(weight[w] for w in sorted(own & weight.keys())) / total
        extra = scores[e][place] if scores is not None else 0.0
        if cover > 0:
            ranked.append(AnswerSentence(sentence, e, span, (cover + extra) * _fullness(own)))
    ranked.sort(key=lambda s: (-s.score, s.evidence, s.span))
    least = _MIN_COVER_OF_OTHERS if _speaks_of_others(question, frozenset().union(*held)) else _MIN_COVER
    if not ranked or ranked[0].score < least:
        return Answer(())
    return Answer(tuple(_chosen(ranked)))


def _weights(question: str) -> dict[str, float]:
    """The question's content words; those of names count double."""
    named = {word for name in query_entities(question) for word in tokens(name)}
    words = [w for w in tokens(question) if w not in STOP_WORDS and w not in ASKING]
    return {w: 2.0 if w in named else 1.0 for w in words}


def _speaks_of_others(question: str, said: frozenset[str]) -> bool:
    """Whether the question names something by a capital or a digit, and no word of any such name is said."""
    names = [name for name in query_entities(question) if any(ch.isupper() or ch.isdigit() for ch in name)]
    words = {word for name in names for word in tokens(name) if word not in STOP_WORDS}
    return bool(words) and not words & said


def _fullness(own: frozenset[str]) -> float:
    """Fragments and headings, which hold the question's words and say nothing of them, count less."""
    return min(1.0, len(own) / 6)


def _chosen(ranked: list[AnswerSentence]) -> list[AnswerSentence]:
    out: list[AnswerSentence] = []
    said: set[str] = set()
    for sentence in ranked:
        if sentence.score < _ENOUGH * ranked[0].score or len(out) == MAX_ANSWER_SENTENCES:
            break
        form = normal_form(sentence.text)
        if form not in said:
            said.add(form)
            out.append(sentence)
    return out
