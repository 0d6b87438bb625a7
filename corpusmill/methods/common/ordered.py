"""Many awaited calls of one document: started in order, several in flight, results in order."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

IN_FLIGHT = 64  # of one step of one document; the pools bound what all documents together ask for


async def ordered_map(
    call: Callable[[ItemT], Awaitable[ResultT]], items: Sequence[ItemT], in_flight: int = IN_FLIGHT
) -> list[ResultT]:
    """`call` of each item, started in the order of `items` and at most `in_flight` at once; results in that order.

    The first exception cancels the calls in flight and is raised once they have ended.
    """
    results: dict[int, ResultT] = {}
    queue = iter(enumerate(items))

    async def work() -> None:
        for at, item in queue:
            results[at] = await call(item)

    workers = [asyncio.create_task(work()) for _ in range(min(in_flight, len(items)))]
    try:
        await asyncio.gather(*workers)
    except BaseException:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        raise
    return [results[at] for at in range(len(items))]
