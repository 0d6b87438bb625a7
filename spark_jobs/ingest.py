"""Ingest: list a source, plan against the parent snapshot, read what is new, write texts, chunks and `documents`.

The driver gets counts, file entries and lists of segments, never rows of documents.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from corpusmill.digest import RowsDigest
from corpusmill.planning import TEXT_FINGERPRINT, resolved_plan
from corpusmill.run import TODO, IngestResult, PlanCounts, RunSpec
from corpusmill.schemas import DOCUMENTS, TEXTS
from corpusmill.sources.convert import converter_fingerprint, limits_fingerprint
from corpusmill.sources.listing import Source
from corpusmill.sources.sandbox import WORKER_COMMAND
from corpusmill.steps import DocumentStep, ResolvedPlan, TextStep
from corpusmill.store.commit import load_snapshot
from corpusmill.store.draft import Draft
from corpusmill.store.manifest import ArtifactEntry, Counts, FileEntry, Manifest, SegmentEntry, TableEntry
from corpusmill.store.objects import ObjectStore, open_store
from corpusmill.store.segments import list_segments
from spark_jobs.census import owned_texts
from spark_jobs.frames import SEGMENT, read_files, spark_schema, write_table
from spark_jobs.kept import KeptFrames
from spark_jobs.reading import (
    LISTED,
    PLANNED,
    DocumentCounts,
    TextSteps,
    list_source,
    read_documents,
    rename_repeated,
    run_missing_steps,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROWS_A_FILE = 50_000


@dataclass(frozen=True)
class _Run:
    """What every part of an ingest needs."""

    spark: "SparkSession"
    spec: RunSpec
    store: ObjectStore
    plan: ResolvedPlan
    parent: Manifest | None
    worker: tuple[str, ...]
    counts: DocumentCounts | None
    kept: KeptFrames

    @property
    def partitions(self) -> int:
        return self.spec.settings.spark.partitions

    @property
    def text_steps(self) -> TextSteps:
        steps = tuple(step for step in self.plan.steps if isinstance(step, TextStep))
        return TextSteps(steps, {step.name: self.plan.fingerprints[step.name] for step in steps})

    @property
    def artifact_steps(self) -> dict[str, tuple[str, tuple[str, ...]]]:
        """Step -> (fingerprint, its tables), of texts and all text and document steps."""
        found: dict[str, tuple[str, tuple[str, ...]]] = {TEXTS.name: (TEXT_FINGERPRINT, (TEXTS.name,))}
        for step in self.plan.steps:
            if isinstance(step, TextStep | DocumentStep):
                found[step.name] = (self.plan.fingerprints[step.name], tuple(spec.name for spec in step.outputs))
        return found


def ingest(
    spark: "SparkSession",
    spec: RunSpec,
    worker: Sequence[str] = WORKER_COMMAND,
    counts: DocumentCounts | None = None,
) -> IngestResult:
    """Steps 1 to 4 of a run. `worker` is the command of the converter process; `counts` are kept for who watches.

    Raises SourceError if the source cannot be listed. Documents that cannot be read are rows with their reason.
    """
    store = open_store(spec.index, spec.settings.store)
    parent = load_snapshot(store, spec.parent) if spec.parent is not None else None
    kept = KeptFrames.of(spark, spec, store)
    run = _Run(spark, spec, store, resolved_plan(spec.settings), parent, tuple(worker), counts, kept)
    try:
        return _ingest(run)
    finally:
        kept.drop()


def _ingest(run: _Run) -> IngestResult:
    parent = run.parent
    planned = _planned(run)
    plan, dirty = _counts(planned) if planned is not None else (PlanCounts(), 0)
    documents = _live_documents(run, planned)
    draft = Draft(counts=_live_counts(documents))
    if planned is None or (parent is not None and not dirty):
        draft.put_table(_parent_entry(run))
    else:
        draft.put_table(_write_documents(run, documents, draft.counts.documents))
    plan = plan.model_copy(update={"quarantined": draft.counts.quarantined, "empty": draft.counts.empty})
    result = IngestResult(draft=draft, counts=plan)
    if parent is not None and not dirty and _parent_is_complete(run, parent):
        draft.artifacts = [a for a in parent.artifacts if a.step in run.artifact_steps]
    else:
        _artifacts(run, documents, result)
    if planned is not None:
        planned.unpersist()
    return result


# planning


def _planned(run: _Run) -> "DataFrame | None":
    """PLANNED rows of this source, read and kept; None if the run has no source."""
    from pyspark import StorageLevel
    from pyspark.sql import functions as f

    spec = run.spec
    if spec.source is None:
        return None
    source = Source.parse(spec.source, spec.settings)
    next(source.listing(spec.settings), None)  # a source that cannot be listed at all is an error of the caller's
    listed = run.spark.range(1, numPartitions=1).mapInArrow(
        partial(list_source, spec=spec, counts=run.counts), spark_schema(LISTED)
    )
    if source.records:
        listed = _without_repeats(listed, spec)
    new = listed.select([f.col(name).alias(f"n_{name}") for name in LISTED.names])
    parents = _parent_documents(run).where(f.col("source_id") == spec.source_id)
    old = parents.select([f.col(name).alias(f"o_{name}") for name in DOCUMENTS.schema.names])
    joined = new.repartition(run.partitions, "n_doc_id").join(
        old.repartition(run.partitions, "o_doc_id"), f.col("n_doc_id") == f.col("o_doc_id"), "full_outer"
    )
    converter = f.when(f.col("o_outcome") == "quarantined", limits_fingerprint(spec.settings)).otherwise(
        converter_fingerprint()
    )
    current = (
        (f.col("n_version") == f.col("o_version"))
        & (f.col("o_converter") == converter)
        & f.col("n_problem").isNull()
        & ((f.col("o_outcome") != "quarantined") | f.col("o_raw_hash").isNotNull())
    )
    tasks = joined.withColumn("read", f.col("n_doc_id").isNotNull() & ~f.coalesce(current, f.lit(False)))
    read = partial(read_documents, spec=spec, steps=run.text_steps, command=run.worker, counts=run.counts)
    planned = tasks.mapInArrow(read, spark_schema(PLANNED))
    if run.kept.in_store:
        return run.kept.keep(planned)  # a lost executor must not have its documents read again
    return planned.persist(StorageLevel.DISK_ONLY)


def _without_repeats(listed: "DataFrame", spec: RunSpec) -> "DataFrame":
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    order = Window.partitionBy("doc_id").orderBy("line", "version")
    counted = listed.withColumn("repeat", f.row_number().over(order))
    return counted.mapInArrow(partial(rename_repeated, spec=spec), spark_schema(LISTED))


def _counts(planned: "DataFrame") -> tuple[PlanCounts, int]:
    """What happened to the documents of this source, and how many rows differ from the parent's."""
    from pyspark.sql import functions as f

    of = {
        name: f.count_if(f.col("category") == name).alias(name) for name in ("new", "changed", "deleted", "unchanged")
    }
    row = planned.agg(
        *of.values(), f.count_if("dirty").alias("dirty"), f.count_if("converted").alias("converted")
    ).collect()[0]
    counts = PlanCounts(**{name: row[name] for name in of}, converted=row["converted"])
    if counts.new and counts.deleted:
        moved = _moved(planned)
        counts = counts.model_copy(
            update={"moved": moved, "new": counts.new - moved, "deleted": counts.deleted - moved}
        )
    return counts, row["dirty"]


def _moved(planned: "DataFrame") -> int:
    """New paths whose bytes a deleted path had, each deleted path once."""
    from pyspark.sql import functions as f

    by_bytes = (
        planned.where("raw_hash is not null and category in ('new', 'deleted')")
        .groupBy("raw_hash")
        .agg(f.count_if(f.col("category") == "new").alias("n"), f.count_if(f.col("category") == "deleted").alias("d"))
    )
    return int(by_bytes.agg(f.coalesce(f.sum(f.least("n", "d")), f.lit(0))).collect()[0][0])


# documents


def _parent_entry(run: _Run) -> TableEntry:
    if run.parent is not None:
        return run.parent.table(DOCUMENTS.name)
    return _documents_entry(run, (), RowsDigest())


def _parent_documents(run: _Run) -> "DataFrame":
    if run.parent is None:
        return run.spark.createDataFrame([], spark_schema(DOCUMENTS.schema))
    named = [("", file) for file in _parent_entry(run).files]
    return read_files(run.spark, run.store, named, DOCUMENTS.schema, run.partitions).drop(SEGMENT)


def _live_documents(run: _Run, planned: "DataFrame | None") -> "DataFrame":
    """The rows of `documents` after this run: of this source as planned, of others as they were."""
    from pyspark.sql import functions as f

    if planned is None:
        return _parent_documents(run)
    kept = planned.where("category <> 'deleted'").select(*DOCUMENTS.schema.names)
    if run.parent is None:
        return kept
    others = _parent_documents(run).where(f.col("source_id") != run.spec.source_id)
    return kept.unionAll(others.select(*DOCUMENTS.schema.names))


def _write_documents(run: _Run, documents: "DataFrame", rows: int) -> TableEntry:
    number = max(1, min(run.partitions, -(-rows // _ROWS_A_FILE)))
    files, digest = write_table(documents.repartition(number, "doc_id"), run.store, run.spec.run, DOCUMENTS)
    return _documents_entry(run, files, digest)


def _documents_entry(run: _Run, files: tuple[FileEntry, ...], digest: RowsDigest) -> TableEntry:
    return TableEntry(
        name=DOCUMENTS.name,
        step="source",
        fingerprint=converter_fingerprint(),
        methods=tuple(run.spec.settings.run.methods),
        key=DOCUMENTS.key,
        rows=digest.rows,
        digest=digest.hex,
        files=files,
    )


def _live_counts(documents: "DataFrame") -> Counts:
    from pyspark.sql import functions as f

    row = documents.agg(
        f.count("*").alias("documents"),
        *[f.count_if(f.col("outcome") == name).alias(name) for name in ("indexed", "empty", "quarantined")],
        f.count_distinct("text_hash").alias("texts"),
    ).collect()[0]
    return Counts(**row.asDict())


# artifacts


def _parent_is_complete(run: _Run, parent: Manifest) -> bool:
    """Whether the parent has every artifact of this plan, for every text."""
    have = {a.step: a.fingerprint for a in parent.artifacts}
    wanted = {step: fingerprint for step, (fingerprint, _) in run.artifact_steps.items()}
    return parent.partial_texts == 0 and all(have.get(step) == print_ for step, print_ in wanted.items())


def _artifacts(run: _Run, documents: "DataFrame", result: IngestResult) -> None:
    """Run text steps where they are missing; put the owning segments into the draft and write the todo files."""
    documents = documents.select("text_hash").where("text_hash is not null").distinct().persist()
    owned = _owned(run, documents, _all_segments(run)).persist()
    if _run_missing(run, owned, result.draft.counts.texts):
        owned.unpersist()
        owned = _owned(run, documents, _all_segments(run)).persist()
    owners: dict[str, set[str]] = {}
    for row in owned.select("step", "segment").distinct().collect():
        owners.setdefault(row["step"], set()).add(row["segment"])
    for artifact in _all_segments(run):
        mine = [segment for segment in artifact.segments if segment.id in owners.get(artifact.step, set())]
        result.draft.add_segments(artifact.step, artifact.fingerprint, artifact.tables, mine)
    _write_todo(run, owned, result)
    owned.unpersist()
    documents.unpersist()


def _all_segments(run: _Run) -> list[ArtifactEntry]:
    """Every sealed segment of the plan's text and document steps, whichever run made it."""
    known: dict[str, Sequence[SegmentEntry]] = {}
    for artifact in run.parent.artifacts if run.parent is not None else ():
        known[artifact.fingerprint] = artifact.segments
    return [
        ArtifactEntry(
            step=step,
            fingerprint=print_,
            tables=tables,
            segments=tuple(list_segments(run.store, print_, known.get(print_, ()))),
        )
        for step, (print_, tables) in run.artifact_steps.items()
    ]


def _owned(run: _Run, documents: "DataFrame", artifacts: list[ArtifactEntry]) -> "DataFrame":
    return owned_texts(run.spark, run.store, run.partitions, documents, artifacts).select(
        "step", "text_hash", "segment", "complete"
    )


def _have(run: _Run, owned: "DataFrame") -> "DataFrame":
    """text_hash -> `have`: map of step to owning segment, and `complete`: steps. Incomplete artifacts of document steps
    are left out, since builders make these anew; of text steps they stay, since builders must take what is there."""
    from pyspark.sql import functions as f

    text_steps = [step.name for step in run.text_steps.steps]
    pairs = owned.where(f.col("complete") | f.col("step").isin(text_steps)).groupBy("text_hash")
    entries = f.array_sort(f.collect_list(f.struct("step", "segment")))
    whole = f.collect_list(f.when(f.col("complete"), f.col("step")))
    return pairs.agg(f.map_from_entries(entries).alias("have"), whole.alias("complete"))


def _run_missing(run: _Run, owned: "DataFrame", texts: int) -> int:
    """Text steps of live texts that no task of this run chunked: texts of earlier runs, under other settings."""
    from pyspark.sql import functions as f

    names = [step.name for step in run.text_steps.steps]
    complete = owned.where(f.col("complete") & f.col("step").isin(names)).count() if names else 0
    if complete == len(names) * texts:
        return 0
    missing = f.array_except(f.array(*map(f.lit, names)), "complete")
    lacking = _have(run, owned).withColumn("missing", missing).where("size(missing) > 0")
    stored = next(artifact for artifact in _all_segments(run) if artifact.step == TEXTS.name)
    by_segment = lacking.select(f.col("have")[TEXTS.name].alias("id"), "text_hash", "missing").where("id is not null")
    grouped = by_segment.groupBy("id").agg(f.collect_list(f.struct("text_hash", "missing")).alias("texts"))
    wanted = {row["id"] for row in grouped.select("id").collect()}
    if not wanted:
        return 0
    entries = pa.table(
        {
            "id": [segment.id for segment in stored.segments if segment.id in wanted],
            "segment": [segment.model_dump_json() for segment in stored.segments if segment.id in wanted],
        }
    )
    work = grouped.join(run.spark.createDataFrame(entries), "id").select("segment", "texts")
    made = work.repartition(run.partitions, "segment").mapInArrow(
        partial(run_missing_steps, spec=run.spec, steps=run.text_steps), "texts long"
    )
    return int(made.agg(f.coalesce(f.sum("texts"), f.lit(0))).collect()[0][0])


def _write_todo(run: _Run, owned: "DataFrame", result: IngestResult) -> None:
    """Live texts that lack a complete artifact of a document step, grouped by the segment that holds the text."""
    from pyspark.sql import functions as f

    documents = [step.name for step in run.plan.steps if isinstance(step, DocumentStep)]
    if not documents:
        return
    names = [*documents, *(step.name for step in run.text_steps.steps)]
    rows = _have(run, owned).withColumn("missing", f.array_except(f.array(*map(f.lit, names)), "complete"))
    rows = rows.where(f.size(f.array_except(f.array(*map(f.lit, documents)), "complete")) > 0)
    todo = rows.withColumn("segment", f.col("have")[TEXTS.name]).select(*TODO.schema.names)
    files, digest = write_table(todo.repartition(run.partitions, "segment"), run.store, run.spec.run, TODO)
    result.todo = list(files)
    result.todo_texts = digest.rows
