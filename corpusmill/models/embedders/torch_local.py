"""A sentence-transformers model on this machine's accelerator; needs the extra `gpu`."""

import asyncio
import importlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from corpusmill.errors import ConfigError
from corpusmill.models.contracts import EmbedKind
from corpusmill.models.embedders.common import mean_of_windows, unit_rows, windows
from corpusmill.settings import EmbedderSettings


class TorchEmbedder:
    """float32 [n, dim]. Texts over `max_tokens` are embedded in windows; one thread feeds the accelerator.

    The tests exercise it with a stand-in for sentence-transformers only: that package is not installed with them.
    """

    def __init__(self, settings: EmbedderSettings) -> None:
        from corpusmill.models.embedders import embedder_fingerprint, known_dim

        self._settings = settings
        self._dim = known_dim(settings)
        self._fingerprint = embedder_fingerprint(settings)
        self._model: Any = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="torch-embedder")

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    @property
    def dim(self) -> int:
        return self._dim

    async def embed(self, texts: Sequence[str], kind: EmbedKind) -> np.ndarray:
        prefix = self._settings.query_prefix if kind == "query" else self._settings.passage_prefix
        named = [prefix + text if text.strip() else "" for text in texts]
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._embed, named)

    async def aclose(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _embed(self, texts: list[str]) -> np.ndarray:
        model = self._load()
        parts = [self._windows(model, text) if text else [] for text in texts]
        flat = [part for windowed in parts for part in windowed]
        out = np.zeros((len(texts), self._dim), dtype=np.float64)
        if not flat:
            return out.astype(np.float32)
        vectors = np.asarray(model.encode(flat, batch_size=self._settings.batch_size, show_progress_bar=False))
        if vectors.shape != (len(flat), self._dim):
            raise ConfigError(
                f"model {self._settings.model!r} gives {vectors.shape[1:]} dimensions, embedder.dim is {self._dim}"
            )
        at = 0
        for row, windowed in enumerate(parts):
            if windowed:
                out[row] = mean_of_windows(list(vectors[at : at + len(windowed)]), [len(part) for part in windowed])
                at += len(windowed)
        return unit_rows(out, str(self._settings.model))

    def _windows(self, model: Any, text: str) -> list[str]:
        limit = min(self._settings.max_tokens, int(model.max_seq_length or self._settings.max_tokens)) - 2
        marks = model.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        if len(marks) <= limit:
            return [text]
        return [text[marks[start][0] : marks[end - 1][1]] for start, end in windows(len(marks), limit)]

    def _load(self) -> Any:
        if self._model is None:
            try:
                library = importlib.import_module("sentence_transformers")
            except ImportError as error:
                raise ConfigError(
                    "embedder.backend torch needs sentence-transformers: pip install 'corpusmill[gpu]'"
                ) from error
            own = {"model_kwargs": {"torch_dtype": self._settings.dtype}} if self._settings.dtype else {}
            self._model = library.SentenceTransformer(self._settings.model, **own)
        return self._model
