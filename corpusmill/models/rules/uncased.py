"""Terms where capitals do not mark names: scripts without case, and common nouns of any language.

What a text says again and again is what it is about: repeated runs of characters (scripts without spaces) and repeated
words and pairs of words (all others), function words left out.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import regex

from corpusmill.models.rules.lexicon import GENERIC, HAN_FUNCTION, STOP_WORDS, TRANSLITERATION
from corpusmill.models.rules.types import Mention
from corpusmill.spans import Span

UNSPACED = r"\p{Script=Han}\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}"
_UNSPACED_RUN = regex.compile(rf"[{UNSPACED}々〆\p{{M}}]+")
_KATAKANA = regex.compile(r"[\p{Script=Katakana}ー]{2,}(?:[·・][\p{Script=Katakana}ー]{2,})*")
_SPELT = "".join(sorted(TRANSLITERATION))
_DOTTED = regex.compile(rf"[{_SPELT}]{{1,7}}(?:[·・‧•][{_SPELT}]{{1,7}})+")  # a foreign name in Chinese
_FOREIGN_RUN = regex.compile(r"[A-Za-zÀ-ɏ][A-Za-zÀ-ɏ0-9&.'’-]*(?: [A-Za-zÀ-ɏ0-9][A-Za-zÀ-ɏ0-9&.'’-]*)*|\d+(?:[.,]\d+)*")
_CLUSTER = regex.compile(r"\X")
_WORD = regex.compile(r"[\p{L}\p{M}][\p{L}\p{M}\p{N}\u200c\u200d'’-]*")
_MAX_GRAM = 8
_MIN_TERM = 3  # code points of a word that may be a term
_BUSY = 0.4  # a word in more than this share of the sentences joins, and names nothing
_BUSY_FROM = 6  # sentences


def unspaced_mentions(text: str) -> list[Mention]:
    """Names and terms of scripts written without spaces between words, and what is foreign to them."""
    found = [Mention(Span(*m.span()), m.group()) for m in _KATAKANA.finditer(text)]
    runs = [(m.start(), m.group()) for m in _UNSPACED_RUN.finditer(text)]
    if not runs and not found:
        return []
    found.extend(
        Mention(Span(*m.span()), m.group())
        for m in _FOREIGN_RUN.finditer(text)
        if len(m.group()) > 1 and m.group().lower() not in STOP_WORDS
    )
    found.extend(Mention(Span(*m.span()), m.group()) for m in _DOTTED.finditer(text))
    found.extend(_repeated(runs))
    return found


def _repeated(runs: list[tuple[int, str]]) -> Iterator[Mention]:
    """The longest repeated n-grams of each run, from left to right, without overlap."""
    split = [(at, _CLUSTER.findall(run)) for at, run in runs]
    counts: Counter[tuple[str, ...]] = Counter()
    for _, units in split:
        for size in range(2, _MAX_GRAM + 1):
            counts.update(tuple(units[i : i + size]) for i in range(len(units) - size + 1))
    for at, units in split:
        i, start = 0, at
        while i < len(units):
            size = _longest_repeat(units, i, counts)
            name = "".join(units[i : i + (size or 1)])
            if size:
                yield Mention(Span(start, start + len(name)), name)
            start += len(name)
            i += size or 1


def _longest_repeat(units: list[str], i: int, counts: Counter[tuple[str, ...]]) -> int:
    least = 2 if units[i] >= "\u2e80" else 3
    for size in range(min(_MAX_GRAM, len(units) - i), least - 1, -1):
        gram = tuple(units[i : i + size])
        if counts[gram] > 1 and gram[0] not in HAN_FUNCTION and gram[-1] not in HAN_FUNCTION:
            return size
    return 0


def fallback_unspaced(text: str) -> list[Mention]:
    """The longest piece between function characters of one sentence, for a sentence in which nothing is repeated."""
    pieces: list[Mention] = []
    for m in _UNSPACED_RUN.finditer(text):
        start = m.start()
        for i, ch in enumerate(m.group() + "的"):
            if ch in HAN_FUNCTION:
                piece = text[start : m.start() + i]
                if len(piece) >= 2:
                    pieces.append(Mention(Span(start, start + min(len(piece), _MAX_GRAM)), piece[:_MAX_GRAM]))
                start = m.start() + i + 1
    return sorted(sorted(pieces, key=lambda p: -len(p.name))[:2])


def word_mentions(text: str, sentence_starts: list[int]) -> list[Mention]:
    """Repeated words of scripts that have neither capitals nor a lack of spaces (Devanagari, Arabic, Hangul, ...)."""
    words = [
        m for m in _WORD.finditer(text) if not _is_cased(m.group()) and not regex.match(rf"[{UNSPACED}]", m.group())
    ]
    return list(_terms(text, words, sentence_starts, least=2))


def keyphrases(text: str, sentence_starts: list[int], least: int = 2) -> list[Mention]:
    """Common nouns that are repeated at least `least` times, and repeated pairs of words ("soil erosion"), in scripts
    with capitals. English participles and adverbs are left out."""
    words = [m for m in _WORD.finditer(text) if m.group()[0].islower() and not m.group().endswith(("ed", "ly"))]
    return list(_terms(text, words, sentence_starts, least))


def fallback_words(text: str, base: int = 0) -> list[Mention]:
    """The two longest content words of one sentence (ties: the first)."""
    words = [m for m in _WORD.finditer(text) if _is_term(m.group())]
    best = sorted(sorted(words, key=lambda m: (-len(m.group()), m.start()))[:2], key=lambda m: m.start())
    return [Mention(Span(base + m.start(), base + m.end()), m.group()) for m in best]


def _terms(text: str, words: "list[regex.Match[str]]", starts: list[int], least: int) -> Iterator[Mention]:
    busy = _busy(words, starts)
    terms = [m for m in words if _is_term(m.group()) and m.group().lower() not in busy]
    single = Counter(m.group().lower() for m in terms)
    pairs = Counter(
        (a.group().lower(), b.group().lower()) for a, b in pairwise(terms) if text[a.end() : b.start()] == " "
    )
    i = 0
    while i < len(terms):
        a = terms[i]
        b = terms[i + 1] if i + 1 < len(terms) else None
        if b is not None and text[a.end() : b.start()] == " " and pairs[a.group().lower(), b.group().lower()] > 1:
            yield Mention(Span(a.start(), b.end()), text[a.start() : b.end()])
            i += 2
            continue
        if single[a.group().lower()] >= least:
            yield Mention(Span(*a.span()), a.group())
        i += 1


def _busy(words: "list[regex.Match[str]]", starts: list[int]) -> set[str]:
    """Words in so many sentences that they must be function words of a language we have no list for."""
    if len(starts) < _BUSY_FROM:
        return set()
    seen: Counter[str] = Counter()
    edges = [*starts[1:], 1 << 60]
    sentence, inside = 0, set[str]()
    for m in words:
        while m.start() >= edges[sentence]:
            seen.update(inside)
            inside = set()
            sentence += 1
        inside.add(m.group().lower())
    seen.update(inside)
    return {word for word, count in seen.items() if count > _BUSY * len(starts)}


def _is_term(word: str) -> bool:
    return len(word) >= _MIN_TERM and word.lower() not in STOP_WORDS and word.lower() not in GENERIC


def _is_cased(word: str) -> bool:
    return word[0].lower() != word[0].upper()
