"""Spreads calls over the replicas of an actor: the least busy one first, so many at a time, the rest waits."""

import asyncio
from collections.abc import Sequence
from typing import Any

from ray.exceptions import RayActorError

HOST_RETRIES = 4
HOST_WAIT_S = 6.0  # together somewhat more than it takes to know that a host is gone and to load a replica elsewhere


class Replicas:
    """Client of one event loop. `per_replica` calls may be on a replica at once: one in work, the next already there.

    Calls must be idempotent: Ray restarts a lost replica and sends again what it had, a bounded number of times. Where
    its host is lost those are soon used up, so the call waits and goes to a replica again, a bounded number of times.
    """

    def __init__(self, handles: Sequence[Any], per_replica: int = 2) -> None:
        if not handles:
            raise ValueError("a pool needs at least one replica")
        self._handles = list(handles)
        self._busy = [0] * len(handles)
        self._slots = asyncio.Semaphore(per_replica * len(handles))

    async def call(self, method: str, *args: object) -> Any:
        """The result of `method` on the least busy replica."""
        for _ in range(HOST_RETRIES):
            try:
                return await self._once(method, *args)
            except RayActorError:
                await asyncio.sleep(HOST_WAIT_S)
        return await self._once(method, *args)

    async def _once(self, method: str, *args: object) -> Any:
        async with self._slots:
            place = min(range(len(self._busy)), key=self._busy.__getitem__)
            self._busy[place] += 1
            try:
                return await getattr(self._handles[place], method).remote(*args)
            finally:
                self._busy[place] -= 1

    @property
    def waiting(self) -> bool:
        """Whether a further call would have to wait."""
        return self._slots.locked()
