"""Citations: every quote is a span of a stored document text, or it is not given.

A model's quote is looked for in three steps:

1. in the source spans of the evidence it names (exactly, else aligned with a score of 90 or more);
2. in the evidence's own text, where that is a wording of the index (a statement, a summary): then the source span that
   is closest to the quote is cited in its place, in the document's words;
3. nowhere: the quote is removed and counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rapidfuzz import fuzz

from corpusmill.methods.protocol import Evidence, Snapshot, Source
from corpusmill.spans import Span, align_quote

MAX_QUOTE = 600  # characters of a cited source span that stands for a reworded quote
MAX_DOCUMENTS = 20  # documents that one quote of a shared text is cited for


@dataclass(frozen=True)
class Citation:
    """`quote` is the document's own text at [start, end); `score` that of the evidence."""

    doc_id: str
    uri: str
    title: str
    start: int
    end: int
    quote: str
    score: float


def cite(quote: str, evidence: Evidence, snapshot: Snapshot) -> tuple[Citation, ...]:
    """One citation for each document that has the quoted text, ordered by doc_id; none if the quote is not there."""
    found = locate(quote, evidence, snapshot)
    if found is None:
        return ()
    stands = found.span.of(snapshot.text(found.text_hash))
    return tuple(
        Citation(
            doc_id=str(row["doc_id"]),
            uri=str(row["uri"]),
            title=str(row.get("title") or row["uri"]),
            start=found.span.start,
            end=found.span.end,
            quote=stands,
            score=evidence.score,
        )
        for row in list(snapshot.documents_of(found.text_hash))[:MAX_DOCUMENTS]
    )


def locate(quote: str, evidence: Evidence, snapshot: Snapshot) -> Source | None:
    """Where the quote stands in the stored texts, or None."""
    quote = quote.strip()
    if not quote:
        return None
    for exact in (True, False):
        for source in evidence.sources:
            text = snapshot.text(source.text_hash)
            if exact:
                at = text.find(quote, source.span.start, source.span.end)
                span = Span(at, at + len(quote)) if at >= 0 else None
            else:
                span = align_quote(quote, text, source.span)
            if span is not None:
                return Source(source.text_hash, span)
    if align_quote(quote, evidence.text) is None:
        return None
    return _closest(quote, evidence.sources, snapshot)


def _closest(quote: str, sources: Sequence[Source], snapshot: Snapshot) -> Source | None:
    """The source span most like the quote (ties: the first), at most MAX_QUOTE characters of it."""
    best: tuple[float, Source] | None = None
    for source in sources:
        score = fuzz.token_set_ratio(quote, source.span.of(snapshot.text(source.text_hash)))
        if best is None or score > best[0]:
            best = (score, source)
    if best is None:
        return None
    source = best[1]
    if source.span.end - source.span.start <= MAX_QUOTE:
        return source
    text = snapshot.text(source.text_hash)
    window = fuzz.partial_ratio_alignment(quote, source.span.of(text))
    start = source.span.start + (window.dest_start if window is not None else 0)
    end = min(start + MAX_QUOTE, source.span.end)
    return Source(source.text_hash, Span(max(source.span.start, min(start, end - 1)), end))
