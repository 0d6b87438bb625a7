"""The document builder on a real Ray Data actor pool."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from benchmarks.stubs import stub_models
from corpusmill.digest import RowsDigest
from corpusmill.errors import BudgetReachedError, RunFailedError
from corpusmill.planning import resolved_plan
from corpusmill.run import IngestResult, ProgressEvent, RunSpec, silent
from corpusmill.settings import (
    CacheSettings,
    EmbedderSettings,
    ModelSettings,
    ModelsSettings,
    RaySettings,
    RunSettings,
    Settings,
)
from corpusmill.steps import DocumentStep
from corpusmill.store.draft import Draft
from corpusmill.store.objects import open_store
from corpusmill.store.segments import list_segments, owners, read_segment_index
from ray_actors.builder import build, work_items
from ray_actors.failures import as_error
from ray_actors.worker import share_of
from tests.drafts import ingested
from tests.processes import children_named

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("local_ray")]

PEOPLE = ("Ada Lovelace", "Grace Hopper", "Alan Turing", "Emmy Noether", "Kurt Hensel")
TEXTS = [
    f"{PEOPLE[i % 5]} met {PEOPLE[(i + 1) % 5]} in Paris in {1800 + i}. {PEOPLE[i % 5]} wrote to {PEOPLE[(i + 2) % 5]}. "
    f"Later {PEOPLE[i % 5]} worked in London with Charles Babbage, and {PEOPLE[i % 5]} taught Mary Somerville."
    for i in range(240)
]


def spec_of(folder: Path, name: str, *, run: RunSettings | None = None, **ray: Any) -> RunSpec:
    settings = Settings(
        models=ModelsSettings(default=ModelSettings(backend="openai", model="stub", retries=0)),
        embedder=EmbedderSettings(backend="hash", dim=32),
        ray=RaySettings(**{"num_cpus": 2, "batch_documents": 40, **ray}),
        cache=CacheSettings(dir=str(folder / f"cache-{name}")),
        run=run or RunSettings(),
    )
    return RunSpec(run=name, index=str(folder / name), source=None, source_id="memory", settings=settings)


def digests(spec: RunSpec, draft: Draft) -> dict[str, tuple[int, str]]:
    """Rows and digest of every artifact table, over the owning segments."""
    store = open_store(spec.index, spec.settings.store)
    sums: dict[str, RowsDigest] = {}
    indexes = {a.step: [read_segment_index(store, segment) for segment in a.segments] for a in draft.artifacts}
    for owned in owners(indexes).values():
        for row in owned.to_pylist():
            assert row["complete"], row["failures"]
            for table in row["tables"]:
                part = RowsDigest.parse(table["rows"], table["digest"])
                sums[table["name"]] = sums.get(table["name"], RowsDigest()) + part
    return {name: (digest.rows, digest.hex) for name, digest in sorted(sums.items())}


def run_build(spec: RunSpec, ingest: IngestResult, progress: Any = silent, **stub: Any) -> Draft:
    return build(spec, ingest.draft, ingest.todo, ingest.todo_texts, progress, models_factory=stub_models(**stub))


def test_one_and_four_builders_make_the_same_artifacts(tmp_path: Path) -> None:
    made = []
    events: list[ProgressEvent] = []
    for builders, segments in ((1, 2), (4, 3)):
        spec = spec_of(tmp_path, f"b{builders}", builders=builders)
        draft = run_build(spec, ingested(spec, TEXTS, segments), events.append)
        made.append(digests(spec, draft))
        assert draft.costs.calls >= len(TEXTS)
    assert made[0] == made[1]
    assert made[0]["statements"][0] > len(TEXTS)
    assert events[-1].done == events[-1].total == len(TEXTS)
    assert events[-1].usage.calls > 0


def test_a_killed_builder_is_replaced_and_finished_calls_are_not_paid_again(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "killed", builders=2, calls_in_flight=8)
    killed: list[int] = []

    def kill_once(event: ProgressEvent) -> None:
        if not killed and event.usage.calls >= 80:
            victims = sorted(children_named("MapWorker"))
            if victims:
                killed.append(victims[0])
                os.kill(victims[0], signal.SIGKILL)

    ingest = ingested(spec, TEXTS)
    draft = run_build(spec, ingest, kill_once, latency_s=0.05)
    assert killed
    plain = spec_of(tmp_path, "plain")
    expected = run_build(plain, ingested(plain, TEXTS))
    assert digests(spec, draft) == digests(plain, expected)
    assert draft.costs.calls <= expected.costs.calls + 8  # what was in flight
    assert draft.costs.cached > 0


def test_a_reached_budget_stops_cleanly_and_the_next_run_resumes(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "budget", run=RunSettings(max_calls=150), builders=2)
    ingest = ingested(spec, TEXTS)
    with pytest.raises(BudgetReachedError, match="150"):
        run_build(spec, ingest)
    store = open_store(spec.index, spec.settings.store)
    plan = resolved_plan(spec.settings)
    sealed = [list_segments(store, plan.fingerprints[step.name]) for step in plan.of_kind(DocumentStep)]
    kept = sum(segment.index.rows for segments in sealed for segment in segments)
    assert kept > 0
    again = spec.model_copy(update={"run": "again", "settings": spec_of(tmp_path, "budget").settings})
    draft = run_build(again, ingest)
    assert draft.costs.cached >= 140 and draft.costs.calls > 0


def test_a_model_that_answers_nonsense_ends_the_run_with_a_reason(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "nonsense")
    with pytest.raises(RunFailedError, match="nothing came of"):
        run_build(spec, ingested(spec, TEXTS), nonsense=True)


def test_every_builder_gets_several_items_of_bounded_size(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "items")
    file = ingested(spec, TEXTS[:10], 1).todo[0].model_copy(update={"rows": 1000})
    items = work_items([file, file], 2000, most=500, builders=2)
    assert sum(item.count for item in items) == 2000 and len(items) >= 8
    assert max(item.count for item in items) <= 500
    assert len({item.id for item in items}) == len(items)


@pytest.mark.parametrize(("calls", "workers"), [(16, 1), (16, 3), (7, 4), (4, 4)])
def test_calls_and_rates_are_split_over_the_workers_with_none_lost(calls: int, workers: int) -> None:
    model = ModelSettings(backend="openai", model="stub", requests_per_minute=120.0)
    settings = Settings(models=ModelsSettings(default=model), ray=RaySettings(calls_in_flight=calls))
    shares = [share_of(settings, workers, place) for place in range(workers)]
    assert sum(share.ray.calls_in_flight for share in shares) == calls
    assert sum(share.models.default.requests_per_minute or 0 for share in shares) == pytest.approx(120.0)
    assert share_of(settings, workers, workers).ray.calls_in_flight == 1


@pytest.mark.parametrize(
    ("kind", "expected"), [("BudgetReachedError", BudgetReachedError), ("KeyError", RunFailedError)]
)
def test_an_error_of_a_worker_keeps_its_type_where_it_is_one_of_ours(kind: str, expected: type[Exception]) -> None:
    error = as_error(kind, "why")
    assert type(error) is expected and "why" in str(error)
