"""A language model and an embedder that cost nothing but a fixed wait: what is left over is the pipeline's own work."""

import asyncio
import hashlib
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from corpusmill.errors import ModelOutputError
from corpusmill.hashing import fingerprint
from corpusmill.methods.flexstructrag import tasks
from corpusmill.models.budget import BudgetLike
from corpusmill.models.cached import ResponseCacheLike
from corpusmill.models.contracts import Embedder, EmbedKind, Generation, InputT, OutputT, Task, Usage
from corpusmill.models.factory import ClusterPool, RunModels, build_models, embedder_fingerprint, model_fingerprints
from corpusmill.models.metered import Meter
from corpusmill.settings import Settings

_NAME = re.compile(r"\b[A-Z][\w'-]+(?: [A-Z][\w'-]+){0,3}\b")
_SENTENCE = re.compile(r"[^.!?]+[.!?]?")
_NAMES_A_TEXT = 12


class StubModel:
    """Waits `latency_s`, then answers by a regular expression: capitalised names, which documents share as in life.

    With a `log_dir` each process appends the first and last moment of its calls and their number to a file of its own,
    as "first last calls" (seconds since the epoch), at most every 50 ms and when a call ends after a pause.
    """

    def __init__(
        self, latency_s: float, fingerprint: str = "stub", nonsense: bool = False, log_dir: str | None = None
    ) -> None:
        self._latency = latency_s
        self._fingerprint = fingerprint
        self._nonsense = nonsense
        self._log = Path(log_dir, f"{os.getpid()}.log") if log_dir else None
        self._first = 0.0
        self._calls = 0
        self._in_flight = 0
        self._written = 0.0

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    async def generate(
        self, task: Task[InputT, OutputT], inputs: InputT, *, affinity: str | None = None
    ) -> Generation[OutputT]:
        self._first = self._first or time.time()
        self._calls += 1
        self._in_flight += 1
        await asyncio.sleep(self._latency)
        self._in_flight -= 1
        self._note(time.time())
        usage = Usage(calls=1, prompt_tokens=600, completion_tokens=200, seconds=self._latency)
        if self._nonsense:
            raise ModelOutputError(f"task {task.name!r}: the answer is not what was asked for", usage=usage)
        return Generation(_ANSWERS[task.name](inputs), usage)

    async def aclose(self) -> None:
        return None

    def _note(self, now: float) -> None:
        if self._log is not None and (now - self._written > 0.05 or not self._in_flight):
            self._written = now
            with self._log.open("a") as log:
                log.write(f"{self._first} {now} {self._calls}\n")


def read_log(log_dir: str) -> tuple[float, float, int]:
    """First moment, last moment and number of the calls of all processes that logged there."""
    last_lines = [path.read_text().splitlines()[-1].split() for path in Path(log_dir).glob("*.log")]
    return (
        min(float(line[0]) for line in last_lines),
        max(float(line[1]) for line in last_lines),
        sum(int(line[2]) for line in last_lines),
    )


@dataclass(frozen=True)
class StubFactory:
    """A models factory of workers (ray_actors.worker.ModelsFactory): the real middlewares around the stubs."""

    latency_s: float
    nonsense: bool
    log_dir: str | None

    def __call__(
        self,
        settings: Settings,
        *,
        meter: Meter,
        cache: ResponseCacheLike | None,
        cluster_pool: ClusterPool | None,
        embedder: Embedder | None,
        budget: BudgetLike | None,
        calls_in_flight: int | None,
    ) -> RunModels:
        model = StubModel(self.latency_s, model_fingerprints(settings).roles["extract"], self.nonsense, self.log_dir)
        return build_models(
            settings,
            meter=meter,
            cache=cache,
            cluster_pool=cluster_pool,
            embedder=StubEmbedder(settings),
            language_model=model,
            budget=budget,
            calls_in_flight=calls_in_flight,
        )


def stub_models(latency_s: float = 0.0, nonsense: bool = False, log_dir: str | None = None) -> StubFactory:
    """Stubs of that latency. `nonsense`: every call fails as an invalid answer does. `log_dir`: see StubModel."""
    return StubFactory(latency_s, nonsense, log_dir)


class StubEmbedder:
    """Random unit vectors, each a function of its text; no wait."""

    def __init__(self, settings: Settings) -> None:
        self._fingerprint = fingerprint({"stub": embedder_fingerprint(settings)})  # its vectors must not pass for real
        self._dim = settings.embedder.dim or 384

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    @property
    def dim(self) -> int:
        return self._dim

    async def embed(self, texts: Sequence[str], kind: EmbedKind) -> np.ndarray:
        """float32 [len(texts), dim]."""
        out = np.empty((len(texts), self._dim), np.float32)
        for row, text in enumerate(texts):
            seed = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
            out[row] = np.random.Generator(np.random.PCG64(seed)).standard_normal(self._dim, np.float32)
        return out / np.maximum(np.linalg.norm(out, axis=1, keepdims=True), 1e-12)

    async def aclose(self) -> None:
        return None


def _extract(inputs: tasks.ExtractInput) -> tasks.Extraction:
    """One statement for each two neighbouring names of a sentence, twelve names a chunk at most."""
    items, left = [], _NAMES_A_TEXT
    for match in _SENTENCE.finditer(inputs.chunk):
        sentence = match.group().strip()
        names = tuple(dict.fromkeys(_NAME.findall(sentence)))[:left]
        left -= len(names)
        if names:
            items.append(tasks.ExtractedItem(statement=sentence, quote=sentence, entities=names))
    return tasks.Extraction(items=tuple(items))


def _summarise(inputs: tasks.SummariseInput) -> tasks.EntitySummary:
    return tasks.EntitySummary(summary=inputs.statements[0], aliases=())


def _relate(inputs: tasks.RelateInput) -> tasks.Relations:
    others = [name for name in inputs.names if name != inputs.anchor]
    found = [
        tasks.FoundRelation(source=inputs.anchor, target=name, text=f"{inputs.anchor} is related to {name}", support=1)
        for name in others
    ]
    return tasks.Relations(relations=tuple(found))


def _merge(inputs: tasks.MergeSummaryInput) -> tasks.MergedSummary:
    return tasks.MergedSummary(summary=inputs.parts[0])


_ANSWERS: dict[str, Callable[[Any], Any]] = {
    "extract": _extract,
    "summarise_entity": _summarise,
    "relate": _relate,
    "merge_summary": _merge,
}
