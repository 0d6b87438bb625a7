"""What a stage tells Prometheus, by a sink that writes down what it is told."""

from collections import Counter
from collections.abc import Mapping

from corpusmill.models.contracts import Usage
from corpusmill.models.metered import Meter
from corpusmill.store.manifest import Counts
from ray_actors.metrics import GAUGES, StageMetrics, exported_names, tell_documents


class Written:
    def __init__(self) -> None:
        self.counters: Counter[tuple[str, ...]] = Counter()
        self.gauges: dict[tuple[str, ...], float] = {}
        self.waits: list[tuple[str, str, float]] = []

    def count(self, name: str, text: str, labels: Mapping[str, str], by: float) -> None:
        assert by > 0 and text
        self.counters[name, *labels.values()] += by  # type: ignore[assignment]

    def gauge(self, name: str, labels: Mapping[str, str], value: float) -> None:
        assert name in GAUGES
        self.gauges[name, *labels.values()] = value

    def observe(self, name: str, text: str, labels: Mapping[str, str], value: float) -> None:
        self.waits.append((name, labels["role"], value))


def _meter(calls: int) -> Meter:
    meter = Meter()
    for _ in range(calls):
        meter.record("extract", Usage(calls=1, prompt_tokens=100, completion_tokens=20, cost=0.5), seconds=0.3)
    return meter


def test_counters_grow_by_what_was_added_since_the_last_look() -> None:
    written = Written()
    metrics = StageMetrics("build", "documents", 7, written)
    metrics.heard(0, Meter().snapshot(), running=True)
    assert not written.counters
    meter = _meter(2)
    metrics.heard(1, meter.snapshot(), running=True)
    metrics.heard(1, meter.snapshot(), running=True)  # nothing new
    meter.merge(_meter(1).snapshot())
    meter.record("summarise", Usage(cached=1))
    meter.record("extract", Usage(), 200.0, "ModelOutputError")
    meter.record_embedding(9, 0.1)
    metrics.heard(3, meter.snapshot(), running=False)
    assert written.counters["corpusmill_model_calls", "extract"] == 3
    assert written.counters["corpusmill_model_prompt_tokens", "extract"] == 300
    assert written.counters["corpusmill_model_cost", "extract"] == 1.5
    assert written.counters["corpusmill_model_cached", "summarise"] == 1
    assert written.counters["corpusmill_model_failures", "ModelOutputError"] == 1
    assert written.counters["corpusmill_embedded_texts",] == 9


def test_every_wait_is_observed_once_in_its_bucket() -> None:
    written = Written()
    metrics = StageMetrics("build", "documents", None, written)
    meter = _meter(2)
    metrics.heard(1, meter.snapshot(), running=True)
    meter.record("extract", Usage(calls=1), seconds=500.0)
    metrics.heard(2, meter.snapshot(), running=True)
    assert [value for _, _, value in written.waits] == [0.5, 0.5, 240.0]  # 0.3 s lies in the bucket up to 0.5


def test_progress_of_a_stage() -> None:
    written = Written()
    metrics = StageMetrics("build", "documents", 7, written)
    metrics.heard(3, Meter().snapshot(), running=True)
    assert written.gauges["corpusmill_stage_done", "build", "documents"] == 3
    assert written.gauges["corpusmill_stage_units", "build", "documents"] == 7
    assert written.gauges["corpusmill_stage_running", "build"] == 1
    metrics.heard(7, Meter().snapshot(), running=False)
    assert written.gauges["corpusmill_stage_running", "build"] == 0
    assert written.gauges["corpusmill_progress_timestamp_seconds",] > 1_700_000_000


def test_a_stage_of_unknown_length_has_no_number_of_units() -> None:
    written = Written()
    StageMetrics("map", "rows", None, written).heard(3, Meter().snapshot(), running=True)
    assert not [key for key in written.gauges if key[0] == "corpusmill_stage_units"]


def test_documents_by_how_they_ended() -> None:
    written = Written()
    tell_documents(Counts(documents=10, indexed=8, empty=1, partial=3, quarantined=1), written)
    assert written.gauges["corpusmill_documents", "quarantined"] == 1
    assert written.gauges["corpusmill_documents", "partial"] == 3


def test_a_new_stage_counts_anew() -> None:
    """Each stage has a ledger of its own, which begins at nothing."""
    written = Written()
    for _ in range(2):
        StageMetrics("build", "documents", 1, written).heard(1, _meter(2).snapshot(), running=False)
    assert written.counters["corpusmill_model_calls", "extract"] == 4


def test_exported_names() -> None:
    names = exported_names()
    assert "ray_corpusmill_model_calls_total" in names
    assert "ray_corpusmill_model_wait_seconds_bucket" in names
    assert "ray_corpusmill_stage_done" in names
