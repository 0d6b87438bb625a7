"""Spans of a document text, and the alignment of quotes to it."""

from collections.abc import Iterable
from dataclasses import dataclass

from rapidfuzz import fuzz

MIN_QUOTE_SCORE = 90.0


@dataclass(frozen=True, order=True)
class Span:
    """Half-open [start, end) in Unicode code points."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"a span needs 0 <= start <= end, got {self.start}..{self.end}")

    def of(self, text: str) -> str:
        return text[self.start : self.end]

    def shift(self, by: int) -> "Span":
        return Span(self.start + by, self.end + by)


def align_quote(quote: str, text: str, within: Span | None = None) -> Span | None:
    """Where `quote` stands in `text` (inside `within`), or None.

    An exact match wins (the first one); else the best partial alignment with score >= 90 of 100, widened to word ends
    so that the stored quote is readable. The source's text is what counts, never the model's.
    """
    within = within or Span(0, len(text))
    quote = quote.strip()
    if not quote:
        return None
    window = within.of(text)
    at = window.find(quote)
    if at >= 0:
        return Span(within.start + at, within.start + at + len(quote))
    if len(quote) > len(window) * 1.1 + 8:
        return None
    found = fuzz.partial_ratio_alignment(quote, window, score_cutoff=MIN_QUOTE_SCORE)
    if found is None or found.dest_end <= found.dest_start:
        return None
    start, end = found.dest_start, found.dest_end
    while start > 0 and window[start - 1].isalnum() and window[start].isalnum() and found.dest_start - start < 12:
        start -= 1
    while end < len(window) and window[end - 1].isalnum() and window[end].isalnum() and end - found.dest_end < 12:
        end += 1
    while start < end and window[start].isspace():
        start += 1
    while end > start and window[end - 1].isspace():
        end -= 1
    return Span(within.start + start, within.start + end) if end > start else None


def union(spans: Iterable[Span]) -> list[Span]:
    """Sorted spans with overlapping and repeated ones joined (touching ones stay apart)."""
    out: list[Span] = []
    for span in sorted(spans):
        if out and span.start < out[-1].end:
            out[-1] = Span(out[-1].start, max(out[-1].end, span.end))
        elif not out or span != out[-1]:
            out.append(span)
    return out
