"""Sentences as relational statements."""

from collections.abc import Sequence

from corpusmill.models.rules.entities import distinct_names, mentions_in
from corpusmill.models.rules.types import Statement
from corpusmill.segmentation.sentences import sentences
from corpusmill.spans import Span

MAX_STATEMENT = 2_000  # code points: what is longer is no sentence (a table, a minified file) and is cut at white space


def statements(text: str, spans: Sequence[Span] | None = None) -> list[Statement]:
    """One statement for each sentence that mentions an entity, in order.

    `spans`: the sentences, where the caller has them (disjoint, in order). All of `text` tells which words are names.
    """
    cut = [part for span in (sentences(text) if spans is None else spans) for part in _bounded(text, span)]
    mentions = mentions_in(text, cut)
    out: list[Statement] = []
    at = 0
    for span in cut:
        own = []
        while at < len(mentions) and mentions[at].span.start < span.end:
            own.append(mentions[at])
            at += 1
        names = distinct_names(own)
        if names:
            out.append(Statement(" ".join(span.of(text).split()), span, names))
    return out


def _bounded(text: str, span: Span) -> list[Span]:
    parts: list[Span] = []
    start = span.start
    while span.end - start > MAX_STATEMENT:
        space = text.rfind(" ", start + MAX_STATEMENT // 2, start + MAX_STATEMENT)
        end = space if space > 0 else start + MAX_STATEMENT
        parts.append(Span(start, end))
        start = end + 1 if space > 0 else end
    return [*parts, Span(start, span.end)] if start < span.end else parts
