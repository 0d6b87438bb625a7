"""What rerankers share: checked scores, and batches."""

from collections.abc import Iterator, Sequence

import numpy as np

from corpusmill.errors import ModelOutputError


def checked_scores(scores: object, count: int, name: str) -> np.ndarray:
    """float32 [count]. Raises ModelOutputError on another number of scores, or one that is not finite."""
    out = np.asarray(scores, dtype=np.float32)
    if out.shape != (count,):
        raise ModelOutputError(f"{name} gave scores of shape {out.shape} for {count} passages")
    if not np.isfinite(out).all():
        bad = int(np.flatnonzero(~np.isfinite(out))[0])
        raise ModelOutputError(f"{name} gave a score that is not finite for passage {bad} of {count}")
    return out


def batches(passages: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(passages), size):
        yield passages[start : start + size]
