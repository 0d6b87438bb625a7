"""Embeddings of any OpenAI-compatible endpoint."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from corpusmill.errors import ModelOutputError
from corpusmill.models.contracts import EmbedKind
from corpusmill.models.embedders.common import mean_of_windows, unit_rows, windows
from corpusmill.models.endpoint import Endpoint, RefusedRequest
from corpusmill.models.retrying import with_retries
from corpusmill.models.tokens import estimate_tokens
from corpusmill.settings import EmbedderSettings

CONNECTIONS = 8


class OpenAIEmbedder:
    """float32 [n, dim]. A text over `max_tokens` (estimated: the model's tokenizer is not at hand) is sent in windows.

    Raises ModelUnavailableError after the retries, ModelRejectedError, ModelOutputError on vectors of another number
    or dimension, or with a non-finite value.
    """

    def __init__(self, settings: EmbedderSettings) -> None:
        from corpusmill.models.embedders import embedder_fingerprint, known_dim

        self._settings = settings
        self._dim = known_dim(settings)
        self._fingerprint = embedder_fingerprint(settings)
        self._endpoint = Endpoint(
            settings.base_url, settings.api_key_env, settings.timeout_s, f"embedder {settings.model!r}", CONNECTIONS
        )
        self._send_dim = settings.dim is not None

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    @property
    def dim(self) -> int:
        return self._dim

    async def embed(self, texts: Sequence[str], kind: EmbedKind) -> np.ndarray:
        prefix = self._settings.query_prefix if kind == "query" else self._settings.passage_prefix
        parts = [self._windows(prefix + text) if text.strip() else [] for text in texts]
        flat = [part for windowed in parts for part in windowed]
        vectors: list[np.ndarray] = []
        for start in range(0, len(flat), self._settings.batch_size):
            vectors.extend(await self._batch(flat[start : start + self._settings.batch_size]))
        out = np.zeros((len(texts), self._dim), dtype=np.float64)
        at = 0
        for row, windowed in enumerate(parts):
            if windowed:
                own = vectors[at : at + len(windowed)]
                out[row] = mean_of_windows(own, [len(part) for part in windowed])
                at += len(windowed)
        return unit_rows(out, str(self._settings.model))

    async def aclose(self) -> None:
        await self._endpoint.aclose()

    def _windows(self, text: str) -> list[str]:
        tokens = estimate_tokens(text)
        if tokens <= self._settings.max_tokens:
            return [text]
        size = max(1, len(text) * self._settings.max_tokens // tokens)
        return [part for start, end in windows(len(text), size) if (part := text[start:end]).strip()]

    async def _batch(self, texts: list[str]) -> np.ndarray:
        body: dict[str, Any] = {"model": self._settings.model, "input": texts, "encoding_format": "float"}

        async def call() -> dict[str, Any]:
            if self._send_dim:
                try:
                    return await self._endpoint.post("/embeddings", {**body, "dimensions": self._dim})
                except RefusedRequest:
                    self._send_dim = False  # servers of models with one fixed dimension refuse the parameter
            try:
                return await self._endpoint.post("/embeddings", body)
            except RefusedRequest as refusal:
                raise refusal.rejected() from refusal

        return self._read(await with_retries(call, self._settings.retries), len(texts))

    def _read(self, answer: dict[str, Any], count: int) -> np.ndarray:
        try:
            rows = sorted(answer["data"], key=lambda row: row["index"])
            vectors = np.asarray([row["embedding"] for row in rows], dtype=np.float64)
        except (LookupError, TypeError, ValueError) as error:
            raise ModelOutputError(f"{self._endpoint.where} gave no data[].embedding: {str(answer)[:200]}") from error
        if vectors.shape != (count, self._dim):
            raise ModelOutputError(
                f"{self._endpoint.where} gave vectors of shape {vectors.shape} for {count} texts; embedder.dim is "
                f"{self._dim}"
            )
        return vectors
