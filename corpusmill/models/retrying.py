"""Retries what may pass: 429, 5xx, time-outs and cut connections, with jitter and the endpoint's own Retry-After."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, stop_after_attempt
from tenacity.wait import wait_random_exponential

from corpusmill.errors import ModelUnavailableError
from corpusmill.models.contracts import Generation, InputT, LanguageModel, OutputT, Task, Usage
from corpusmill.models.wrapping import ModelWrapper

MAX_WAIT_S = 60.0
MAX_RETRY_AFTER_S = 300.0
T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]


async def with_retries(call: Callable[[], Awaitable[T]], retries: int, sleep: Sleep = asyncio.sleep) -> T:
    """`call()`, repeated after ModelUnavailableError up to `retries` times; the last error says how often it was tried.

    The wait doubles from one second up to a minute, drawn at random below that, and is never shorter than Retry-After
    (which is obeyed up to five minutes).
    """
    backoff = wait_random_exponential(multiplier=1.0, max=MAX_WAIT_S)

    def wait(state: RetryCallState) -> float:
        error = state.outcome.exception() if state.outcome else None
        asked = error.retry_after if isinstance(error, ModelUnavailableError) else None
        return max(backoff(state), min(asked or 0.0, MAX_RETRY_AFTER_S))

    attempts = AsyncRetrying(
        stop=stop_after_attempt(retries + 1),
        wait=wait,
        retry=retry_if_exception_type(ModelUnavailableError),
        sleep=sleep,
        reraise=True,
    )
    try:
        return await attempts(call)
    except ModelUnavailableError as error:
        if retries == 0:
            raise
        raise ModelUnavailableError(
            f"{error} (tried {retries + 1} times)", usage=error.usage, retry_after=error.retry_after
        ) from error


class RetryingModel(ModelWrapper):
    """Repeats a generation whose endpoint was not available; the usage of failed attempts is added to the result."""

    def __init__(self, inner: LanguageModel, retries: int, sleep: Sleep = asyncio.sleep) -> None:
        super().__init__(inner)
        self._retries = retries
        self._sleep = sleep

    async def generate(
        self, task: Task[InputT, OutputT], inputs: InputT, *, affinity: str | None = None
    ) -> Generation[OutputT]:
        lost = Usage()

        async def attempt() -> Generation[OutputT]:
            nonlocal lost
            try:
                return await self._inner.generate(task, inputs, affinity=affinity)
            except ModelUnavailableError as error:
                lost += error.usage or Usage()
                error.usage = lost
                raise

        generation = await with_retries(attempt, self._retries, self._sleep)
        return Generation(generation.value, lost + generation.usage)
