"""A reranker behind HTTP, in the form that Cohere began and Jina, vLLM, text-embeddings routers and others serve.

POST {base_url}/rerank {model, query, documents, top_n} -> {results: [{index, relevance_score}, ...]} in any order.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from corpusmill.errors import ModelOutputError
from corpusmill.hashing import fingerprint
from corpusmill.models.endpoint import Endpoint, RefusedRequest
from corpusmill.models.rerank.common import batches, checked_scores
from corpusmill.models.retrying import with_retries
from corpusmill.settings import RerankSettings

CONNECTIONS = 8


class EndpointReranker:
    """One request for `batch_size` passages at a time, each repeated while the endpoint is not available.

    Raises ModelUnavailableError after the retries, ModelRejectedError, ModelOutputError on a passage without a score
    or with two, or a score that is not finite.
    """

    def __init__(self, settings: RerankSettings) -> None:
        self._settings = settings
        self._endpoint = Endpoint(
            settings.base_url, settings.api_key_env, settings.timeout_s, f"reranker {settings.model!r}", CONNECTIONS
        )

    @property
    def fingerprint(self) -> str:
        """The endpoint is left out: replicas move between hosts and ports."""
        return fingerprint({"backend": "endpoint", "model": self._settings.model})

    def calls(self, passages: int) -> int:
        return -(-passages // self._settings.batch_size)

    async def rerank(self, question: str, passages: Sequence[str]) -> np.ndarray:
        parts = [await self._batch(question, batch) for batch in batches(passages, self._settings.batch_size)]
        return np.concatenate(parts) if parts else np.zeros(0, np.float32)

    async def aclose(self) -> None:
        await self._endpoint.aclose()

    async def _batch(self, question: str, passages: Sequence[str]) -> np.ndarray:
        body: dict[str, Any] = {
            "model": self._settings.model,
            "query": question,
            "documents": list(passages),
            "top_n": len(passages),
        }

        async def call() -> dict[str, Any]:
            try:
                return await self._endpoint.post("/rerank", body)
            except RefusedRequest as refusal:
                raise refusal.rejected() from refusal

        return self._read(await with_retries(call, self._settings.retries), len(passages))

    def _read(self, answer: dict[str, Any], count: int) -> np.ndarray:
        where = self._endpoint.where
        try:
            pairs = [(int(item["index"]), float(item["relevance_score"])) for item in answer["results"]]
        except (LookupError, TypeError, ValueError) as error:
            told = str(answer)[:200]
            raise ModelOutputError(f"{where} gave no results[].index and .relevance_score: {told}") from error
        if sorted(index for index, _ in pairs) != list(range(count)):
            indices = sorted(index for index, _ in pairs)
            raise ModelOutputError(f"{where} scored the passages {indices[:40]} of {count}: each must have one score")
        return checked_scores([score for _, score in sorted(pairs)], count, where)
