"""Models of workers that kill their process on a poisonous input, or answer nonsense about it."""

import os
import signal
from dataclasses import dataclass
from typing import Any

from benchmarks.stubs import StubEmbedder, StubModel
from corpusmill.errors import ModelOutputError
from corpusmill.models.contracts import Generation
from corpusmill.models.factory import RunModels, build_models, model_fingerprints
from corpusmill.settings import Settings

POISON = "arsenic"


class PoisonedModel(StubModel):
    """The stub; a request that names the poison ends the process or, with `nonsense`, fails as invalid output does."""

    def __init__(self, fingerprint: str, nonsense: bool) -> None:
        super().__init__(0.0, fingerprint)
        self._bad_answers = nonsense

    async def generate(self, task: Any, inputs: Any, *, affinity: str | None = None) -> Generation[Any]:
        if POISON in inputs.model_dump_json():
            if self._bad_answers:
                raise ModelOutputError(f"task {task.name!r}: nonsense about {POISON}")
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().generate(task, inputs, affinity=affinity)


@dataclass(frozen=True)
class PoisonFactory:
    """A models factory of workers (ray_actors.worker.ModelsFactory)."""

    nonsense: bool = False

    def __call__(self, settings: Settings, **given: Any) -> RunModels:
        model = PoisonedModel(model_fingerprints(settings).roles["extract"], self.nonsense)
        return build_models(settings, **{**given, "embedder": StubEmbedder(settings), "language_model": model})
