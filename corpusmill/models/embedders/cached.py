"""A text is embedded once: vectors by embedder, kind and text, in the response cache, and equal texts in flight joined.

A value is the raw little-endian float32 of the vector. Not for embedders that are cheaper than a look-up (hash).
"""

import asyncio
from collections.abc import Sequence

import numpy as np

from corpusmill.hashing import content_id
from corpusmill.models.cached import ResponseCacheLike
from corpusmill.models.contracts import Embedder, EmbedKind

_FLOAT = np.dtype("<f4")
_Flight = asyncio.Future[np.ndarray]


class CachedEmbedder:
    """Satisfies models.contracts.Embedder; belongs to one event loop. `inner` gets the texts with no vector yet."""

    def __init__(self, inner: Embedder, cache: ResponseCacheLike) -> None:
        self._inner = inner
        self._cache = cache
        self._flights: dict[str, _Flight] = {}

    @property
    def fingerprint(self) -> str:
        return self._inner.fingerprint

    @property
    def dim(self) -> int:
        return self._inner.dim

    async def embed(self, texts: Sequence[str], kind: EmbedKind) -> np.ndarray:
        """float32 [len(texts), dim]; new vectors are on disk when it returns."""
        keys = [vector_key(text, kind) for text in texts]
        text_of = dict(zip(keys, texts, strict=True))
        known: dict[str, np.ndarray] = {}
        while open_keys := [key for key in text_of if key not in known]:
            joined = {key: self._flights[key] for key in open_keys if key in self._flights}
            mine = [key for key in open_keys if key not in joined]
            if mine:
                known |= await self._lead({key: text_of[key] for key in mine}, kind)
            if joined:
                await asyncio.wait(joined.values())
                known |= {k: f.result() for k, f in joined.items() if not f.cancelled() and f.exception() is None}
        out = np.empty((len(texts), self.dim), np.float32)
        for row, key in enumerate(keys):
            out[row] = known[key]
        return out

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _lead(self, texts: dict[str, str], kind: EmbedKind) -> dict[str, np.ndarray]:
        """Vectors by key. Whoever wants one of them meanwhile waits; if this fails, each tries for itself."""
        flights = {key: asyncio.get_running_loop().create_future() for key in texts}
        self._flights |= flights
        try:
            vectors = await self._cached(list(texts))
            missing = [key for key in texts if key not in vectors]
            if missing:
                vectors |= await self._embed({key: texts[key] for key in missing}, kind)
            for key, flight in flights.items():
                flight.set_result(vectors[key])
            return vectors
        finally:
            for key, flight in flights.items():
                del self._flights[key]
                flight.cancel()  # no effect on one that has its vector

    async def _cached(self, keys: Sequence[str]) -> dict[str, np.ndarray]:
        """What the cache has; a value of another length counts as missing."""
        found = await asyncio.to_thread(self._cache.get_many, self.fingerprint, keys)
        size = self.dim * _FLOAT.itemsize
        return {key: np.frombuffer(value, _FLOAT) for key, value in found.items() if len(value) == size}

    async def _embed(self, texts: dict[str, str], kind: EmbedKind) -> dict[str, np.ndarray]:
        made = np.asarray(await self._inner.embed(list(texts.values()), kind), dtype=_FLOAT)
        if made.shape != (len(texts), self.dim):
            raise ValueError(
                f"embedder {self.fingerprint} gave vectors of shape {made.shape} for {len(texts)} texts, "
                f"expected ({len(texts)}, {self.dim})"
            )
        vectors = dict(zip(texts, made, strict=True))
        await self._cache.aput_many(self.fingerprint, {key: vector.tobytes() for key, vector in vectors.items()})
        return vectors


def vector_key(text: str, kind: EmbedKind) -> str:
    """The cache key of one vector, beside the embedder's fingerprint."""
    return content_id("vector", kind, text)
