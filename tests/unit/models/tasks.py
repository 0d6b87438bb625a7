"""A small task and scripted models for the tests of the middlewares."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from pydantic import BaseModel, ConfigDict

from corpusmill.models.contracts import Generation, Prompt, Task, Usage


class Question(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    text: str


class Item(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    year: int | None = None


class Names(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
    items: tuple[Item, ...]


def make_task(check: Callable[[Question, Names], str | None] | None = None) -> Task[Question, Names]:
    return Task(
        name="names",
        role="extract",
        prompt=Prompt("names", 1, "List the names as JSON.", "Text: $text"),
        input_type=Question,
        output_type=Names,
        render=lambda inputs: {"text": inputs.text},
        rule=lambda inputs: Names(items=(Item(name=inputs.text),)),
        check=check,
        max_output_tokens=64,
    )


class ScriptedModel:
    """Answers after `delay`; `script(n)` may raise for the n-th call or give its usage."""

    fingerprint = "scripted"

    def __init__(self, script: Callable[[int], Usage] | None = None, delay: float = 0.0) -> None:
        self.script = script
        self.delay = delay
        self.calls = 0
        self.in_flight = 0
        self.most_in_flight = 0
        self.closed = False

    async def generate(self, task, inputs, *, affinity=None):  # type: ignore[no-untyped-def]
        number, self.calls = self.calls, self.calls + 1
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(self.delay)
            usage = self.script(number) if self.script else Usage(calls=1, prompt_tokens=10, completion_tokens=5)
            return Generation(Names(items=(Item(name=inputs.text),)), usage)
        finally:
            self.in_flight -= 1

    async def aclose(self) -> None:
        self.closed = True


class DictCache:
    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], bytes] = {}

    def get(self, model_fp: str, key: str) -> bytes | None:
        return self.rows.get((model_fp, key))

    async def aput(self, model_fp: str, key: str, value: bytes) -> None:
        self.rows[model_fp, key] = value

    def get_many(self, model_fp: str, keys: Sequence[str]) -> dict[str, bytes]:
        return {key: self.rows[model_fp, key] for key in keys if (model_fp, key) in self.rows}

    async def aput_many(self, model_fp: str, items: Mapping[str, bytes]) -> None:
        self.rows |= {(model_fp, key): value for key, value in items.items()}
