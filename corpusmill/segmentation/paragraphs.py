"""Paragraphs of plain text and Markdown.

Blank lines divide. A Markdown heading stays with what follows it; a table and a code fence are one paragraph each,
the fence with its blank lines. Plain text passes the same rules: it rarely has what they look for.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from corpusmill.segmentation.sentences import trimmed
from corpusmill.spans import Span

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^\n]*)")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-{3,})[ \t]*$")
_ROW = re.compile(r"[ \t]*\|")


@dataclass(frozen=True)
class _Block:
    start: int
    end: int
    heading: bool = False


def paragraphs(text: str) -> list[Span]:
    """Paragraphs of `text`: disjoint, in order, trimmed; they cover every character that is not white space."""
    out: list[Span] = []
    pending: int | None = None  # start of headings that wait for what follows
    for block in _blocks(text):
        start = block.start if pending is None else pending
        if block.heading:
            pending = start
            continue
        pending = None
        span = trimmed(text, start, block.end)
        if span is not None:
            out.append(span)
    if pending is not None and (span := trimmed(text, pending, len(text))) is not None:
        out.append(span)
    return out


def _lines(text: str, start: int = 0) -> Iterator[tuple[int, int]]:
    """(start, end) of each line, the line break left out."""
    while start < len(text):
        end = text.find("\n", start)
        if end < 0:
            yield start, len(text)
            return
        yield start, end
        start = end + 1


def _blocks(text: str) -> Iterator[_Block]:
    begin: int | None = None
    in_table = False
    skip_to = 0
    fences = _fences(text)
    last = 0
    for start, end in _lines(text):
        if start < skip_to:
            continue
        line = text[start:end] if end - start < 512 else text[start : start + 512]
        fence_end = fences.get(start)
        row = _ROW.match(line) is not None
        blank = line.isspace() or not line
        if blank and end - start >= 512:
            blank = text[start:end].isspace()
        ends_before = blank or fence_end is not None or row != in_table or _HEADING.match(line) is not None
        if begin is not None and ends_before:
            yield _finished(text, begin, last)
            begin = None
        in_table = row
        if fence_end is not None:
            yield _Block(start, fence_end)
            skip_to = fence_end
        elif _HEADING.match(line) is not None:
            yield _Block(start, end, heading=True)
        elif not blank and begin is None:
            begin = start
        last = end
    if begin is not None:
        yield _finished(text, begin, last)


def _finished(text: str, start: int, end: int) -> _Block:
    """A run of lines; it is a heading if it is two lines, the second an underline."""
    if end - start <= 512:
        lines = text[start:end].split("\n")
        if len(lines) == 2 and _UNDERLINE.match(lines[1]):
            return _Block(start, end, heading=True)
    return _Block(start, end)


def _fences(text: str) -> dict[int, int]:
    """start of an opening fence -> end of its closing line. A fence that is never closed is no fence."""
    if "```" not in text and "~~~" not in text:
        return {}
    marks: list[tuple[int, int, str, bool]] = []
    for start, end in _lines(text):
        found = _FENCE.match(text, start, end)
        if found is not None:
            marks.append((start, end, found.group(1), not found.group(2).strip()))
    out: dict[int, int] = {}
    open_mark: tuple[int, int, str, bool] | None = None
    for mark in marks:
        if open_mark is None:
            if mark[2][0] == "~" or "`" not in text[mark[0] + len(mark[2]) + 3 : mark[1]]:
                open_mark = mark
        elif mark[3] and mark[2].startswith(open_mark[2]):
            out[open_mark[0]] = mark[1]
            open_mark = None
    return out
