"""Sentences of a text in any script, with exact offsets.

Boundaries come from sentencex (rules for some 300 languages, MIT). It is asked in windows, since its cost grows with
the square of what it is given, and only within blocks: a blank line, a heading, a list item and a table row each end a
sentence. Two things are added: a boundary before a lower-case letter is taken back (abbreviations of languages that we
were not told of), and scripts that set no full stop (Thai, Lao, Khmer) are divided at spaces.
"""

import re
from collections.abc import Iterator

import sentencex  # type: ignore[import-untyped]

from corpusmill.spans import Span

SENTENCES_VERSION = 1

_WINDOW = 1000  # code points a call; sentencex needs time in the square of the sentences in it
_STRUCTURE = re.compile(r"[ \t]*(?:(#{1,6}[ \t])|(\|)|(?:[-*+•‣◦][ \t]|\d{1,3}[.)][ \t]|>))")
_UNSTOPPED = re.compile(r"[\u0e00-\u0eff\u1780-\u17ff]")
_UNSTOPPED_SPACE = re.compile(r"(?<=[\u0e00-\u0eff\u1780-\u17ff])[ \u200b]+(?=[\u0e00-\u0eff\u1780-\u17ff])")
_UNSTOPPED_MIN, _UNSTOPPED_MAX = 60, 200  # code points: parts of at least, sentences longer than


def sentences(text: str, within: Span | None = None) -> list[Span]:
    """The sentences of `text` (inside `within`): disjoint, in order, free of white space at both ends.

    Together they cover every character that is not white space. Needs time linear in the length.
    """
    within = within or Span(0, len(text))
    out: list[Span] = []
    for block in _blocks(text, within.start, within.end):
        for start, end in _sentences_of_block(text, *block):
            span = trimmed(text, start, end)
            if span is not None:
                out.append(span)
    return out


def trimmed(text: str, start: int, end: int) -> Span | None:
    """[start, end) without white space at its ends; None if nothing else is in it."""
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return Span(start, end) if start < end else None


def _blocks(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Runs of lines that no blank line, heading, list item or table row interrupts."""
    begin = line = start
    while line < end:
        after = text.find("\n", line, end)
        after = end if after < 0 else after + 1
        mark = _STRUCTURE.match(text, line, after)
        if mark is not None or text[line:after].isspace():
            if begin < line:
                yield begin, line
            begin = line
            if mark is None or mark.group(1) or mark.group(2):  # blank lines, headings and rows end with their line
                yield line, after
                begin = after
        line = after
    if begin < end:
        yield begin, end


def _sentences_of_block(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    begin = start
    for cut in _cuts(text, start, end):
        if not _continues(text, cut, end):
            yield from _divide_unstopped(text, begin, cut)
            begin = cut
    if begin < end:
        yield from _divide_unstopped(text, begin, end)


def _cuts(text: str, start: int, end: int) -> Iterator[int]:
    """Boundaries inside a block, asked for window by window; a sentence over a window's edge is asked for again."""
    at = start
    while at < end:
        stop = min(at + _WINDOW, end)
        found = sentencex.get_sentence_boundaries("en", text[at:stop])
        ends = [at + item["end_index"] for item in found if item["end_index"] > 0]
        if stop == end:
            yield from (cut for cut in ends if at < cut < end)
            return
        inner = [cut for cut in ends if at < cut < stop]
        yield from inner
        # One sentence fills the window: go on in it from the last space, so that no window splits a word.
        at = inner[-1] if inner else max(text.rfind(" ", at + 1, stop) + 1, at + _WINDOW // 2)


def _continues(text: str, cut: int, end: int) -> bool:
    """Whether what stands after `cut` is a lower-case letter, so that the full stop before it was an abbreviation's."""
    before = cut
    while before > 0 and text[before - 1].isspace():
        before -= 1
    return text[before - 1 : before] == "." and cut < end and text[cut].islower()


def _divide_unstopped(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    if end - start > _UNSTOPPED_MAX and _UNSTOPPED.search(text, start, end):
        for space in _UNSTOPPED_SPACE.finditer(text, start, end):
            if space.start() - start >= _UNSTOPPED_MIN:
                yield start, space.end()
                start = space.end()
    yield start, end
