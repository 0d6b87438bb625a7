"""The embedding and clustering pools on a real local Ray: same results as in process, and survival of a kill."""

import asyncio
import os
import signal
import time

import numpy as np
import pytest
import ray

from corpusmill.errors import BudgetReachedError
from corpusmill.models.contracts import Usage
from corpusmill.models.embedders import build_embedder
from corpusmill.models.metered import MeterSnapshot
from corpusmill.settings import EmbedderSettings, RaySettings, RunSettings, Settings
from corpusmill.store.manifest import Costs
from ray_actors.clustering_pool import SMALL_BYTES, ClusteringReplica, PooledClustering
from ray_actors.embedding_pool import EmbeddingReplica, PooledEmbedder, embedding_replicas
from ray_actors.ledger import LedgerClient, start_ledger
from tests.processes import children_named

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("local_ray")]

HASH = EmbedderSettings(backend="hash", batch_size=8)


def replica(kind: type, *args: object) -> object:
    return ray.remote(kind).options(num_cpus=0, max_restarts=-1, max_task_retries=-1, max_concurrency=2).remote(*args)


def workers() -> set[int]:
    return children_named("Replica")


def test_requests_of_many_documents_are_batched_and_come_back_in_place() -> None:
    handles = [replica(EmbeddingReplica, HASH, 1), replica(EmbeddingReplica, HASH, 1)]
    requests = [[f"text {i} of request {r}" for i in range(r % 12)] for r in range(40)]

    async def all_of(embedder: object) -> list[np.ndarray]:
        return list(await asyncio.gather(*(embedder.embed(texts, "passage") for texts in requests)))  # type: ignore[attr-defined]

    pooled = asyncio.run(all_of(PooledEmbedder(handles, HASH)))
    direct = asyncio.run(all_of(build_embedder(HASH)))
    for a, b in zip(pooled, direct, strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_endpoint_is_not_put_behind_a_pool() -> None:
    assert embedding_replicas(Settings(embedder=HASH)) == []


def test_a_killed_replica_is_restarted_and_its_work_is_done_again() -> None:
    before = workers()
    handle = replica(ClusteringReplica)

    async def go() -> np.ndarray:
        pool = PooledClustering([handle])
        large = np.zeros(SMALL_BYTES, np.float64)
        first = await pool(np.cumsum, large + 1)
        (pid,) = workers() - before
        slow = asyncio.create_task(pool(slow_sum, large + 1))
        await asyncio.sleep(0.3)
        os.kill(pid, signal.SIGKILL)
        assert float(first[-1]) == SMALL_BYTES
        return await slow

    assert float(asyncio.run(go())[0]) == SMALL_BYTES


def slow_sum(values: np.ndarray) -> np.ndarray:
    time.sleep(1)
    return np.array([values.sum()])


def test_the_budget_is_one_for_all_workers_and_counts_what_was_spent_before() -> None:
    settings = Settings(ray=RaySettings(), run=RunSettings(max_calls=10))
    ledger = start_ledger(settings, Costs(calls=2))

    async def spend(client: LedgerClient, times: int) -> int:
        made = 0
        for _ in range(times):
            try:
                reservation = await client.reserve(0.0, 2)
            except BudgetReachedError:
                return made
            await client.settle(reservation, 0.0, 1)
            made += 1
        return made

    async def go() -> list[int]:
        return list(await asyncio.gather(*(spend(LedgerClient(ledger), 20) for _ in range(3))))

    assert sum(asyncio.run(go())) == 7  # 2 + 7 spent: the next call may need two, and one is left
    ray.kill(ledger)


def test_counts_of_a_repeated_batch_replace_those_of_its_lost_attempt() -> None:
    ledger = start_ledger(Settings(), Costs())

    async def go() -> tuple[int, Usage]:
        lost, again = LedgerClient(ledger), LedgerClient(ledger)
        await lost.report(MeterSnapshot({"extract": Usage(calls=5)}), {"a": 40})
        await again.report(MeterSnapshot({"extract": Usage(calls=3)}), {"a": 10, "b": 1})
        totals = await ledger.totals.remote()
        return totals.done, totals.meter.total

    done, usage = asyncio.run(go())
    assert (done, usage.calls) == (11, 8)
    ray.kill(ledger)
