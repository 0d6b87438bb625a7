"""The embedded reranker."""

from collections.abc import Sequence

import numpy as np

from corpusmill.hashing import fingerprint
from corpusmill.models.rerank.lexical import coverage

VERSION = 1


class EmbeddedReranker:
    """float32 scores in [0, 1]."""

    @property
    def fingerprint(self) -> str:
        return fingerprint({"backend": "embedded", "version": VERSION})

    def calls(self, passages: int) -> int:
        return 0

    async def rerank(self, question: str, passages: Sequence[str]) -> np.ndarray:
        return coverage(question, passages)

    async def aclose(self) -> None:
        return None
