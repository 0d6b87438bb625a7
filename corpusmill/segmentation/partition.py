"""Dynamic partitioning into chunks (FlexStructRAG, section "dynamic partitioning").

Paragraphs are appended to a chunk until the next would exceed `ct_max` tokens. Afterwards, left to right, a chunk
under `ct_min` takes in the next one and is closed; a short last chunk joins the one before it only where both fit in
`ct_max + ct_min - 1`. A paragraph over `ct_max` is divided into sentences, a sentence over it into clauses, then
words, then tokens.
"""

import re
from array import array
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from corpusmill.segmentation.paragraphs import paragraphs
from corpusmill.segmentation.sentences import sentences, trimmed
from corpusmill.segmentation.tokens import Tokenizer
from corpusmill.spans import Span

PARTITION_VERSION = 1

_CLAUSE = re.compile(r"(?<=[,;:，、；：،؛—–])(?=\s)|(?<=[，、；：])|\n")


@dataclass(frozen=True)
class Piece:
    """A span with its size in tokens (`count` of the span's text)."""

    span: Span
    tokens: int


def partition(text: str, tokenizer: Tokenizer, ct_min: int, ct_max: int) -> list[Piece]:
    """Chunks of `text`: disjoint, in order, trimmed, covering every character that is not white space.

    Every chunk has at most `ct_max + ct_min - 1` tokens. Each character is counted a bounded number of times, so the
    time is linear in the length. White space holds no tokens, so the tokens of a chunk are the sum of its pieces'.
    """
    if not 1 <= ct_min <= ct_max:
        raise ValueError(f"partitioning needs 1 <= ct_min <= ct_max, got {ct_min} and {ct_max}")
    return _levelled(_packed(_units(text, tokenizer, ct_max), ct_max), ct_min, ct_max)


def _packed(units: Iterator[Piece], ct_max: int) -> list[Piece]:
    out: list[Piece] = []
    for unit in units:
        if out and out[-1].tokens + unit.tokens <= ct_max:
            out[-1] = _joined(out[-1], unit)
        else:
            out.append(unit)
    return out


def _levelled(chunks: list[Piece], ct_min: int, ct_max: int) -> list[Piece]:
    out: list[Piece] = []
    at = 0
    while at < len(chunks):
        chunk = chunks[at]
        at += 1
        if chunk.tokens < ct_min and at < len(chunks):
            chunk = _joined(chunk, chunks[at])
            at += 1
        out.append(chunk)
    if len(out) > 1 and out[-1].tokens < ct_min and out[-2].tokens + out[-1].tokens <= ct_max + ct_min - 1:
        out[-2:] = [_joined(out[-2], out[-1])]
    return out


def _joined(a: Piece, b: Piece) -> Piece:
    return Piece(Span(a.span.start, b.span.end), a.tokens + b.tokens)


def _units(text: str, tokenizer: Tokenizer, ct_max: int) -> Iterator[Piece]:
    """Paragraphs, and the parts of those over `ct_max`."""
    for paragraph in paragraphs(text):
        tokens = tokenizer.count(paragraph.of(text))
        if tokens <= ct_max:
            yield Piece(paragraph, tokens)
        else:
            starts = tokenizer.starts(paragraph.of(text))
            yield from _Division(text, paragraph.start, starts, ct_max).parts(paragraph)


class _Division:
    """Divides one paragraph; its tokens are found once, and every part is counted among them."""

    def __init__(self, text: str, origin: int, starts: "array[int]", ct_max: int) -> None:
        self._text = text
        self._origin = origin
        self._starts = starts  # relative to `origin`
        self._ct_max = ct_max

    def parts(self, paragraph: Span) -> Iterator[Piece]:
        """Parts of at most `ct_max` tokens: sentences, else clauses, else runs of words, else runs of tokens."""
        for sentence in sentences(self._text, paragraph):
            if (tokens := self._count(sentence)) <= self._ct_max:
                yield Piece(sentence, tokens)
                continue
            for clause in _clauses(self._text, sentence):
                if (tokens := self._count(clause)) <= self._ct_max:
                    yield Piece(clause, tokens)
                else:
                    yield from self._runs(clause)

    def _index(self, offset: int) -> int:
        return bisect_left(self._starts, offset - self._origin)

    def _count(self, span: Span) -> int:
        return self._index(span.end) - self._index(span.start)

    def _runs(self, span: Span) -> Iterator[Piece]:
        """As many tokens as fit, up to the last of them that a space precedes if there is one."""
        first, stop = self._index(span.start), self._index(span.end)
        while first < stop:
            last = min(first + self._ct_max, stop)
            cut = last
            while last < stop and cut > first and not self._text[self._starts[cut] + self._origin - 1].isspace():
                cut -= 1
            last = cut if cut > first else last
            begin = self._starts[first] + self._origin
            end = self._starts[last] + self._origin if last < stop else span.end
            part = trimmed(self._text, begin, end)
            if part is not None:
                yield Piece(part, last - first)
            first = last


def _clauses(text: str, span: Span) -> Iterator[Span]:
    start = span.start
    for found in _CLAUSE.finditer(text, span.start, span.end):
        if (part := trimmed(text, start, found.end())) is not None:
            yield part
        start = found.end()
    if (part := trimmed(text, start, span.end)) is not None:
        yield part
