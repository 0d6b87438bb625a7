"""What all workers of a stage share, in one small actor: the budget, the counts behind the progress line, the stop."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from uuid import uuid4

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from corpusmill.errors import BudgetReachedError
from corpusmill.models.budget import Budget, Reservation
from corpusmill.models.contracts import Usage
from corpusmill.models.metered import MeterSnapshot
from corpusmill.settings import Settings
from corpusmill.store.manifest import Costs

SILENT_S = 30.0  # a worker that has not reported for so long is gone; what it had reserved counts as spent


@dataclass(frozen=True)
class Totals:
    """Units done (of each batch as its last attempt reports them) and usage of all workers, lost ones included."""

    done: int = 0
    meter: MeterSnapshot = field(default_factory=MeterSnapshot)


class Ledger:
    """The actor's class. Workers report whole counts, so that a repeated report changes nothing."""

    def __init__(self, max_cost: float | None, max_calls: int | None, spent: Usage) -> None:
        self._budget = Budget(max_cost=max_cost, max_calls=max_calls)
        self._budget.cost, self._budget.calls = spent.cost, spent.calls
        self._places: dict[str, int] = {}
        self._meters: dict[str, MeterSnapshot] = {}
        self._done: dict[str, int] = {}
        self._seen: dict[str, float] = {}
        self._open: dict[str, dict[int, Reservation]] = {}
        self._numbers = count()
        self._starts: dict[str, int] = {}
        self._stop: str | None = None

    async def place(self, actor: str) -> int:
        """The number of an actor, from 0 by arrival; a restarted actor keeps its own."""
        return self._places.setdefault(actor, len(self._places))

    async def begin(self, items: Sequence[str]) -> list[int]:
        """Work items that a worker starts, for the first time or again; which start of each it is, from 1."""
        for item in items:
            self._starts[item] = self._starts.get(item, 0) + 1
        return [self._starts[item] for item in items]

    async def end(self, items: Sequence[str]) -> None:
        for item in items:
            self._starts.pop(item, None)

    async def stop(self, reason: str) -> None:
        """Tell every worker with its next report."""
        self._stop = self._stop or reason

    async def report(self, worker: str, meter: MeterSnapshot, done: dict[str, int]) -> str | None:
        """`done`: units done by batch; a lost batch starts again and overwrites its count. Why to stop, or None."""
        self._seen[worker] = time.monotonic()
        self._meters[worker] = meter
        self._done.update(done)
        await self._settle_the_lost()
        return self._stop

    async def totals(self) -> Totals:
        await self._settle_the_lost()
        return Totals(sum(self._done.values()), sum(self._meters.values(), MeterSnapshot()))

    async def reserve(self, worker: str, cost: float, calls: int) -> tuple[int, Reservation] | str:
        """A numbered reservation, or why there is none (a message crosses processes as it is)."""
        self._seen[worker] = time.monotonic()
        try:
            reservation = await self._budget.reserve(cost, calls)
        except BudgetReachedError as error:
            return str(error)
        number = next(self._numbers)
        self._open.setdefault(worker, {})[number] = reservation
        return number, reservation

    async def settle(self, worker: str, number: int, cost: float, calls: int) -> None:
        reservation = self._open.get(worker, {}).pop(number, None)
        if reservation is not None:
            await self._budget.settle(reservation, cost, calls)

    async def _settle_the_lost(self) -> None:
        now = time.monotonic()
        for worker in [name for name, held in self._open.items() if held and now - self._seen[name] > SILENT_S]:
            for number, reservation in list(self._open[worker].items()):
                await self.settle(worker, number, reservation.cost, reservation.calls)


class LedgerClient:
    """A worker's side (satisfies models.budget.BudgetLike)."""

    def __init__(self, handle: Any) -> None:
        self.worker = uuid4().hex
        self._handle = handle
        self._numbers: dict[int, int] = {}

    async def reserve(self, cost: float, calls: int) -> Reservation:
        answer = await self._handle.reserve.remote(self.worker, cost, calls)
        if isinstance(answer, str):
            raise BudgetReachedError(answer)
        number, reservation = answer
        self._numbers[id(reservation)] = number
        return reservation

    async def settle(self, reservation: Reservation, cost: float, calls: int) -> None:
        number = self._numbers.pop(id(reservation))
        await self._handle.settle.remote(self.worker, number, cost, calls)

    async def begin(self, items: Sequence[str]) -> list[int]:
        starts: list[int] = await self._handle.begin.remote(items)
        return starts

    async def end(self, items: Sequence[str]) -> None:
        await self._handle.end.remote(items)

    async def report(self, meter: MeterSnapshot, done: dict[str, int]) -> str | None:
        reason: str | None = await self._handle.report.remote(self.worker, meter, done)
        return reason


def start_ledger(settings: Settings, spent: Costs) -> Any:
    """A ledger for one stage of a run that has `spent` so much; `run.budget` and `run.max_calls` are its limits.

    It ends by `ray.kill`, or with the driver: it is on the driver's own node, so that no other node's loss is its end.
    """
    so_far = Usage(calls=spent.calls, cost=spent.cost)
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    actor = ray.remote(Ledger).options(num_cpus=0, max_concurrency=1000, scheduling_strategy=here)
    return actor.remote(settings.run.budget, settings.run.max_calls, so_far)
