"""A response is paid for once: validated results by content of the request, and equal calls in flight joined."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pydantic import BaseModel, ValidationError

from corpusmill.errors import ModelError
from corpusmill.hashing import canonical_json, content_id
from corpusmill.models.contracts import Generation, InputT, LanguageModel, OutputT, Task, Usage
from corpusmill.models.wrapping import ModelWrapper

_CACHED = Usage(cached=1)


class ResponseCacheLike(Protocol):
    """Responses by (model fingerprint, key). `aput` returns when the response would survive the process."""

    def get(self, model_fp: str, key: str) -> bytes | None: ...

    async def aput(self, model_fp: str, key: str, value: bytes) -> None: ...

    def get_many(self, model_fp: str, keys: Sequence[str]) -> dict[str, bytes]: ...

    async def aput_many(self, model_fp: str, items: Mapping[str, bytes]) -> None: ...


class _Flight:
    """A call in flight and how many wait for it; the first to take its result also takes its cost."""

    def __init__(self, task: "asyncio.Task[Generation[Any]]") -> None:
        self.task = task
        self.waiting = 0
        self.charged = False


class CachedModel(ModelWrapper):
    """Serves a repeated request from the cache; only results that passed validation enter it.

    The key covers model and sampling (the model's fingerprint), the task (prompt, schema, version) and the inputs.
    """

    def __init__(self, inner: LanguageModel, cache: ResponseCacheLike) -> None:
        super().__init__(inner)
        self._cache = cache
        self._flights: dict[str, _Flight] = {}

    async def generate(
        self, task: Task[InputT, OutputT], inputs: InputT, *, affinity: str | None = None
    ) -> Generation[OutputT]:
        key = response_key(self.fingerprint, task, inputs)
        flight = self._flights.get(key)
        if flight is None:
            if (known := self._read(key, task)) is not None:
                return Generation(known, _CACHED)
            flight = _Flight(asyncio.create_task(self._call(key, task, inputs, affinity)))
            self._flights[key] = flight
        return await self._join(key, flight)

    async def aclose(self) -> None:
        for flight in list(self._flights.values()):
            flight.task.cancel()
        await super().aclose()

    async def _join(self, key: str, flight: _Flight) -> Generation[Any]:
        flight.waiting += 1
        try:
            generation = await asyncio.shield(flight.task)
        except ModelError as error:
            if flight.charged:
                raise type(error)(str(error)) from error  # its cost is told once
            flight.charged = True
            raise
        finally:
            flight.waiting -= 1
            if flight.waiting == 0 and self._flights.get(key) is flight:
                del self._flights[key]
                flight.task.cancel()  # nobody is left to hear the answer; no effect on a finished call
        if flight.charged:
            return Generation(generation.value, _CACHED)
        flight.charged = True
        return generation

    async def _call(
        self, key: str, task: Task[InputT, OutputT], inputs: InputT, affinity: str | None
    ) -> Generation[OutputT]:
        generation = await self._inner.generate(task, inputs, affinity=affinity)
        await self._cache.aput(self.fingerprint, key, _dump(generation.value))
        return generation

    def _read(self, key: str, task: Task[Any, OutputT]) -> OutputT | None:
        data = self._cache.get(self.fingerprint, key)
        if data is None:
            return None
        try:
            return task.output_type.model_validate_json(data)
        except ValidationError:
            return None  # written by an older form of the type: ask again, the new answer replaces it


def response_key(model_fingerprint: str, task: Task[InputT, Any], inputs: InputT) -> str:
    """The cache key of one request."""
    return content_id("response", model_fingerprint, task.fingerprint, canonical_json(inputs))


def _dump(value: BaseModel) -> bytes:
    return json.dumps(value.model_dump(mode="json"), ensure_ascii=True, separators=(",", ":")).encode()
