import asyncio

import pytest

from corpusmill.methods.common.ordered import ordered_map


def test_results_keep_the_order_and_starts_too() -> None:
    started: list[int] = []

    async def call(n: int) -> int:
        started.append(n)
        await asyncio.sleep(0.001 * (7 - n % 7))
        return n * n

    assert asyncio.run(ordered_map(call, range(40), in_flight=8)) == [n * n for n in range(40)]
    assert started == list(range(40))


def test_at_most_so_many_in_flight() -> None:
    running = most = 0

    async def call(n: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1

    asyncio.run(ordered_map(call, range(30), in_flight=5))
    assert most == 5


def test_the_first_error_is_raised_and_the_rest_is_cancelled() -> None:
    ended: list[int] = []

    async def call(n: int) -> None:
        if n == 3:
            raise RuntimeError("three")
        try:
            await asyncio.sleep(5)
        finally:
            ended.append(n)

    with pytest.raises(RuntimeError, match="three"):
        asyncio.run(ordered_map(call, range(10), in_flight=6))
    assert ended and max(ended) < 6


def test_nothing_to_do() -> None:
    async def call(n: int) -> int:
        raise AssertionError

    assert asyncio.run(ordered_map(call, [])) == []
