"""Hashed words and character n-grams: no model, any script, tens of thousands of texts a second.

It tells texts apart by shared words and parts of words, not by meaning: for tests, and for corpora too large for a
real embedder. Feature hashing with signs (Weinberger et al., 2009), sublinear counts.
"""

import hashlib
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from corpusmill.models.contracts import EmbedKind
from corpusmill.models.embedders.common import unit_rows
from corpusmill.settings import EmbedderSettings

HASH_VERSION = 1
_WORD = re.compile(r"\w+")
_GRAM = 3
_GRAM_WEIGHT = (
    0.5  # beside a whole word's 1.0: words decide, parts of words bridge inflection and scripts without spaces
)


class HashEmbedder:
    """float32 [n, dim], a pure function of the text."""

    def __init__(self, settings: EmbedderSettings) -> None:
        from corpusmill.models.embedders import embedder_fingerprint, known_dim

        self._settings = settings
        self._dim = known_dim(settings)
        self._fingerprint = embedder_fingerprint(settings)

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    @property
    def dim(self) -> int:
        return self._dim

    async def embed(self, texts: Sequence[str], kind: EmbedKind) -> np.ndarray:
        prefix = self._settings.query_prefix if kind == "query" else self._settings.passage_prefix
        out = np.zeros((len(texts), self._dim), dtype=np.float32)
        for row, text in enumerate(texts):
            if text.strip():
                self._add(out[row], prefix + text)
        return unit_rows(out, "hash")

    async def aclose(self) -> None:
        return None

    def _add(self, row: np.ndarray, text: str) -> None:
        for feature, count in Counter(_features(text)).items():
            place, sign = _place(feature, self._dim)
            weight = _GRAM_WEIGHT if feature[0] == "#" else 1.0
            row[place] += sign * weight * (1.0 + math.log(count))


def _features(text: str) -> list[str]:
    """Words as they are, and each word's character trigrams (bigrams where the script has no spaces), marked `#`."""
    out: list[str] = []
    for word in _WORD.findall(unicodedata.normalize("NFKC", text).casefold()):
        out.append("=" + word[:64])
        size = 2 if ord(word[0]) >= 0x0E00 else _GRAM
        padded = word if size == 2 else f"_{word}_"
        out.extend("#" + padded[i : i + size] for i in range(len(padded) - size + 1))
    return out


@lru_cache(maxsize=200_000)
def _place(feature: str, dim: int) -> tuple[int, float]:
    raw = hashlib.blake2b(feature.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    value = int.from_bytes(raw, "little")
    return (value >> 1) % dim, 1.0 if value & 1 else -1.0
