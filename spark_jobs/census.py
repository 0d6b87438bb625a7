"""The census: which segment owns which live text, and so the rows and digest of every artifact table.

A text is live if a document has it. Of several segments that hold it, the first complete one in the order of ids owns
it, else the first. Digests are additive and stand in the segments' indexes, so no table is read. The driver gets sums
by partition and the list of segments that own something.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from corpusmill.digest import RowsDigest
from corpusmill.planning import resolved_plan, table_methods
from corpusmill.run import RunSpec
from corpusmill.schemas import DOCUMENTS, TEXTS
from corpusmill.steps import DocumentStep, ResolvedPlan, TextStep
from corpusmill.store.draft import Draft
from corpusmill.store.manifest import ArtifactEntry, Counts, TableEntry
from corpusmill.store.objects import ObjectStore, open_store
from corpusmill.store.segments import INDEX_SCHEMA
from spark_jobs.frames import SEGMENT, read_files, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_INDEX = pa.schema([INDEX_SCHEMA.field(name) for name in ("text_hash", "complete", "tables")])
_SUMS = pa.schema(
    [
        pa.field("step", pa.string()),
        pa.field("table", pa.string()),  # null: `rows` counts owned texts, `segments` are those that own one
        pa.field("rows", pa.int64()),
        pa.field("digest", pa.string()),
        pa.field("segments", pa.list_(pa.string())),
    ]
)


@dataclass
class _StepSums:
    texts: int = 0
    tables: dict[str, RowsDigest] = field(default_factory=dict)
    segments: set[str] = field(default_factory=set)


def documents_frame(spark: "SparkSession", store: ObjectStore, spec: RunSpec, draft: Draft) -> "DataFrame":
    entry = next(table for table in draft.tables if table.name == DOCUMENTS.name)
    files = [("", file) for file in entry.files]
    return read_files(spark, store, files, DOCUMENTS.schema, spec.settings.spark.partitions).drop(SEGMENT)


def owned_texts(
    spark: "SparkSession",
    store: ObjectStore,
    partitions: int,
    documents: "DataFrame",
    artifacts: list[ArtifactEntry],
) -> "DataFrame":
    """(step, text_hash, segment, complete, tables) of every live text that the steps' segments hold, by its owner."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    files = [(f"{a.step}/{segment.id}", segment.index) for a in artifacts for segment in a.segments]
    place = f.split(f.col(SEGMENT), "/")
    rows = read_files(spark, store, files, _INDEX, partitions).select(
        place[0].alias("step"), place[1].alias("segment"), *_INDEX.names
    )
    live = documents.select("text_hash").where(f.col("text_hash").isNotNull()).distinct()
    first = Window.partitionBy("text_hash", "step").orderBy(f.col("complete").desc(), "segment")
    ranked = rows.join(live, "text_hash", "left_semi").withColumn("rank", f.row_number().over(first))
    return ranked.where("rank = 1").drop("rank")


def census(spark: "SparkSession", spec: RunSpec, draft: Draft, plan: ResolvedPlan | None = None) -> Draft:
    """The draft with an entry for each artifact table, its counts, and only those segments that own a live text."""
    store = open_store(spec.index, spec.settings.store)
    plan = plan or resolved_plan(spec.settings)
    draft = draft.model_copy(deep=True)
    documents = documents_frame(spark, store, spec, draft).select("text_hash", "outcome").persist()
    owned = owned_texts(spark, store, spec.settings.spark.partitions, documents, draft.artifacts).persist()
    sums = _sums(owned)
    draft.artifacts = [_owning(artifact, sums.get(artifact.step, _StepSums())) for artifact in draft.artifacts]
    draft.counts, draft.partial_texts = _counts(documents, owned)
    for artifact in draft.artifacts:
        for table in artifact.tables:
            digest = sums.get(artifact.step, _StepSums()).tables.get(table, RowsDigest())
            draft.put_table(_entry(spec, plan, artifact, table, digest))
    for step in plan.steps:
        if isinstance(step, TextStep | DocumentStep):
            _fill_in(spec, plan, draft, step)
    owned.unpersist()
    documents.unpersist()
    return draft


def counted(draft: Draft, plan: ResolvedPlan) -> bool:
    """Whether a census has been taken of this draft."""
    made = {table.name for table in draft.tables}
    steps = [step for step in plan.steps if isinstance(step, TextStep | DocumentStep)]
    return all(spec.name in made for step in steps for spec in step.outputs) and (
        all(table in made for artifact in draft.artifacts for table in artifact.tables)
    )


def _sums(owned: "DataFrame") -> dict[str, _StepSums]:
    """Owned texts, segments and table digests of each step."""
    partials = owned.select("step", "segment", "tables").mapInArrow(_add_up, spark_schema(_SUMS)).toArrow()
    found: dict[str, _StepSums] = {}
    for row in partials.to_pylist():
        step = found.setdefault(row["step"], _StepSums())
        if row["table"] is None:
            step.texts += row["rows"]
            step.segments.update(row["segments"])
        else:
            part = RowsDigest.parse(row["rows"], row["digest"])
            step.tables[row["table"]] = step.tables.get(row["table"], RowsDigest()) + part
    return found


def _add_up(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    steps: dict[str, _StepSums] = {}
    for batch in batches:
        for row in batch.to_pylist():
            step = steps.setdefault(row["step"], _StepSums())
            step.texts += 1
            step.segments.add(row["segment"])
            for table in row["tables"]:
                digest = RowsDigest.parse(table["rows"], table["digest"])
                step.tables[table["name"]] = step.tables.get(table["name"], RowsDigest()) + digest
    rows: list[dict[str, object]] = []
    for name, step in steps.items():
        rows.append({"step": name, "rows": step.texts, "segments": sorted(step.segments)})
        rows += [{"step": name, "table": t, "rows": d.rows, "digest": d.hex} for t, d in step.tables.items()]
    yield pa.RecordBatch.from_pylist(rows, schema=_SUMS)


def _owning(artifact: ArtifactEntry, sums: _StepSums) -> ArtifactEntry:
    kept = tuple(segment for segment in artifact.segments if segment.id in sums.segments)
    return artifact.model_copy(update={"segments": kept})


def _counts(documents: "DataFrame", owned: "DataFrame") -> tuple[Counts, int]:
    """Documents by outcome, texts, and how many live texts lack a complete artifact of some step."""
    from pyspark.sql import functions as f

    partial_texts = owned.where(~f.col("complete")).select("text_hash").distinct().withColumn("partial", f.lit(True))
    joined = documents.join(partial_texts, "text_hash", "left")
    has_partial = f.coalesce(f.col("partial"), f.lit(False))
    row = joined.agg(
        f.count("*").alias("documents"),
        f.count_if(f.col("outcome") == "indexed").alias("indexed"),
        f.count_if(f.col("outcome") == "empty").alias("empty"),
        f.count_if(f.col("outcome") == "quarantined").alias("quarantined"),
        f.count_if((f.col("outcome") == "indexed") & has_partial).alias("partial"),
        f.count_distinct("text_hash").alias("texts"),
        f.count_distinct(f.when(has_partial, f.col("text_hash"))).alias("partial_texts"),
    ).collect()[0]
    counts = row.asDict()
    partial_count = counts.pop("partial_texts")
    return Counts(**counts), partial_count


def _entry(spec: RunSpec, plan: ResolvedPlan, artifact: ArtifactEntry, table: str, digest: RowsDigest) -> TableEntry:
    step = plan.producers.get(table)
    known = step == artifact.step
    methods = table_methods(spec.settings, artifact.step) if known else tuple(spec.settings.run.methods)
    return TableEntry(
        name=table,
        step=artifact.step,
        fingerprint=artifact.fingerprint,
        methods=methods,
        key=plan.spec(table).key if known else TEXTS.key,
        rows=digest.rows,
        digest=digest.hex,
        artifact=artifact.step,
    )


def _fill_in(spec: RunSpec, plan: ResolvedPlan, draft: Draft, step: TextStep | DocumentStep) -> None:
    """An artifact without segments and empty tables, for a step that had no text to work on."""
    if all(artifact.step != step.name for artifact in draft.artifacts):
        names = tuple(table.name for table in step.outputs)
        draft.add_segments(step.name, plan.fingerprints[step.name], names, [])
        artifact = next(a for a in draft.artifacts if a.step == step.name)
        for name in names:
            draft.put_table(_entry(spec, plan, artifact, name, RowsDigest()))
