"""A language model and an embedder that cost nothing but a fixed wait: what is left over is the pipeline's own work."""

import asyncio
import hashlib
import re
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from corpusmill.methods.flexstructrag import tasks
from corpusmill.models.budget import BudgetLike
from corpusmill.models.cached import ResponseCacheLike
from corpusmill.models.contracts import EmbedKind, Generation, InputT, OutputT, Task, Usage
from corpusmill.models.factory import ClusterPool, RunModels, build_models, embedder_fingerprint
from corpusmill.models.metered import Meter
from corpusmill.settings import Settings

_NAME = re.compile(r"\b[A-Z][\w'-]+(?: [A-Z][\w'-]+){0,3}\b")
_SENTENCE = re.compile(r"[^.!?]+[.!?]?")
_NAMES_A_TEXT = 12


class StubModel:
    """Waits `latency_s`, then answers by a regular expression: capitalised names, which documents share as in real text.

    `log`, if given, gets a line "start end" (seconds since the epoch) for each call.
    """

    def __init__(self, latency_s: float, fingerprint: str = "stub") -> None:
        self._latency = latency_s
        self._fingerprint = fingerprint
        self._first = 0.0
        self._last = 0.0
        self._calls = 0

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    def times(self) -> tuple[float, float, int]:
        """Start of the first call, end of the last (seconds since the epoch), and their number."""
        return self._first, self._last, self._calls

    async def generate(
        self, task: Task[InputT, OutputT], inputs: InputT, *, affinity: str | None = None
    ) -> Generation[OutputT]:
        self._first = self._first or time.time()
        self._calls += 1
        if self._latency:
            await asyncio.sleep(self._latency)
        else:
            await asyncio.sleep(0)
        value = _ANSWERS[task.name](inputs)
        self._last = time.time()
        return Generation(value, Usage(calls=1, prompt_tokens=600, completion_tokens=200, seconds=self._latency))

    async def aclose(self) -> None:
        return None


class StubEmbedder:
    """Random unit vectors, each a function of its text; no wait."""

    def __init__(self, settings: Settings) -> None:
        self._fingerprint = embedder_fingerprint(settings)
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
