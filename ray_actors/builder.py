"""The document builder as a Ray Data actor pool: work items in, sealed segments out."""

import asyncio
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import ray

from corpusmill.document_builder import BatchResult, DocumentBuilder, WorkItem
from corpusmill.errors import BudgetReachedError, CorpusmillError, RunFailedError
from corpusmill.models.factory import build_models
from corpusmill.planning import resolved_plan
from corpusmill.run import Progress, RunSpec
from corpusmill.steps import DocumentStep, ResolvedPlan
from corpusmill.store.draft import Draft
from corpusmill.store.manifest import ArtifactEntry, FileEntry
from corpusmill.store.objects import open_store
from ray_actors.cluster import cpu_share, quiet_data
from ray_actors.failures import MAX_RETRIES, as_error, root_cause
from ray_actors.ledger import start_ledger
from ray_actors.metrics import tell_documents
from ray_actors.progress import live_progress
from ray_actors.worker import ModelsFactory, Pools, Worker, start_pools

DEAD_AT_FIRST = 100  # so many texts of one builder of which nothing came, and nothing of any text of the index
ITEMS_AT_ONCE = 3  # of one builder: the end of one overlaps with the start of the next
_ITEMS_PER_BUILDER = 4  # at least, so that builders end together
_MIN_ITEM = 64
_STAGE = "build"


class BuilderActor:
    """What a Ray Data actor holds: one document builder on the actor's event loop."""

    def __init__(
        self,
        spec: RunSpec,
        pools: Pools,
        factory: ModelsFactory,
        artifacts: Sequence[ArtifactEntry],
        dead_limit: int | None,
    ) -> None:
        store = open_store(spec.index, spec.settings.store)
        self._worker = Worker(spec.settings, store, pools, factory)
        self._builder = DocumentBuilder(
            self._worker.settings, store, resolved_plan(spec.settings), self._worker.models(), artifacts, dead_limit
        )
        self._started = False

    async def __call__(self, batch: pa.Table) -> pa.Table:
        """{item: JSON of a WorkItem} -> {result: JSON of its BatchResult}."""
        if not self._started:
            self._started = True
            self._worker.start(self._builder.done, lambda reason: self._builder.stop(RunFailedError(reason)))
        items = [WorkItem.model_validate_json(text) for text in batch.column("item").to_pylist()]
        starts = await self._worker.client.begin([item.id for item in items])
        results = await asyncio.gather(*(self._run(item, start) for item, start in zip(items, starts, strict=True)))
        await self._worker.flush()
        await self._worker.report()
        await self._worker.client.end([item.id for item in items])
        return pa.table({"result": [result.model_dump_json() for result in results]})

    async def _run(self, item: WorkItem, start: int) -> BatchResult:
        """The item's result; an error for one that every builder so far was lost on. Ray's own bound on retries will
        not do: it counts what was sent to a host that is down, and is used up before the host is known to be."""
        if start <= MAX_RETRIES + 1:
            return await self._builder.run_batch(item)
        return BatchResult(id=item.id, error=(RunFailedError.__name__, _lost_again(item, start - 1)))


def _lost_again(item: WorkItem, attempts: int) -> str:
    return (
        f"a document builder was lost again and again on texts {item.start} to {item.start + item.count - 1} of "
        f"{item.file.key} ({attempts} attempts)"
    )


def build(
    spec: RunSpec,
    draft: Draft,
    todo: Sequence[FileEntry],
    todo_texts: int,
    progress: Progress,
    models_factory: ModelsFactory = build_models,
) -> Draft:
    """Run the document steps that the texts of the `todo` files lack; the draft with their segments and costs.

    Needs a running Ray (`ray_session`). Raises what stopped the run after the builders have sealed what they had:
    the next run's plan finds these segments.
    """
    started = time.monotonic()
    plan = resolved_plan(spec.settings)
    first = draft.counts.texts <= todo_texts  # no text of the index is complete yet
    failed = int(spec.settings.run.max_failed_fraction * draft.counts.documents)
    dead_limit = max(DEAD_AT_FIRST, failed) if first else None
    draft = draft.model_copy(deep=True)
    ledger = start_ledger(spec.settings, draft.costs)
    tell_documents(draft.counts)
    try:
        pools = start_pools(spec.settings, ledger)
        items = work_items(todo, todo_texts, spec.settings.ray.batch_documents, pools.workers)
        with live_progress(ledger, progress, _STAGE, todo_texts, "documents"):
            results = _collect(_results(spec, draft, items, pools, models_factory, dead_limit), ledger)
        _add(draft, plan, results)
        meter = ray.get(ledger.totals.remote()).meter
        draft.spend(meter.total, meter.embedded_texts, time.monotonic() - started)
    finally:
        ray.kill(ledger)
    if first:
        _refuse_if_nothing_came(results)
    return draft


def work_items(todo: Sequence[FileEntry], texts: int, most: int, builders: int) -> list[WorkItem]:
    """Slices of the todo files of at most `most` rows, small enough that every builder has several."""
    even = math.ceil(texts / (builders * _ITEMS_PER_BUILDER))
    size = min(most, max(_MIN_ITEM, even))
    return [
        WorkItem(id=f"{number}-{start}", file=file, start=start, count=min(size, file.rows - start))
        for number, file in enumerate(todo)
        for start in range(0, file.rows, size)
    ]


def _results(
    spec: RunSpec, draft: Draft, items: Sequence[WorkItem], pools: Pools, factory: ModelsFactory, dead_limit: int | None
) -> Iterator[BatchResult]:
    """Run the items on the actor pool; results in the order in which they end.

    A lost actor is replaced and its items are built again; an item whose actor is lost more than `MAX_RETRIES` times
    ends the run (`BuilderActor`). What a builder sealed before is kept.
    """
    from ray.data import ActorPoolStrategy, from_items

    if not items:
        return
    pool = ActorPoolStrategy(
        size=min(pools.workers, len(items)),
        max_concurrent_calls_per_actor=ITEMS_AT_ONCE,
        max_tasks_in_flight_per_actor=ITEMS_AT_ONCE,
    )
    with quiet_data(spec.settings):
        rows = [{"item": item.model_dump_json()} for item in items]
        data = from_items(rows, override_num_blocks=len(rows)).map_batches(
            BuilderActor,
            fn_constructor_args=(spec, pools, factory, draft.artifacts, dead_limit),
            compute=pool,
            batch_size=None,
            batch_format="pyarrow",
            num_cpus=cpu_share(pools.workers + len(pools.embedding) + len(pools.clustering)),
            max_restarts=-1,
            max_task_retries=-1,
        )
        try:
            for row in data.iter_rows():
                yield BatchResult.model_validate_json(row["result"])
        except ray.exceptions.RayError as error:
            raise RunFailedError(f"the document builders failed: {root_cause(error)}") from error


def _collect(results: Iterator[BatchResult], ledger: Any) -> list[BatchResult]:
    """All results; the first error tells the other builders to stop and is raised once they have sealed their work."""
    kept: list[BatchResult] = []
    error: CorpusmillError | None = None
    for result in results:
        kept.append(result)
        if result.error is not None and error is None:
            error = as_error(*result.error)
            if not isinstance(error, BudgetReachedError):  # which every builder meets by itself, at its next call
                ray.get(ledger.stop.remote(str(error)))
    if error is not None:
        raise error
    return kept


def _add(draft: Draft, plan: ResolvedPlan, results: Sequence[BatchResult]) -> None:
    for step in plan.of_kind(DocumentStep):
        sealed = [segment for result in results for segment in result.segments.get(step.name, ())]
        tables = tuple(spec.name for spec in step.outputs)
        draft.add_segments(step.name, plan.fingerprints[step.name], tables, sealed)


def _refuse_if_nothing_came(results: Sequence[BatchResult]) -> None:
    """A run in which no text gave anything, on an index of which no text is complete, is a model that is not fit. Where
    others are complete, texts of which nothing comes are partial documents: they must not stop every later run."""
    texts, dead = sum(r.texts for r in results), sum(r.dead for r in results)
    if texts and dead == texts:
        reason = next((reason for r in results for reason in r.reasons), "no reason was given")
        raise RunFailedError(f"nothing came of any of the {texts} texts; {reason}")
