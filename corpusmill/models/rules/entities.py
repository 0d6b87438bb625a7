"""Entities of a text: where they stand and what they are called."""

from collections import Counter
from collections.abc import Iterable

import regex

from corpusmill.models.rules.names import cased_mentions
from corpusmill.models.rules.types import Mention
from corpusmill.models.rules.uncased import (
    fallback_unspaced,
    fallback_words,
    keyphrases,
    unspaced_mentions,
    word_mentions,
)
from corpusmill.names import normal_form
from corpusmill.segmentation.sentences import sentences
from corpusmill.spans import Span

_OFTEN = 3  # times that a common noun is met before it joins a sentence's only name
MAX_NAME = 120  # code points
_CASED = regex.compile(r"\p{Lu}|\p{Ll}")
_UNSPACED = regex.compile(
    r"[\p{Script=Han}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}\p{Script=Katakana}]"
)
_SPACED_UNCASED = regex.compile(
    r"[\p{Lo}--[\p{Script=Han}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}\p{Script=Katakana}\p{Script=Hiragana}]]",
    regex.V1,
)


def entity_spans(text: str) -> list[Mention]:
    """Mentions in order, without overlap; every sentence that says anything has at least one.

    Names first (capitalised phrases, dates, quantities, titles, identifiers; repeated terms where a script has no
    capitals). A sentence with fewer than two of them also gets the text's repeated common nouns, and one with none its
    two longest content words.
    """
    return mentions_in(text, sentences(text))


def mentions_in(text: str, spans: list[Span]) -> list[Mention]:
    """As `entity_spans`, for a text whose sentences are known (disjoint, in order)."""
    starts = [span.start for span in spans]
    names = _without_overlap(_names(text, starts))
    common = _without_overlap(keyphrases(text, starts)) if _CASED.search(text) else []
    weight = Counter(normal_form(m.name) for m in common)
    out: list[Mention] = []
    i = j = 0
    for span in spans:
        i, own = _take(names, i, span)
        j, extra = _take(common, j, span)
        names_here = len({normal_form(m.name) for m in own})
        if names_here == 1:
            extra = [m for m in extra if " " in m.name or weight[normal_form(m.name)] >= _OFTEN]
        if names_here < 2:
            own = _without_overlap(own, extra)
        if not own:
            own = _fallback(text, span)
        out.extend(own)
    return out


def _names(text: str, starts: list[int]) -> Iterable[Mention]:
    found = cased_mentions(text, starts)
    if _UNSPACED.search(text):
        found.extend(unspaced_mentions(text))
    if _SPACED_UNCASED.search(text):
        found.extend(word_mentions(text, starts))
    return found


def _take(mentions: list[Mention], at: int, span: Span) -> tuple[int, list[Mention]]:
    """The mentions inside `span`, from index `at` on; one that reaches over its end is left out."""
    while at < len(mentions) and mentions[at].span.start < span.start:
        at += 1
    own = []
    while at < len(mentions) and mentions[at].span.start < span.end:
        if mentions[at].span.end <= span.end:
            own.append(mentions[at])
        at += 1
    return at, own


def _fallback(text: str, span: Span) -> list[Mention]:
    sentence = span.of(text)
    found = fallback_words(sentence) if not _UNSPACED.search(sentence) else fallback_unspaced(sentence)
    return [Mention(m.span.shift(span.start), m.name) for m in found]


def _without_overlap(*groups: Iterable[Mention]) -> list[Mention]:
    """The longest of overlapping mentions (ties: the first), of earlier groups before later ones, in text order."""
    kept: list[Mention] = []
    taken: set[int] = set()
    for group in groups:
        usable = (m for m in group if len(m.name) <= MAX_NAME and normal_form(m.name))
        for mention in sorted(usable, key=lambda m: (m.span.start - m.span.end, m.span.start, m.name)):
            covered = range(mention.span.start, mention.span.end)
            if not any(i in taken for i in covered):
                taken.update(covered)
                kept.append(mention)
    return sorted(kept)


def distinct_names(mentions: Iterable[Mention]) -> tuple[str, ...]:
    """Names in order of mention, each normal form once."""
    forms: dict[str, str] = {}
    for mention in mentions:
        forms.setdefault(normal_form(mention.name), mention.name)
    return tuple(name for form, name in forms.items() if form)
