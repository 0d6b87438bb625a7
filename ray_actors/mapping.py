"""Map steps: a pool of actors runs a function with models over bounded batches of a table's rows."""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
import ray
from pydantic import BaseModel, ConfigDict, Field

from corpusmill.digest import RowsDigest
from corpusmill.drafting import StepIndices, draft_view, fitting, table_entry
from corpusmill.errors import CorpusmillError, RunFailedError
from corpusmill.grouping import whole_keys
from corpusmill.models.factory import build_models
from corpusmill.planning import made_from, resolved_plan
from corpusmill.run import Progress, RunSpec
from corpusmill.steps import MapStep, ResolvedPlan, StepContext, StepOutput
from corpusmill.store import layout
from corpusmill.store.draft import MAX_REASONS, Draft
from corpusmill.store.manifest import FileEntry
from corpusmill.store.objects import open_store
from corpusmill.store.sorting import sorted_batches
from corpusmill.store.tables import write_table_file
from corpusmill.store.view import SnapshotView
from ray_actors.cluster import cpu_share
from ray_actors.failures import MAX_RETRIES, as_error, root_cause
from ray_actors.ledger import start_ledger
from ray_actors.progress import live_progress
from ray_actors.worker import ModelsFactory, Pools, Worker, start_pools

_SHARD_BATCHES = 32  # batches of one actor call: one output file a table
_SHARDS_AT_ONCE = 2  # of one actor: the end of one overlaps with the start of the next


class ShardResult(BaseModel):
    """Output files of one shard by table, with the digest of their rows; or what stopped it."""

    model_config = ConfigDict(extra="forbid")

    shard: int
    files: dict[str, tuple[FileEntry, str]] = Field(default_factory=dict)
    failures: int = 0
    reasons: list[str] = Field(default_factory=list)
    error: tuple[str, str] | None = None


@dataclass(frozen=True)
class _Flight:
    """A shard under way: the place of its actor, and what to call it."""

    place: int
    what: str


class MapActor:
    """The actor's class: one step over shards of its input."""

    def __init__(
        self,
        spec: RunSpec,
        draft: Draft,
        step: str,
        pools: Pools,
        factory: ModelsFactory,
        plan: ResolvedPlan | None = None,
    ) -> None:
        self._run = spec.run
        self._store = open_store(spec.index, spec.settings.store)
        plan = plan or resolved_plan(spec.settings)
        self._step = map_step(plan, step)
        self._worker = Worker(spec.settings, self._store, pools, factory)
        view = draft_view(self._store, draft, plan)
        self._context = StepContext(
            self._step.settings,
            plan.fingerprints[step],
            self._worker.models(),
            {name: view.table(name) for name in self._step.inputs[1:]},
            StepIndices(self._step, view),
        )
        self._done: dict[str, int] = {}
        self._error: CorpusmillError | None = None
        self._started = False

    async def run(self, shard: int, batches: Sequence[pa.Table]) -> str:
        """JSON of the shard's ShardResult. Idempotent: files have fresh names, and only returned ones are used."""
        if not self._started:
            self._started = True
            self._worker.start(lambda: self._done, self._stop)
        result = ShardResult(shard=shard)
        try:
            outputs = await self._outputs(batches)
            result.files = await asyncio.to_thread(self._write, [output.tables for output in outputs])
            failures = [reason for output in outputs for reason in output.failures]
            result.failures, result.reasons = len(failures), failures[:MAX_REASONS]
            self._done[str(shard)] = sum(batch.num_rows for batch in batches)
        except CorpusmillError as error:
            result.error = (type(error).__name__, str(error))
        await self._worker.flush()
        await self._worker.report()
        return result.model_dump_json()

    def _stop(self, reason: str) -> None:
        self._error = RunFailedError(reason)

    async def _outputs(self, batches: Sequence[pa.Table]) -> list[StepOutput]:
        if self._error is not None:
            raise self._error
        tasks = [asyncio.create_task(self._one(batch)) for batch in batches]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _one(self, batch: pa.Table) -> StepOutput:
        output = await self._step.run(batch, self._context)
        wanted = {spec.name for spec in self._step.outputs}
        if set(output.tables) != wanted:
            raise RunFailedError(
                f"map step {self._step.name!r} returned the tables {sorted(output.tables)} instead of {sorted(wanted)}"
            )
        return output

    def _write(self, outputs: Sequence[Mapping[str, pa.Table]]) -> dict[str, tuple[FileEntry, str]]:
        files = {}
        for spec in self._step.outputs:
            parts = (fitting(self._step.name, spec, output[spec.name]).cast(spec.schema) for output in outputs)
            table = pa.concat_tables([spec.empty(), *parts])
            if table.num_rows:
                key = layout.data_key(self._run, spec.name)
                entry, digest = write_table_file(self._store, key, table, spec.schema)
                files[spec.name] = (entry, digest.hex)
        return files


def run_map(
    spec: RunSpec,
    draft: Draft,
    step_name: str,
    progress: Progress,
    models_factory: ModelsFactory = build_models,
    plan: ResolvedPlan | None = None,
) -> Draft:
    """Run one map step; the draft with its tables, failed parts and costs. Needs a running Ray (`ray_session`).

    `plan` is that of the settings if none is given.
    """
    started = time.monotonic()
    given, plan = plan, plan or resolved_plan(spec.settings)
    step = map_step(plan, step_name)
    draft = draft.model_copy(deep=True)
    view = draft_view(open_store(spec.index, spec.settings.store), draft, plan)
    rows = view.rows(step.inputs[0])
    if not rows:
        _put(draft, spec, plan, step, [])
        return draft
    ledger = start_ledger(spec.settings, draft.costs)
    try:
        pools = start_pools(spec.settings, ledger)
        count = min(pools.workers, -(-rows // (step.batch_rows * _SHARD_BATCHES)))
        with live_progress(ledger, progress, step_name, rows, f"rows of {step.inputs[0]}"):
            actors = _start_actors(spec, draft, step, pools, models_factory, given, count)
            results = _run_shards(actors, step, _shards(view, step))
        _put(draft, spec, plan, step, results)
        meter = ray.get(ledger.totals.remote()).meter
        draft.spend(meter.total, meter.embedded_texts, time.monotonic() - started)
    finally:
        ray.kill(ledger)
    return draft


def map_step(plan: ResolvedPlan, name: str) -> MapStep:
    """The map step of that name. Raises ValueError with the choices."""
    found = {step.name: step for step in plan.of_kind(MapStep)}
    step = found.get(name)
    if not isinstance(step, MapStep):
        raise ValueError(f"the plan has no map step {name!r}; map steps: {sorted(found)}")
    return step


def _shards(view: SnapshotView, step: MapStep) -> Iterator[list[pa.Table]]:
    """The input sorted by `by`, then its key, in shards of whole batches: the same whatever its files."""
    table = step.inputs[0]
    order = tuple(dict.fromkeys((step.by, *view.key(table))))
    batches = whole_keys(sorted_batches(view.unsorted_batches(table), order), step.by, step.batch_rows)
    while shard := list(islice(batches, _SHARD_BATCHES)):
        yield shard


def _start_actors(
    spec: RunSpec,
    draft: Draft,
    step: MapStep,
    pools: Pools,
    factory: ModelsFactory,
    plan: ResolvedPlan | None,
    count: int,
) -> list[Any]:
    cpus = cpu_share(count + len(pools.embedding) + len(pools.clustering))
    actor: Any = ray.remote(MapActor).options(
        num_cpus=cpus, max_restarts=-1, max_task_retries=MAX_RETRIES, max_concurrency=_SHARDS_AT_ONCE
    )
    shared = ray.put(draft)
    return [actor.remote(spec, shared, step.name, pools, factory, plan) for _ in range(count)]


def _run_shards(actors: Sequence[Any], step: MapStep, shards: Iterator[list[pa.Table]]) -> list[ShardResult]:
    """All shards through the actors, a bounded number in flight; then the actors end. Raises the first error.

    A lost actor is restarted and has its shards again; a shard whose actor is lost more than `MAX_RETRIES` times ends
    the run with its name.
    """
    count = len(actors)
    flying: dict[Any, _Flight] = {}  # by result
    results: list[ShardResult] = []
    try:
        for number, shard in enumerate(shards):
            if len(flying) >= count * _SHARDS_AT_ONCE:
                results += _take(flying)
            busy = [sum(flight.place == place for flight in flying.values()) for place in range(count)]
            place = busy.index(min(busy))
            first = shard[0].column(step.by)[0].as_py()
            what = f"map step {step.name!r}, rows of {step.inputs[0]} from {step.by} {first!r} on (part {number})"
            flying[actors[place].run.remote(number, shard)] = _Flight(place, what)
        while flying:
            results += _take(flying)
    finally:
        for handle in actors:
            ray.kill(handle)
    return sorted(results, key=lambda result: result.shard)


def _take(flying: "dict[Any, _Flight]") -> list[ShardResult]:
    """Wait for a shard to end; what has ended."""
    ready, _ = ray.wait(list(flying), num_returns=1)
    out = []
    for reference in ready:
        flight = flying.pop(reference)
        try:
            result = ShardResult.model_validate_json(ray.get(reference))
        except ray.exceptions.RayError as error:
            raise RunFailedError(f"{flight.what}: the worker failed: {root_cause(error)}") from error
        if result.error is not None:
            raise as_error(*result.error)
        out.append(result)
    return out


def _put(draft: Draft, spec: RunSpec, plan: ResolvedPlan, step: MapStep, results: Sequence[ShardResult]) -> None:
    """Add the step's tables; with failed parts no `made_from` tells their inputs, so the next run makes them again."""
    failures = sum(result.failures for result in results)
    draft.fail_parts(failures, [f"{step.name}: {reason}" for result in results for reason in result.reasons])
    identity = "" if failures else made_from(step, plan, draft)
    for table in step.outputs:
        files = [result.files[table.name] for result in results if table.name in result.files]
        digest = sum((RowsDigest.parse(file.rows, text) for file, text in files), RowsDigest())
        entry = table_entry(spec.settings, plan, step, table, [file for file, _ in files], digest, identity)
        draft.put_table(entry)
