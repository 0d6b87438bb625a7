"""The run's driver: plan, build, merge, index, publish; each stage in its engine, joined by the store."""

import time
from dataclasses import dataclass

from corpusmill import __version__
from corpusmill.errors import (
    BudgetReachedError,
    CommitConflictError,
    GraphFramesNeededError,
    RunFailedError,
    StoreError,
    StoreUnavailableError,
)
from corpusmill.estimate import Estimate
from corpusmill.planning import method_entries, resolved_plan, result_fingerprint, stages, take_over, with_methods
from corpusmill.run import IngestResult, PlanCounts, Progress, ProgressEvent, RunSpec, run_name
from corpusmill.settings import Settings
from corpusmill.sources.listing import Source, without_index
from corpusmill.steps import AnyStep, BuildStep, CorpusStep, DocumentStep, MapStep
from corpusmill.store.commit import Published, current, publish
from corpusmill.store.draft import Draft
from corpusmill.store.manifest import Costs, Manifest
from corpusmill.store.objects import ObjectStore, open_store
from corpusmill.store.runs import RunFiles
from corpusmill.temporary import run_folder

from .launch import SparkStages
from .ray_stages import RayStages, ray_stages
from .running import Run

MAX_COMMIT_ROUNDS = 5


@dataclass(frozen=True)
class RunOutcome:
    """What a run did. `snapshot` is the index's current one after the run, new or not."""

    run: str
    snapshot: int
    digest: str
    new: bool
    counts: PlanCounts
    documents: int
    partial: int
    quarantined: int
    empty: int
    failed_parts: int  # of map steps, such as a merged summary: a stand-in is stored, and the next run tries again
    calls: int
    cached: int
    tokens: int
    cost: float
    seconds: float
    stage_seconds: dict[str, float]
    report_key: str | None
    message: str

    @property
    def exit_code(self) -> int:
        """0 where nothing was published: that partial and quarantined documents stand as they were is no news."""
        return 5 if self.new and (self.partial or self.quarantined or self.failed_parts) else 0


def run_index(
    settings: Settings,
    *,
    source: str | None,
    index: str,
    progress: Progress,
    source_id: str | None = None,
    estimate: Estimate | None = None,
    refit: bool = False,
    run: str | None = None,
) -> RunOutcome:
    """Build or update the index at `index` from `source`. Raises CorpusmillError subclasses; then nothing changed.

    `refit`: what steps keep from run to run (a codebook) is trained anew. `run`: its name (default: made up).

    A publish that loses the race against another run plans again on the newer snapshot, reusing all it made.
    """
    with run_folder():
        return _run_index(settings, source, index, progress, source_id, estimate, refit, run)


def _run_index(
    settings: Settings,
    source: str | None,
    index: str,
    progress: Progress,
    source_id: str | None,
    estimate: Estimate | None,
    refit: bool,
    name: str | None,
) -> RunOutcome:
    store = open_store(index, settings.store)
    carried = Costs()
    for number in range(1, MAX_COMMIT_ROUNDS + 1):
        own = f"{name}-round{number}" if name and number > 1 else name
        run = _prepare(settings, store, source, source_id, progress, carried, refit, own)
        try:
            with run.beating():
                return _run(run, estimate)
        except CommitConflictError as error:
            carried = run.spent
            run.say(status="failed", stage="publish", message=str(error))
            progress(ProgressEvent("publish", 0, message="another run published first; planning again on its snapshot"))
        except BudgetReachedError as error:
            run.say(status="budget", stage=run.state.stage if run.state else "", message=str(error))
            raise
        except (Exception, KeyboardInterrupt) as error:
            _say_failed(run, error)
            raise
    raise RunFailedError(f"gave up publishing to {index} after {MAX_COMMIT_ROUNDS} conflicts with other runs")


def _say_failed(run: Run, error: BaseException) -> None:
    stage = run.state.stage if run.state else ""
    message = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error) or type(error).__name__
    try:
        run.say(status="failed", stage=stage, message=message)
    except StoreUnavailableError as again:
        run.progress(ProgressEvent(stage, 0, message=f"the run's state could not be written: {again}"))


def _prepare(
    settings: Settings,
    store: ObjectStore,
    source: str | None,
    source_id: str | None,
    progress: Progress,
    carried: Costs,
    refit: bool,
    name: str | None,
) -> Run:
    parent = current(store)
    settings = with_methods(settings, [m.name for m in parent.methods] if parent else [])
    parsed = Source.parse(source, settings) if source is not None else None
    if parsed is not None:
        settings = without_index(parsed, store.uri, settings)
    plan = resolved_plan(settings)
    uri = parsed.uri if parsed is not None else None
    name = run_name(name)
    spec = RunSpec(
        run=name,
        index=store.uri,
        source=uri,
        source_id=source_id or uri or "",
        settings=settings,
        parent=parent.number if parent else None,
        refit=refit,
    )
    files = RunFiles(store, name)
    files.put_spec(spec)
    return Run(spec, store, files, plan, parent, progress, carried=carried)


def _run(run: Run, estimate: Estimate | None) -> RunOutcome:
    with SparkStages(run.spec, run.report) as spark:
        return _run_with(run, spark, estimate)


def _run_with(run: Run, spark: SparkStages, estimate: Estimate | None) -> RunOutcome:
    with run.stage("ingest"):
        spark.run("ingest")
    ingest = run.files.ingest()
    _announce(run, ingest)
    _refuse_too_many_failures(run, ingest)
    if _nothing_to_do(run, ingest):
        return _unchanged(run, ingest)
    draft = _build(run, spark, ingest)
    spark.close()
    published = _publish(run, draft)
    return _finish(run, ingest, draft, published, estimate)


def _announce(run: Run, ingest: IngestResult) -> None:
    run.report(ProgressEvent("plan", 1, 1, message=plan_text(ingest)))


def plan_text(ingest: IngestResult) -> str:
    """What happened to the source's documents, each counted once; and how all of the index ended, which is another
    count of the same documents."""
    c, live = ingest.counts, ingest.draft.counts.documents
    happened = {name: getattr(c, name) for name in ("new", "changed", "moved", "deleted", "unchanged")}
    ended = [f"{n:,} {name}" for name, n in (("empty", c.empty), ("quarantined", c.quarantined)) if n]
    among = f" (of all {live:,} documents, {' and '.join(ended)})" if ended else ""
    texts = f"{ingest.todo_texts:,} text{'' if ingest.todo_texts == 1 else 's'} to build"
    return f"plan: {', '.join(f'{n:,} {name}' for name, n in happened.items())}{among}; {texts}"


def _refuse_too_many_failures(run: Run, ingest: IngestResult) -> None:
    total = ingest.draft.counts.documents
    limit = run.spec.settings.run.max_failed_fraction
    failed = ingest.counts.quarantined
    if total and failed / total > limit:
        raise RunFailedError(
            f"{failed} of {total} documents could not be read ({failed / total:.0%}, "
            f"run.max_failed_fraction is {limit:.0%}); nothing was published. "
            f"Leave them out (source.exclude), or allow more (--set run.max_failed_fraction="
            f"{min(1.0, failed / total + 0.01):.2f}). "
            f"First reasons: {'; '.join(_reasons(run, ingest.draft))}"
        )


def _reasons(run: Run, draft: Draft, most: int = 3) -> list[str]:
    from corpusmill.store.tables import read_table_file

    found: list[str] = []
    documents = next(t for t in draft.tables if t.name == "documents")
    for file in documents.files:
        rows = read_table_file(run.store, file, columns=["uri", "outcome", "reason"]).to_pylist()
        found += [f"{r['uri']}: {r['reason']}" for r in rows if r["outcome"] == "quarantined"]
        if len(found) >= most:
            break
    return found[:most]


def _nothing_to_do(run: Run, ingest: IngestResult) -> bool:
    if run.parent is None or ingest.todo_texts or run.parent.map_failures or run.spec.refit:
        return False
    documents = next(t for t in ingest.draft.tables if t.name == "documents")
    before = run.parent.table("documents")
    return (documents.rows, documents.digest) == (
        before.rows,
        before.digest,
    ) and run.parent.config_fingerprint == result_fingerprint(run.spec.settings, run.plan)


def _unchanged(run: Run, ingest: IngestResult) -> RunOutcome:
    parent = run.parent
    assert parent is not None
    message = f"nothing changed since snapshot {parent.number}: no model was called and nothing was published"
    run.say(status="unchanged", stage="plan", message=message, snapshot=parent.number)
    return _outcome(run, ingest, parent, new=False, message=message, costs_of=Draft(), report_key=None)


def _build(run: Run, spark: SparkStages, ingest: IngestResult) -> Draft:
    draft = ingest.draft.model_copy(update={"costs": run.carried})
    with ray_stages(run) as ray:
        if ingest.todo_texts and run.plan.of_kind(DocumentStep):
            with run.stage("build"):
                draft = ray.build(draft, ingest)
                run.spent = draft.costs
        for group in stages(run.plan):
            draft = _run_group(run, spark, ray, draft, group)
            run.spent = draft.costs
    return draft


def _run_group(run: Run, spark: SparkStages, ray: RayStages, draft: Draft, group: tuple[AnyStep, ...]) -> Draft:
    if not group or isinstance(group[0], CorpusStep):
        with run.stage("merge" if group else "census"):
            return _corpus(run, spark, draft, tuple(step.name for step in group))
    (step,) = group
    if take_over(step, run.plan, draft, run.parent, refit=run.spec.refit):
        return draft
    with run.stage(f"index {step.name}" if isinstance(step, BuildStep) else f"map {step.name}"):
        assert isinstance(step, MapStep | BuildStep)
        return ray.step(draft, step)


def _corpus(run: Run, spark: SparkStages, draft: Draft, steps: tuple[str, ...]) -> Draft:
    """The corpus steps as a Spark application; a second one with GraphFrames where the pairs pass the bound."""
    run.files.put_draft(draft)
    try:
        spark.run("corpus", steps)
    except GraphFramesNeededError as needed:
        run.report(ProgressEvent("merge", 0, message=str(needed)))
        package = run.spec.settings.spark.graphframes
        try:
            spark.run("corpus", steps, packages=package)
        except RunFailedError as error:
            raise RunFailedError(
                f"{needed}; the second try with the package {package} failed (is it resolvable from here? else raise "
                f"spark.pair_bound, now {run.spec.settings.spark.pair_bound}): {error}"
            ) from error
    return run.files.draft()


def _publish(run: Run, draft: Draft) -> Published:
    from corpusmill.models.factory import embedder_dim, model_fingerprints

    settings = run.spec.settings
    models = model_fingerprints(settings)
    with run.stage("publish"):
        return publish(
            run.store,
            draft,
            run=run.spec.run,
            parent=run.parent,
            config=settings.model_dump(mode="json"),
            config_fingerprint=result_fingerprint(settings, run.plan),
            methods=method_entries(settings, run.plan),
            models={str(role): models.roles[role] for role in models.roles},
            embedder=models.embedder,
            dim=embedder_dim(settings),
            corpusmill_version=__version__,
        )


def _finish(
    run: Run, ingest: IngestResult, draft: Draft, published: Published, estimate: Estimate | None
) -> RunOutcome:
    """Say that it is published before anything else may fail: from here on the index has changed."""
    manifest = published.manifest
    message = (
        f"published snapshot {manifest.number}"
        if published.new
        else f"the content equals snapshot {manifest.number}: nothing was published"
    )
    report_key = None
    try:
        run.say(
            status="published" if published.new else "unchanged",
            stage="done",
            message=message,
            snapshot=manifest.number,
        )
        report_key = _report(run, ingest, draft, manifest, estimate)
    except StoreError as error:
        message += f"; its report could not be written: {error}"
    return _outcome(run, ingest, manifest, new=published.new, message=message, costs_of=draft, report_key=report_key)


def _report(run: Run, ingest: IngestResult, draft: Draft, manifest: Manifest, estimate: Estimate | None) -> str:
    from corpusmill.report.page import RunFacts, render_report
    from corpusmill.store.view import SnapshotView

    begin = time.monotonic()
    facts = RunFacts(
        spec=run.spec,
        counts=ingest.counts,
        costs=draft.costs,
        stage_seconds=dict(run.seconds),
        estimate=estimate,
        manifest=manifest,
    )
    key = run.files.put_report(render_report(SnapshotView(run.store, manifest), facts))
    run.seconds["report"] = time.monotonic() - begin
    return key


def _outcome(
    run: Run,
    ingest: IngestResult,
    manifest: Manifest,
    *,
    new: bool,
    message: str,
    costs_of: Draft,
    report_key: str | None,
) -> RunOutcome:
    costs = costs_of.costs
    return RunOutcome(
        run=run.spec.run,
        snapshot=manifest.number,
        digest=manifest.digest,
        new=new,
        counts=ingest.counts,
        documents=manifest.counts.documents,
        partial=manifest.counts.partial,
        quarantined=manifest.counts.quarantined,
        empty=manifest.counts.empty,
        failed_parts=manifest.map_failures,
        calls=costs.calls,
        cached=costs.cached,
        tokens=costs.prompt_tokens + costs.completion_tokens,
        cost=costs.cost,
        seconds=time.monotonic() - run.started,
        stage_seconds=dict(run.seconds),
        report_key=report_key,
        message=message,
    )
