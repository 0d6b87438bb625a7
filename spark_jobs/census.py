"""The census: which segment owns which live text, and so the rows and digest of every artifact table.

A text is live if a document has it. Of several segments that hold it, one owns it: see store/ownership.py. Digests are
additive and stand in the segments' indexes, so no table is read. The driver gets sums by partition and the list of
segments that own something.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.digest import RowsDigest
from corpusmill.errors import RunFailedError
from corpusmill.planning import resolved_plan, table_methods
from corpusmill.run import RunSpec
from corpusmill.schemas import DOCUMENTS, TEXTS
from corpusmill.steps import DocumentStep, ResolvedPlan, TextStep
from corpusmill.store.draft import Draft
from corpusmill.store.manifest import ArtifactEntry, Counts, FileEntry, TableEntry
from corpusmill.store.objects import ObjectStore, open_store
from corpusmill.store.ownership import LINEAGE_COLUMNS, owner_rows, with_lineage
from corpusmill.store.segments import INDEX_SCHEMA
from corpusmill.store.tables import iter_table_file
from spark_jobs.frames import SEGMENT, local_frame, plain_schema, read_files, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ARTIFACTS = plain_schema(
    pa.schema(
        [
            pa.field("step", pa.string()),
            pa.field("segment", pa.string()),
            *(INDEX_SCHEMA.field(name) for name in LINEAGE_COLUMNS),
        ]
    )
)
_OWNED = pa.schema([field for field in _ARTIFACTS if field.name != "made_from"])
_SUMS = pa.schema(
    [
        pa.field("step", pa.string()),
        pa.field("table", pa.string()),  # null: `rows` counts owned texts, `segments` are those that own one
        pa.field("rows", pa.int64()),
        pa.field("digest", pa.string()),
        pa.field("segments", pa.list_(pa.string())),
    ]
)


_KINDS = [_ARTIFACTS.field(name).type for name in LINEAGE_COLUMNS]


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
    """(step, segment, text_hash, complete, tables) of every live text and step, by its owner. `artifacts` are those of
    all steps: what one step made counts only with what it was made from."""
    from pyspark.sql import functions as f

    files = [(a.step, segment.id, segment.index) for a in artifacts for segment in a.segments]
    steps, segments, entries = zip(*files, strict=True) if files else ((), (), ())
    listing = {"step": steps, "segment": segments, "file": [entry.model_dump_json() for entry in entries]}
    table = pa.table({name: pa.array(values, pa.string()) for name, values in listing.items()})
    read = local_frame(spark, table, partitions).mapInArrow(partial(_read, store=store), spark_schema(_ARTIFACTS))
    live = documents.select("text_hash").where(f.col("text_hash").isNotNull()).distinct()
    rows = read.join(live, "text_hash", "left_semi").select(*_ARTIFACTS.names)
    by_text = rows.repartition(partitions, "text_hash").sortWithinPartitions("text_hash")
    return by_text.mapInArrow(_owning_rows, spark_schema(_OWNED))


def _read(batches: Iterator[pa.RecordBatch], store: ObjectStore) -> Iterator[pa.RecordBatch]:
    """(step, segment, file) to the rows of these segment indexes."""
    for batch in batches:
        for row in batch.to_pylist():
            for found in iter_table_file(store, FileEntry.model_validate_json(row["file"]), LINEAGE_COLUMNS):
                index = with_lineage(pa.Table.from_batches([found])).select(LINEAGE_COLUMNS).combine_chunks()
                names = [pa.array([row[name]] * index.num_rows, pa.string()) for name in ("step", "segment")]
                yield pa.RecordBatch.from_arrays(
                    [*names, *(column.cast(kind).chunk(0) for column, kind in zip(index.columns, _KINDS, strict=True))],
                    schema=_ARTIFACTS,
                )


def _owning_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Of rows sorted by text, those that count. The last text of a batch waits for the next: it may go on there."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        if not batch.num_rows:
            continue
        last = batch.column("text_hash")[-1]
        start = pc.index(batch.column("text_hash"), last).as_py()
        if start:
            yield from _chosen([*held, batch.slice(0, start)])
            held = []
        elif held and held[0].column("text_hash")[0] != last:
            yield from _chosen(held)
            held = []
        held.append(batch.slice(start))
    if held:
        yield from _chosen(held)


def _chosen(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = pa.Table.from_batches(batches)
    yield from rows.take(owner_rows(rows)).select(_OWNED.names).to_batches()


def census(spark: "SparkSession", spec: RunSpec, draft: Draft, plan: ResolvedPlan | None = None) -> Draft:
    """The draft with an entry for each artifact table, its counts, and only those segments that own a live text.

    Raises RunFailedError if live texts have no artifact of a step of the plan, complete or not.
    """
    store = open_store(spec.index, spec.settings.store)
    plan = plan or resolved_plan(spec.settings)
    draft = draft.model_copy(deep=True)
    documents = documents_frame(spark, store, spec, draft).select("text_hash", "outcome").persist()
    owned = owned_texts(spark, store, spec.settings.spark.partitions, documents, draft.artifacts).persist()
    sums = _sums(owned)
    draft.artifacts = [_owning(artifact, sums.get(artifact.step, _StepSums())) for artifact in draft.artifacts]
    draft.counts, draft.partial_texts = _counts(documents, owned)
    _refuse_missing(plan, sums, draft.counts.texts)
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


def _refuse_missing(plan: ResolvedPlan, sums: dict[str, _StepSums], texts: int) -> None:
    steps = [TEXTS.name, *(step.name for step in plan.steps if isinstance(step, TextStep | DocumentStep))]
    lacking = {step: texts - sums.get(step, _StepSums()).texts for step in steps}
    said = [f"{count} of step {step!r}" for step, count in lacking.items() if count]
    if said:
        raise RunFailedError(f"of {texts} live texts, artifacts are missing: {', '.join(said)}; nothing was published")


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
