"""A stage's progress and spending as Ray metrics.

The Ray node of the run's driver exports them for Prometheus, each name with `ray_` before it. What models did has the
names of `models.exposition`; the progress of a stage has those of `GAUGES`.
"""

import functools
import time
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from corpusmill.models.exposition import meter_registry
from corpusmill.models.metered import LATENCY_BUCKETS_S, Meter, MeterSnapshot
from corpusmill.store.manifest import Counts

GAUGES = {
    "corpusmill_stage_done": "Units of the stage that are done",
    "corpusmill_stage_units": "Units of the stage in all, where that is known",
    "corpusmill_stage_seconds": "How long the stage has taken so far",
    "corpusmill_stage_running": "1 while the stage runs, then 0",
    "corpusmill_progress_timestamp_seconds": "When the driver last heard from the stage's workers, as Unix time",
    "corpusmill_documents": "Documents of the index that is being built, by how they ended",
}
_OUTCOMES = ("indexed", "empty", "partial", "quarantined")
_OPEN_BUCKET_S = 2 * LATENCY_BUCKETS_S[-1]  # stands for any wait above the last edge


class Sink(Protocol):
    """Where metrics go. Labels of one name are always the same."""

    def count(self, name: str, text: str, labels: Mapping[str, str], by: float) -> None: ...

    def gauge(self, name: str, labels: Mapping[str, str], value: float) -> None: ...

    def observe(self, name: str, text: str, labels: Mapping[str, str], value: float) -> None:
        """One wait in seconds, into the buckets of LATENCY_BUCKETS_S."""
        ...


class RaySink:
    """Ray's own metrics, made once in a process."""

    def count(self, name: str, text: str, labels: Mapping[str, str], by: float) -> None:
        _counter(name, text, tuple(labels)).inc(by, dict(labels))

    def gauge(self, name: str, labels: Mapping[str, str], value: float) -> None:
        _gauge(name, tuple(labels)).set(value, dict(labels))

    def observe(self, name: str, text: str, labels: Mapping[str, str], value: float) -> None:
        _histogram(name, text, tuple(labels)).observe(value, dict(labels))


class StageMetrics:
    """Of one stage. Its ledger counts from nothing, so what is told is what was added since the last look."""

    def __init__(self, stage: str, unit: str, total: int | None, sink: Sink | None = None) -> None:
        self._stage = stage
        self._units = {"stage": stage, "unit": unit}
        self._total = total
        self._sink = sink or RaySink()
        self._told: dict[tuple[str, tuple[str, ...]], float] = {}
        self._started = time.monotonic()

    def heard(self, done: int, meter: MeterSnapshot, *, running: bool) -> None:
        """The workers' counts have arrived."""
        self._sink.gauge("corpusmill_progress_timestamp_seconds", {}, time.time())
        self._sink.gauge("corpusmill_stage_done", self._units, done)
        if self._total is not None:
            self._sink.gauge("corpusmill_stage_units", self._units, self._total)
        self._sink.gauge("corpusmill_stage_running", {"stage": self._stage}, int(running))
        self._sink.gauge("corpusmill_stage_seconds", {"stage": self._stage}, time.monotonic() - self._started)
        self._count(meter)

    def _count(self, snapshot: MeterSnapshot) -> None:
        meter = Meter()
        meter.merge(snapshot)
        for family in meter_registry(meter).collect():
            if family.type != "counter":
                continue  # of a histogram's samples Ray takes observations alone
            for sample in family.samples:
                added = self._added(family.name, tuple(sample.labels.values()), sample.value)
                if added > 0:
                    self._sink.count(family.name, family.documentation, sample.labels, added)
        for role, place, waits in _waits(snapshot):
            for _ in range(int(self._added("corpusmill_model_wait_seconds", (role, str(place)), waits))):
                value = LATENCY_BUCKETS_S[place] if place < len(LATENCY_BUCKETS_S) else _OPEN_BUCKET_S
                self._sink.observe("corpusmill_model_wait_seconds", "Wait for one generation", {"role": role}, value)

    def _added(self, name: str, labels: tuple[str, ...], value: float) -> float:
        before = self._told.get((name, labels), 0.0)
        self._told[name, labels] = max(before, value)
        return value - before


def _waits(snapshot: MeterSnapshot) -> Iterator[tuple[str, int, int]]:
    """(role, place of the bucket, generations in it)."""
    for role, counts in snapshot.latencies.items():
        for place, waits in enumerate(counts):
            yield role, place, waits


def tell_documents(counts: Counts, sink: Sink | None = None) -> None:
    """How the documents of the index under way ended, as far as they have."""
    for outcome in _OUTCOMES:
        (sink or RaySink()).gauge("corpusmill_documents", {"outcome": outcome}, getattr(counts, outcome))


def exported_names() -> set[str]:
    """Every name that Prometheus sees of this module."""
    names = set(GAUGES)
    for family in meter_registry(Meter()).collect():
        parts = ("_bucket", "_sum", "_count") if family.type == "histogram" else ("_total",)
        names |= {family.name + part for part in parts}
    return {f"ray_{name}" for name in names}


@functools.cache
def _counter(name: str, text: str, labels: tuple[str, ...]) -> Any:
    from ray.util.metrics import Counter

    return Counter(name, text, labels)


@functools.cache
def _gauge(name: str, labels: tuple[str, ...]) -> Any:
    from ray.util.metrics import Gauge

    return Gauge(name, GAUGES[name], labels)


@functools.cache
def _histogram(name: str, text: str, labels: tuple[str, ...]) -> Any:
    from ray.util.metrics import Histogram

    return Histogram(name, text, list(LATENCY_BUCKETS_S), labels)
