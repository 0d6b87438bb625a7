"""What embedders share: windows over long texts, unit length, and which scripts a model knows."""

import unicodedata
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from corpusmill.errors import ModelOutputError

# MiniLM's vocabulary is English word pieces: other Latin-script languages are spelt from pieces, other scripts from
# single letters or not at all.
LATIN_ONLY_BACKENDS = frozenset({"minilm"})


def unit_rows(vectors: np.ndarray, name: str) -> np.ndarray:
    """float32 [n, d] with rows of length 1; zero rows stay zero. Raises ModelOutputError on a non-finite number."""
    out = np.asarray(vectors, dtype=np.float32)
    if not np.isfinite(out).all():
        bad = int(np.flatnonzero(~np.isfinite(out).all(axis=1))[0])
        raise ModelOutputError(f"the embedder {name!r} gave a non-finite vector for text {bad} of {len(out)}")
    lengths = np.sqrt(np.einsum("ij,ij->i", out, out, dtype=np.float64))[:, None]
    return np.divide(out, lengths, out=np.zeros_like(out), where=lengths > 0).astype(np.float32)


def windows(length: int, size: int) -> list[tuple[int, int]]:
    """[start, end) of windows of at most `size` over `length` units: as few as do, of nearly equal size."""
    if length <= size:
        return [(0, length)] if length else []
    count = -(-length // size)
    edges = [round(i * length / count) for i in range(count + 1)]
    return list(pairwise(edges))


def mean_of_windows(parts: Sequence[np.ndarray], weights: Sequence[int]) -> np.ndarray:
    """The vector of a text from those of its windows, each weighted by its tokens."""
    return np.average(np.stack(parts), axis=0, weights=np.asarray(weights, dtype=np.float64))


def knows_script(text: str, backend: str = "minilm") -> bool:
    """Whether most letters of `text` are of a script that the embedder was trained on. A text without letters: yes."""
    if backend not in LATIN_ONLY_BACKENDS:
        return True
    letters = [ch for ch in text[:2000] if ch.isalpha()]
    latin = sum(1 for ch in letters if ch.isascii() or unicodedata.name(ch, "").startswith("LATIN"))
    return latin * 2 >= len(letters)
