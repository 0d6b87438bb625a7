"""Tokens for lexical search in every script, without a model, a dictionary or a language setting.

Text is folded (NFKC, casefold) and cut into runs of one writing habit:

- scripts written without spaces give character n-grams: Han, Kana and Hangul uni- and bigrams (a Hangul word is also
  kept whole), Thai, Lao, Khmer and Myanmar bi- and trigrams over whole clusters (a base with its marks);
- all others give words with their combining marks, so that Devanagari or Arabic words are not torn apart;
- identifiers (`x-amz-acl`, `PutObject`, `max_keys`, `3.11.2`) are kept whole and also give their parts.

A trailing English possessive is dropped. `TOKENIZER_VERSION` is part of the fingerprint of every lexical index: raise
it with any change of the tokens.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

import regex

TOKENIZER_VERSION = 1

_UNSPACED = r"\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}々〆ー"
_CLUSTERED = r"\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}"
_HANGUL = r"\p{Script=Hangul}"
_SPECIAL = f"{_UNSPACED}{_CLUSTERED}{_HANGUL}"
_WORD_CHAR = rf"[[\p{{L}}\p{{M}}\p{{N}}\u200c\u200d]--[{_SPECIAL}]]"

# One alternative a writing habit; joined words are identifiers: parts held together by one of - _ . / : @ ' ’ or &.
_RUNS = regex.compile(
    rf"(?P<han>[{_UNSPACED}\p{{M}}]*[{_UNSPACED}][{_UNSPACED}\p{{M}}]*)"
    rf"|(?P<cluster>[{_CLUSTERED}\p{{M}}]*[{_CLUSTERED}][{_CLUSTERED}\p{{M}}]*)"
    rf"|(?P<hangul>[{_HANGUL}]+)"
    rf"|(?P<word>{_WORD_CHAR}+(?:[-_./:@'’&]{_WORD_CHAR}+)*)",
    flags=regex.V1,
)
_ASCII_WORDS = re.compile(r"[A-Za-z0-9]+(?:[-_./:@'&][A-Za-z0-9]+)*")  # the same in ASCII, eight times as fast
_JOINERS = regex.compile(r"[-_./:@'’&]")
_CASE_PARTS = regex.compile(r"\p{Lu}+(?!\p{Ll})|\p{Lu}?[\p{Ll}\p{Lo}\p{M}]+|\p{N}+|\p{Lu}+")
_CLUSTER = regex.compile(r"\X")
_POSSESSIVE = regex.compile(r"['’]s?$")
_LONGEST = 64  # a longer word (base64, a URL) gives its parts alone


def tokens(text: str) -> list[str]:
    """The search tokens of `text` in order, repeats kept. Deterministic; an empty list for a text without words."""
    if text.isascii():
        return [token for run in _ASCII_WORDS.findall(text) for token in _word(run)]
    return list(_tokens(unicodedata.normalize("NFKC", text)))


def _tokens(text: str) -> Iterator[str]:
    for match in _RUNS.finditer(text):
        run = match.group()
        kind = match.lastgroup
        if kind == "word":
            yield from _word(run)
        elif kind == "han":
            yield from _grams(list(run.casefold()), (1, 2))
        elif kind == "cluster":
            clusters = _CLUSTER.findall(run)
            yield from _grams(clusters, (2, 3) if len(clusters) > 1 else (1,))
        else:
            yield from _grams(list(run), (1, 2) if len(run) == 1 else (2,))
            if len(run) > 2:
                yield run


def _grams(units: list[str], sizes: tuple[int, ...]) -> Iterator[str]:
    for size in sizes:
        for i in range(len(units) - size + 1):
            yield "".join(units[i : i + size])


@lru_cache(maxsize=65_536)
def _word(run: str) -> tuple[str, ...]:
    """The word, and its parts where it is an identifier or a compound."""
    run = _POSSESSIVE.sub("", run)
    whole = _fold(run)
    pieces = [piece for piece in _JOINERS.split(run) if piece]
    split = [(piece, _case_parts(piece)) for piece in pieces]
    if sum(len(parts) for _, parts in split) <= 1:
        return (whole[:_LONGEST],) if whole else ()
    out = [whole] if len(whole) <= _LONGEST else []
    for piece, parts in split:
        if len(pieces) > 1 and len(parts) > 1 and len(piece) <= _LONGEST:
            out.append(_fold(piece))
        out.extend(_fold(part)[:_LONGEST] for part in parts)
    return tuple(out)


def _case_parts(piece: str) -> list[str]:
    """`PutObject` -> Put, Object; `HTTPServer` -> HTTP, Server. Only where case changes inside the word."""
    if piece.isascii() and piece.isalpha() and (piece.islower() or piece.isupper() or piece[1:].islower()):
        return [piece]
    if not (any(ch.isupper() for ch in piece[1:]) and any(ch.islower() for ch in piece)):
        return [piece]
    return _CASE_PARTS.findall(piece) or [piece]


def _fold(word: str) -> str:
    return unicodedata.normalize("NFKC", word.casefold())
