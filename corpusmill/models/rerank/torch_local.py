"""A sentence-transformers cross-encoder on this machine's accelerator; needs the extra `gpu`."""

import asyncio
import importlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from corpusmill.errors import ConfigError
from corpusmill.hashing import fingerprint
from corpusmill.models.rerank.common import checked_scores
from corpusmill.settings import RerankSettings


class TorchReranker:
    """Scores (question, passage) pairs; what of a pair goes over `max_tokens` is cut from its end.

    One thread feeds the accelerator. `model` is a local folder or a name that the library can load.
    """

    def __init__(self, settings: RerankSettings) -> None:
        self._settings = settings
        self._model: Any = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="torch-reranker")

    @property
    def fingerprint(self) -> str:
        own = self._settings
        return fingerprint({"backend": "torch", "model": own.model, "max_tokens": own.max_tokens})

    def calls(self, passages: int) -> int:
        return 0

    async def rerank(self, question: str, passages: Sequence[str]) -> np.ndarray:
        if not passages:
            return np.zeros(0, np.float32)
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._score, question, list(passages))

    async def aclose(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _score(self, question: str, passages: list[str]) -> np.ndarray:
        pairs = [(question, passage) for passage in passages]
        scores = self._load().predict(pairs, batch_size=self._settings.batch_size, show_progress_bar=False)
        return checked_scores(scores, len(passages), f"reranker {self._settings.model!r}")

    def _load(self) -> Any:
        if self._model is None:
            try:
                library = importlib.import_module("sentence_transformers")
            except ImportError as error:
                raise ConfigError(
                    "rerank.backend torch needs sentence-transformers: pip install 'corpusmill[gpu]'"
                ) from error
            self._model = library.CrossEncoder(self._settings.model, max_length=self._settings.max_tokens)
        return self._model
