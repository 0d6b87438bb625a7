"""Replicas for array functions, whose libraries and work would burden a document builder's event loop."""

import asyncio
import importlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import ray

from corpusmill.settings import Settings
from ray_actors.cluster import cpu_share, kept_actors
from ray_actors.failures import MAX_RETRIES
from ray_actors.replicas import Replicas

SMALL_BYTES = 64 * 1024  # arguments of a call that shares a message with others
COLLECT_S = 0.005  # how long a small call waits for company
_MOST_CALLS = 64  # in one message
_THREADS = 3  # of one replica


Call = tuple[Callable[..., np.ndarray], tuple[object, ...]]


class ClusteringReplica:
    """The actor's class. Runs in a few threads, so that one long call does not hold up the short ones."""

    def __init__(self) -> None:
        self._loading = threading.Thread(target=_load_libraries, daemon=True)
        self._loading.start()

    def run(self, calls: Sequence[Call]) -> list[np.ndarray | Exception]:
        """The result of each call, or what it raised.

        No call runs while the libraries load: of two threads that import one package at once, one may see it half made.
        """
        self._loading.join()
        return [_result(call, args) for call, args in calls]


def _load_libraries() -> None:
    """Takes seconds, for which the first calls, and soon all documents in flight, would wait."""
    importlib.import_module("hdbscan")


def _result(call: Callable[..., np.ndarray], args: tuple[object, ...]) -> np.ndarray | Exception:
    try:
        return call(*args)
    except Exception as error:  # noqa: BLE001 - handed to the caller of this one, who raises it
        return error


def clustering_replicas(settings: Settings) -> list[Any]:
    """The replicas, started at the first call in a session."""
    count = settings.ray.clustering_replicas

    def make() -> list[Any]:
        actor = ray.remote(ClusteringReplica).options(
            num_cpus=cpu_share(count + settings.ray.builders),
            max_restarts=-1,
            max_task_retries=MAX_RETRIES,
            max_concurrency=_THREADS,
        )
        return [actor.remote() for _ in range(count)]

    return kept_actors(f"clustering-{count}", make)


class PooledClustering:
    """Client of one event loop (a models.factory.ClusterPool). Small calls of many documents share a message."""

    def __init__(self, handles: Sequence[Any]) -> None:
        self._replicas = Replicas(handles, per_replica=_THREADS)
        self._small: list[tuple[Call, asyncio.Future[np.ndarray]]] = []
        self._pump: asyncio.Task[None] | None = None
        self._sent: set[asyncio.Task[None]] = set()

    async def __call__(self, call: Callable[..., np.ndarray], *args: object) -> np.ndarray:
        done: asyncio.Future[np.ndarray] = asyncio.get_running_loop().create_future()
        if _array_bytes(args) > SMALL_BYTES:
            await self._send([((call, args), done)])
        else:
            self._small.append(((call, args), done))
            if self._pump is None:
                self._pump = asyncio.create_task(self._send_small())
        return await done

    async def _send_small(self) -> None:
        """Send what has gathered in a few milliseconds, as long as there is something."""
        while self._small:
            await asyncio.sleep(COLLECT_S)
            batch, self._small = self._small[:_MOST_CALLS], self._small[_MOST_CALLS:]
            task = asyncio.create_task(self._send(batch))
            self._sent.add(task)
            task.add_done_callback(self._sent.discard)
        self._pump = None

    async def _send(self, batch: Sequence[tuple[Call, "asyncio.Future[np.ndarray]"]]) -> None:
        try:
            results = await self._replicas.call("run", [call for call, _ in batch])
        except Exception as error:  # noqa: BLE001 - handed to every caller of the batch, who raises it
            results = [error] * len(batch)
        for (_, done), result in zip(batch, results, strict=True):
            if done.done():
                continue
            if isinstance(result, Exception):
                done.set_exception(result)
            else:
                done.set_result(result)


def _array_bytes(args: tuple[object, ...]) -> int:
    return sum(arg.nbytes for arg in args if isinstance(arg, np.ndarray))
