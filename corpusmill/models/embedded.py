"""The embedded back-end: a task's own rule in place of a model. Needs no key, no network, no accelerator."""

import asyncio
import time

from corpusmill.errors import ModelOutputError
from corpusmill.hashing import fingerprint
from corpusmill.models.contracts import Generation, InputT, OutputT, Task, Usage
from corpusmill.models.rules.types import RULES_VERSION


class EmbeddedModel:
    """Runs `task.rule`; costs nothing. One call is counted for each generation, and no tokens."""

    @property
    def fingerprint(self) -> str:
        return fingerprint({"backend": "embedded", "rules": RULES_VERSION})

    async def generate(
        self, task: Task[InputT, OutputT], inputs: InputT, *, affinity: str | None = None
    ) -> Generation[OutputT]:
        await asyncio.sleep(0)  # a rule never waits by itself; let other documents in
        started = time.perf_counter()
        value = task.rule(inputs)
        usage = Usage(calls=1, seconds=time.perf_counter() - started)
        if task.check is not None and (wrong := task.check(inputs, value)) is not None:
            raise ModelOutputError(
                f"the embedded rule of task {task.name!r} gave an invalid result: {wrong}", usage=usage
            )
        return Generation(value, usage)

    async def aclose(self) -> None:
        return None
