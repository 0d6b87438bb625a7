"""Replicas for array functions that would hold up a document builder's event loop."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import ray

from corpusmill.settings import Settings
from ray_actors.cluster import cpu_share, kept_actors
from ray_actors.replicas import Replicas

SMALL_BYTES = 64 * 1024  # below, the hop to another process costs more than the work


class ClusteringReplica:
    """The actor's class."""

    def run(self, call: Callable[..., np.ndarray], args: tuple[object, ...]) -> np.ndarray:
        return call(*args)


def clustering_replicas(settings: Settings) -> list[Any]:
    """The replicas, started at the first call in a session."""
    count = settings.ray.clustering_replicas

    def make() -> list[Any]:
        actor = ray.remote(ClusteringReplica).options(
            num_cpus=cpu_share(count + settings.ray.builders), max_restarts=-1, max_task_retries=-1
        )
        return [actor.remote() for _ in range(count)]

    return kept_actors(f"clustering-{count}", make)


class PooledClustering:
    """Client of one event loop (a models.factory.ClusterPool): large arrays go to a replica, small ones stay here."""

    def __init__(self, handles: list[Any]) -> None:
        self._replicas = Replicas(handles)

    async def __call__(self, call: Callable[..., np.ndarray], *args: object) -> np.ndarray:
        if _array_bytes(args) <= SMALL_BYTES:
            return await asyncio.to_thread(call, *args)
        result: np.ndarray = await self._replicas.call("run", call, args)
        return result


def _array_bytes(args: tuple[object, ...]) -> int:
    return sum(arg.nbytes for arg in args if isinstance(arg, np.ndarray))
