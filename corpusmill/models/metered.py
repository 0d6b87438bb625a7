"""Counts what models are asked and what it costs: for progress, the manifest, the report and Prometheus."""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from corpusmill.errors import CorpusmillError
from corpusmill.models.contracts import (
    Embedder,
    EmbedKind,
    Generation,
    InputT,
    LanguageModel,
    OutputT,
    Role,
    Task,
    Usage,
)
from corpusmill.models.wrapping import ModelWrapper

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

LATENCY_BUCKETS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)  # the last bucket is open


@dataclass(frozen=True)
class MeterSnapshot:
    """Usage by role, failures by error type, generations by latency bucket, texts embedded. Snapshots add up."""

    usage: Mapping[str, Usage] = field(default_factory=dict)
    failures: Mapping[str, int] = field(default_factory=dict)
    latencies: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    embedded_texts: int = 0
    embedding_seconds: float = 0.0

    @property
    def total(self) -> Usage:
        return sum(self.usage.values(), Usage())

    def __add__(self, other: "MeterSnapshot") -> "MeterSnapshot":
        zero = (0,) * (len(LATENCY_BUCKETS_S) + 1)
        return MeterSnapshot(
            {k: self.usage.get(k, Usage()) + other.usage.get(k, Usage()) for k in {**self.usage, **other.usage}},
            {k: self.failures.get(k, 0) + other.failures.get(k, 0) for k in {**self.failures, **other.failures}},
            {
                k: tuple(a + b for a, b in zip(self.latencies.get(k, zero), other.latencies.get(k, zero), strict=True))
                for k in {**self.latencies, **other.latencies}
            },
            self.embedded_texts + other.embedded_texts,
            self.embedding_seconds + other.embedding_seconds,
        )


class Meter:
    """Thread-safe counters of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._state = MeterSnapshot()

    def record(self, role: str, usage: Usage, seconds: float | None = None, failure: str | None = None) -> None:
        """One generation of `role`; `seconds` is the whole wait, given for generations that were not cached."""
        latencies = {} if seconds is None else {role: _bucketed(seconds)}
        failures = {} if failure is None else {failure: 1}
        self.merge(MeterSnapshot({role: usage}, failures, latencies))

    def record_embedding(self, texts: int, seconds: float) -> None:
        self.merge(MeterSnapshot(embedded_texts=texts, embedding_seconds=seconds))

    def merge(self, other: MeterSnapshot) -> None:
        """Add the counts of another process or of one event."""
        with self._lock:
            self._state = self._state + other

    def snapshot(self) -> MeterSnapshot:
        """The counts so far; not changed by what follows."""
        with self._lock:
            return self._state

    @cached_property
    def registry(self) -> "CollectorRegistry":
        """A Prometheus registry of this meter alone; it reads the counts when it is scraped."""
        from corpusmill.models.exposition import meter_registry

        return meter_registry(self)


def _bucketed(seconds: float) -> tuple[int, ...]:
    place = next((i for i, edge in enumerate(LATENCY_BUCKETS_S) if seconds <= edge), len(LATENCY_BUCKETS_S))
    return tuple(int(i == place) for i in range(len(LATENCY_BUCKETS_S) + 1))


class MeteredModel(ModelWrapper):
    """Records every generation of one role, failed ones with what they cost."""

    def __init__(self, inner: LanguageModel, role: Role, meter: Meter) -> None:
        super().__init__(inner)
        self._role = role
        self._meter = meter

    async def generate(
        self, task: Task[InputT, OutputT], inputs: InputT, *, affinity: str | None = None
    ) -> Generation[OutputT]:
        started = time.perf_counter()
        try:
            generation = await self._inner.generate(task, inputs, affinity=affinity)
        except CorpusmillError as error:
            usage = getattr(error, "usage", None) or Usage()
            self._meter.record(self._role, usage, time.perf_counter() - started, type(error).__name__)
            raise
        waited = None if generation.usage.cached else time.perf_counter() - started
        self._meter.record(self._role, generation.usage, waited)
        return generation


class MeteredEmbedder:
    """Records how many texts are embedded. `owned`: closing it closes the inner one."""

    def __init__(self, inner: Embedder, meter: Meter, *, owned: bool = True) -> None:
        self._inner = inner
        self._meter = meter
        self._owned = owned

    @property
    def fingerprint(self) -> str:
        return self._inner.fingerprint

    @property
    def dim(self) -> int:
        return self._inner.dim

    async def embed(self, texts: Sequence[str], kind: EmbedKind) -> np.ndarray:
        started = time.perf_counter()
        vectors = await self._inner.embed(texts, kind)
        self._meter.record_embedding(len(texts), time.perf_counter() - started)
        return vectors

    async def aclose(self) -> None:
        if self._owned:
            await self._inner.aclose()
