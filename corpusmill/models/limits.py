"""Limits on how fast and how many calls go out: a gate on calls in flight, and requests and tokens a minute."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable

from corpusmill.errors import ModelError
from corpusmill.models.contracts import Generation, InputT, LanguageModel, OutputT, Task, Usage
from corpusmill.models.tokens import estimate_tokens
from corpusmill.models.wrapping import ModelWrapper

WINDOW_S = 60.0


class Gate:
    """How many calls of one process may be in flight, all roles together."""

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"at least one call must be let through, got {size}")
        self.size = size
        self.slots = asyncio.Semaphore(size)


class GatedModel(ModelWrapper):
    """Holds a call back until the gate has a free slot. `owned`: closing it closes the inner one."""

    def __init__(self, inner: LanguageModel, gate: Gate, *, owned: bool = True) -> None:
        super().__init__(inner, owned=owned)
        self._gate = gate

    async def generate(
        self, task: Task[InputT, OutputT], inputs: InputT, *, affinity: str | None = None
    ) -> Generation[OutputT]:
        async with self._gate.slots:
            return await self._inner.generate(task, inputs, affinity=affinity)


class MinuteWindow:
    """At most `limit` units in any 60 seconds, first come first served. One amount above the limit waits for an empty
    window and then passes alone."""

    def __init__(
        self,
        limit: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._limit = limit
        self._clock = clock
        self._sleep = sleep
        self._entries: deque[list[float]] = deque()  # [time, amount]
        self._used = 0.0
        self._turn = asyncio.Lock()

    async def take(self, amount: float) -> list[float]:
        """Wait until `amount` fits; returns the entry, which `correct` changes to what was really used."""
        async with self._turn:
            while True:
                now = self._clock()
                while self._entries and self._entries[0][0] <= now - WINDOW_S:
                    self._used -= self._entries.popleft()[1]
                if not self._entries:
                    self._used = 0.0
                if not self._entries or self._used + amount <= self._limit:
                    entry = [now, amount]
                    self._entries.append(entry)
                    self._used += amount
                    return entry
                await self._sleep(max(self._entries[0][0] + WINDOW_S - now, 0.001))

    def correct(self, entry: list[float], amount: float) -> None:
        """Replace an estimate; an entry that has left the window no longer counts."""
        if any(entry is kept for kept in self._entries):
            self._used += amount - entry[1]
        entry[1] = amount


class RateLimitedModel(ModelWrapper):
    """Keeps to an endpoint's requests and tokens a minute. A repair counts as a further request once it is known."""

    def __init__(
        self,
        inner: LanguageModel,
        requests_per_minute: float | None,
        tokens_per_minute: float | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        super().__init__(inner)
        self._requests = MinuteWindow(requests_per_minute, clock, sleep) if requests_per_minute else None
        self._tokens = MinuteWindow(tokens_per_minute, clock, sleep) if tokens_per_minute else None

    async def generate(
        self, task: Task[InputT, OutputT], inputs: InputT, *, affinity: str | None = None
    ) -> Generation[OutputT]:
        request = await self._requests.take(1) if self._requests else None
        tokens = await self._tokens.take(_estimate(task, inputs)) if self._tokens else None
        try:
            generation = await self._inner.generate(task, inputs, affinity=affinity)
        except ModelError as error:
            self._settle(request, tokens, error.usage)
            raise
        self._settle(request, tokens, generation.usage)
        return generation

    def _settle(self, request: list[float] | None, tokens: list[float] | None, usage: Usage | None) -> None:
        if usage is None or usage.calls == 0:
            return  # what the endpoint counted is not known: the estimate stands
        if self._requests and request is not None:
            self._requests.correct(request, usage.calls)
        if self._tokens and tokens is not None:
            self._tokens.correct(tokens, usage.prompt_tokens + usage.completion_tokens)


def _estimate(task: Task[InputT, OutputT], inputs: InputT) -> int:
    prompt = estimate_tokens(task.prompt.system) + estimate_tokens(task.prompt.user)
    return prompt + sum(estimate_tokens(value) for value in task.render(inputs).values()) + task.max_output_tokens // 4
