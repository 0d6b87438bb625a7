"""Corpus steps on Spark: SQL, grouped maps over Arrow and connected components, over live, owned rows."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from corpusmill.drafting import table_entry
from corpusmill.errors import ConfigError
from corpusmill.planning import made_from, resolved_plan, take_over
from corpusmill.run import RunSpec
from corpusmill.schemas import DOCUMENTS, TEXTS, TableSpec
from corpusmill.steps import CorpusOp, CorpusStep, FlatMap, GroupMap, ResolvedPlan, Sql
from corpusmill.store.draft import Draft
from corpusmill.store.manifest import Manifest
from corpusmill.store.objects import ObjectStore, open_store
from spark_jobs.census import census, counted, documents_frame, owned_texts
from spark_jobs.components import connected_components
from spark_jobs.frames import SEGMENT, flat_map, group_map, read_files, write_table
from spark_jobs.kept import KeptFrames

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def run_corpus(
    spark: "SparkSession",
    spec: RunSpec,
    draft: Draft,
    steps: Sequence[str],
    parent: Manifest | None,
    plan: ResolvedPlan | None = None,
) -> Draft:
    """The draft after its census (if none was taken yet) and the named corpus steps, in order.

    A step whose inputs equal those of the parent's tables is not run. `plan` is that of the settings if none is given.
    Raises ConfigError for a step that is no corpus step of the plan, GraphFramesNeededError (see components.py).
    """
    plan = plan or resolved_plan(spec.settings)
    chosen = [_corpus_step(plan, name) for name in steps]
    draft = census(spark, spec, draft, plan) if not counted(draft, plan) else draft.model_copy(deep=True)
    store = open_store(spec.index, spec.settings.store)
    for step in chosen:
        if not take_over(step, plan, draft, parent):
            kept = KeptFrames.of(spark, spec, store)
            try:
                _Runner(spark, store, spec, plan, draft, step, kept).run()
            finally:
                kept.drop()
    return draft


def _corpus_step(plan: ResolvedPlan, name: str) -> CorpusStep:
    found = [step for step in plan.of_kind(CorpusStep) if step.name == name]
    if not found:
        choices = ", ".join(step.name for step in plan.of_kind(CorpusStep)) or "none"
        raise ConfigError(f"the plan has no corpus step {name!r}; corpus steps: {choices}")
    step = found[0]
    assert isinstance(step, CorpusStep)
    return step


@dataclass
class _Runner:
    """One corpus step and its frames by name."""

    spark: "SparkSession"
    store: ObjectStore
    spec: RunSpec
    plan: ResolvedPlan
    draft: Draft
    step: CorpusStep
    kept: KeptFrames
    frames: dict[str, "DataFrame"] = field(default_factory=dict)
    owners: "DataFrame | None" = None
    owned: dict[str, int] = field(default_factory=dict)

    def run(self) -> None:
        identity = made_from(self.step, self.plan, self.draft)
        self.frames["documents"] = documents_frame(self.spark, self.store, self.spec, self.draft)
        for name in self.step.inputs:
            if name != DOCUMENTS.name:
                self.frames[name] = self._input(name)
        for place, op in enumerate(self.step.ops):
            self._describe(op.name)
            frame = self._apply(op)
            uses = sum(op.name in _reads(later) for later in self.step.ops[place + 1 :])
            uses += any(output.name == op.name for output in self.step.outputs)
            self.frames[op.name] = self.kept.keep(frame) if uses > 1 else frame
        for output in self.step.outputs:
            self._describe(output.name)
            self._write(output.name, identity)

    def _describe(self, name: str) -> None:
        """What Spark's own pages and event log call the jobs that follow."""
        self.spark.sparkContext.setJobDescription(f"{self.step.name}: {name}")

    def _input(self, name: str, query: str | None = None) -> "DataFrame":
        """Rows of a table that count: those of live texts, from the segment that owns each. With the columns that a
        query names, if one is given: nothing else is read, least of all vectors."""
        entry = next(table for table in self.draft.tables if table.name == name)
        spec = TEXTS if name == TEXTS.name else self.plan.spec(name)
        schema = spec.schema if query is None else named_columns(spec, query)
        partitions = self.spec.settings.spark.partitions
        if entry.artifact is None:
            files = [("", file) for file in entry.files]
            return read_files(self.spark, self.store, files, schema, partitions).drop(SEGMENT)
        artifact = next(a for a in self.draft.artifacts if a.step == entry.artifact)
        files = [(segment.id, segment.files[name]) for segment in artifact.segments]
        rows = read_files(self.spark, self.store, files, schema, partitions)
        owned = self._owned_by_step().get(artifact.step, 0)
        if owned == sum(segment.index.rows for segment in artifact.segments):
            return rows.drop(SEGMENT)
        assert self.owners is not None
        owners = self.owners.where(f"step = '{artifact.step}'").select("text_hash", "segment")
        matches = [rows["text_hash"] == owners["text_hash"], rows[SEGMENT] == owners["segment"]]
        return rows.join(owners, matches, "left_semi").drop(SEGMENT)

    def _owned_by_step(self) -> dict[str, int]:
        """How many texts each step's segments own, for the steps that this one reads; `owners` says which."""
        if self.owners is None:
            steps = {table.artifact for table in self.draft.tables if table.name in self.step.inputs}
            artifacts = self.draft.artifacts
            partitions = self.spec.settings.spark.partitions
            found = owned_texts(self.spark, self.store, partitions, self.frames["documents"], artifacts)
            mine = found.where(found["step"].isin([step for step in steps if step]))
            self.owners = self.kept.keep(mine.select("step", "text_hash", "segment"))
            self.owned = {row["step"]: row["count"] for row in self.owners.groupBy("step").count().collect()}
        return self.owned

    def _apply(self, op: CorpusOp) -> "DataFrame":
        if isinstance(op, Sql):
            return self._sql(op)
        if isinstance(op, FlatMap):
            return flat_map(self.frames[op.input], op.fn, op.schema)
        if isinstance(op, GroupMap):
            return group_map([self.frames[name] for name in op.inputs], op.by, op.fn, op.schema)
        return connected_components(self.spark, self.frames[op.edges], self.spec.settings.spark, self.kept.keep)

    def _sql(self, op: Sql) -> "DataFrame":
        """The query over the names it reads, each a view of its own that lives as long as the query is analysed."""
        names = [name for name in self.frames if name in _reads(op)]
        views = {name: f"{name}_{uuid4().hex}" for name in names}
        for name, view in views.items():
            stored = name in self.step.inputs and name != DOCUMENTS.name
            frame = self._input(name, op.query) if stored else self.frames[name]
            frame.createOrReplaceTempView(view)
        bound = ", ".join(f"{name} AS (SELECT * FROM {view})" for name, view in views.items())
        try:
            return self.spark.sql(f"WITH {bound} SELECT * FROM ({op.query})" if bound else op.query)
        finally:
            for view in views.values():
                self.spark.catalog.dropTempView(view)

    def _write(self, name: str, identity: str) -> None:
        table = self.plan.spec(name)
        files, digest = write_table(self.frames[name], self.store, self.spec.run, table)
        self.draft.put_table(table_entry(self.spec.settings, self.plan, self.step, table, files, digest, identity))


def named_columns(spec: TableSpec, query: str) -> pa.Schema:
    """The columns of a table that a query may mean: those whose names are words of it, and those by which rows are
    matched with their owners; all where it may mean columns without their names."""
    words = {word.lower() for word in re.findall(r"\w+", query)}
    if re.search(r"(?<!count\()\*", query) or "natural" in words:
        return spec.schema
    wanted = words | {"text_hash", *spec.key}
    return pa.schema([column for column in spec.schema if column.name.lower() in wanted])


def _reads(op: CorpusOp) -> set[str]:
    """Names that an operation may read (for SQL: all its words)."""
    if isinstance(op, Sql):
        return set(re.findall(r"\w+", op.query))
    if isinstance(op, GroupMap):
        return set(op.inputs)
    return {op.input} if isinstance(op, FlatMap) else {op.edges}
