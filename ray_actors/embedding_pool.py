"""Embedding replicas, and the client that joins the requests of many documents into batches for them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import ray

from corpusmill.hashing import fingerprint
from corpusmill.models.contracts import EmbedKind
from corpusmill.models.embedders import build_embedder, embedder_fingerprint, known_dim
from corpusmill.settings import EmbedderSettings, Settings
from ray_actors.cluster import cpu_share, kept_actors
from ray_actors.failures import MAX_RETRIES
from ray_actors.replicas import Replicas

HOSTED = ("minilm", "torch")  # back-ends that compute; an endpoint's client gains nothing from another process
COLLECT_S = 0.004  # how long a small request waits for company


class EmbeddingReplica:
    """The actor's class: one loaded embedder."""

    def __init__(self, settings: EmbedderSettings, threads: int) -> None:
        self._embedder = build_embedder(settings, threads)

    async def embed(self, texts: list[str], kind: EmbedKind) -> np.ndarray:
        return await self._embedder.embed(texts, kind)


def embedding_replicas(settings: Settings) -> list[Any]:
    """The replicas for the settings' embedder, started at the first call in a session; none where it is not hosted."""
    if settings.embedder.backend not in HOSTED:
        return []
    count = settings.ray.embedding_replicas

    def make() -> list[Any]:
        actor = ray.remote(EmbeddingReplica).options(
            num_cpus=cpu_share(count + settings.ray.builders),
            num_gpus=settings.ray.embedding_gpus if settings.embedder.backend == "torch" else 0,
            max_restarts=-1,
            max_task_retries=MAX_RETRIES,
            max_concurrency=4,
        )
        nodes = max(1, sum(node["Alive"] and node["Resources"].get("CPU", 0) > 0 for node in ray.nodes()))
        cpus = int(ray.cluster_resources().get("CPU", 1))
        threads = max(1, min(cpus // count, cpus // nodes))  # a replica has its own node's cores at most
        return [actor.remote(settings.embedder, threads) for _ in range(count)]

    return kept_actors(f"embedding-{fingerprint(settings.embedder)}-{count}", make)


@dataclass
class _Request:
    texts: Sequence[str]
    vectors: np.ndarray
    missing: int
    done: "asyncio.Future[None]"


class PooledEmbedder:
    """Embeds through replicas (satisfies models.contracts.Embedder). Belongs to one event loop.

    Requests are cut and joined into batches of `batch_size` texts. A batch leaves when it is full, or when it has
    waited a few milliseconds and a replica is free; so batches grow by themselves while the replicas are busy.
    """

    def __init__(self, handles: Sequence[Any], settings: EmbedderSettings) -> None:
        self._replicas = Replicas(handles)
        self._size = settings.batch_size
        self._fingerprint = embedder_fingerprint(settings)
        self._dim = known_dim(settings)
        self._queues: dict[EmbedKind, list[tuple[_Request, int]]] = {}
        self._pumps: dict[EmbedKind, asyncio.Task[None]] = {}
        self._sent: set[asyncio.Task[None]] = set()

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    @property
    def dim(self) -> int:
        return self._dim

    async def embed(self, texts: Sequence[str], kind: EmbedKind) -> np.ndarray:
        """float32 [len(texts), dim]."""
        vectors = np.zeros((len(texts), self._dim), np.float32)
        if not texts:
            return vectors
        request = _Request(texts, vectors, len(texts), asyncio.get_running_loop().create_future())
        self._queues.setdefault(kind, []).extend((request, i) for i in range(len(texts)))
        if kind not in self._pumps:
            self._pumps[kind] = asyncio.create_task(self._pump(kind))
        await request.done
        return vectors

    async def aclose(self) -> None:
        for task in (*self._pumps.values(), *self._sent):
            task.cancel()

    async def _pump(self, kind: EmbedKind) -> None:
        """Send batches while there are texts of this kind."""
        queue = self._queues[kind]
        while queue:
            if len(queue) < self._size:
                await asyncio.sleep(COLLECT_S)
            while self._replicas.waiting and self._sent:
                await asyncio.wait(self._sent, return_when=asyncio.FIRST_COMPLETED)
            batch, queue[:] = queue[: self._size], queue[self._size :]
            task = asyncio.create_task(self._send(batch, kind))
            self._sent.add(task)
            task.add_done_callback(self._sent.discard)
            await asyncio.sleep(0)
        del self._pumps[kind]

    async def _send(self, batch: list[tuple[_Request, int]], kind: EmbedKind) -> None:
        try:
            vectors = await self._replicas.call("embed", [request.texts[i] for request, i in batch], kind)
        except Exception as error:  # noqa: BLE001 - handed to every request of the batch, which raises it
            for request, _ in batch:
                if not request.done.done():
                    request.done.set_exception(error)
            return
        for (request, i), vector in zip(batch, vectors, strict=True):
            request.vectors[i] = vector
            request.missing -= 1
            if request.missing == 0 and not request.done.done():
                request.done.set_result(None)
