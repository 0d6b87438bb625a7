"""A plan run inside this process over tables in memory, for benchmarks and tests: no store, no Ray.

Text, document, map and build steps run as they are. Corpus steps run on a local Spark session (`spark_corpus`), or on
whatever function is given for them.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel

from corpusmill.building import build_text
from corpusmill.hashing import content_id, hash_text
from corpusmill.models.factory import embedder_dim, model_fingerprints
from corpusmill.planning import method_entries, resolved_plan
from corpusmill.schemas import DOCUMENTS, TEXTS
from corpusmill.settings import Settings
from corpusmill.steps import (
    BuildStep,
    CorpusStep,
    DocumentStep,
    FlatMap,
    GroupMap,
    MapStep,
    Models,
    ResolvedPlan,
    Sql,
    StepContext,
    Text,
    TextContext,
    TextStep,
)
from corpusmill.store.manifest import Counts, Manifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Tables = dict[str, pa.Table]
RunCorpus = Callable[[CorpusStep, Mapping[str, pa.Table], Settings], Tables]


@dataclass(frozen=True)
class Document:
    path: str
    title: str
    text: str


@dataclass
class MemorySnapshot:
    """methods.protocol.Snapshot, and a manifest, over tables in memory; index files lie under `folder`/<step>/."""

    tables: Tables
    folder: Path
    source: Manifest
    _texts: dict[str, str] = field(default_factory=dict)

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        whole = self.tables[name]
        return whole if columns is None else whole.select(list(columns))

    def index_file(self, step: str, name: str) -> Path:
        return self.folder / step / name

    def text(self, text_hash: str) -> str:
        if not self._texts:
            rows = self.tables["texts"].to_pylist()
            self._texts.update({row["text_hash"]: row["text"] for row in rows})
        return self._texts[text_hash]

    def documents_of(self, text_hash: str) -> Sequence[Mapping[str, object]]:
        documents = self.tables["documents"]
        rows: list[Mapping[str, object]] = documents.filter(pc.equal(documents["text_hash"], text_hash)).to_pylist()
        return rows


@dataclass
class MemoryBuild:
    """steps.BuildContext over tables in memory."""

    settings: BaseModel
    scratch: Path
    seed: int
    tables: Mapping[str, pa.Table]
    made: Tables = field(default_factory=dict)

    def index_file(self, step: str, name: str) -> Path:
        return self.scratch.parent / step / name

    def put(self, table: str, rows: pa.Table) -> None:
        self.made[table] = pa.concat_tables([self.made[table], rows]) if table in self.made else rows

    def cluster(self, call: Callable[..., Sequence[np.ndarray]], *args: object) -> Sequence[np.ndarray]:
        return call(*args)

    def batches(self, table: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        whole = self.tables[table]
        yield from (whole if columns is None else whole.select(list(columns))).to_batches(max_chunksize=512)

    def rows(self, table: str) -> int:
        return int(self.tables[table].num_rows)

    def progress(self, message: str) -> None:
        return None


async def index(
    documents: Sequence[Document],
    settings: Settings,
    models: Models,
    folder: Path,
    run_corpus: RunCorpus,
    in_flight: int = 16,
) -> MemorySnapshot:
    """Run the plan of `settings` over the documents; index files go under `folder`."""
    plan = resolved_plan(settings)
    tables = _source_tables(documents)
    texts = [Text(row["text_hash"], row["text"]) for row in tables["texts"].to_pylist()]
    made = await _build_texts(texts, plan, models, in_flight)
    for step in plan.steps:
        if isinstance(step, TextStep | DocumentStep):
            for spec in step.outputs:
                parts = [own[spec.name] for own in made if spec.name in own]
                tables[spec.name] = sorted_table(pa.concat_tables(parts or [spec.empty()]), spec.key)
        elif isinstance(step, CorpusStep):
            found = run_corpus(step, {name: tables[name] for name in (*step.inputs, "documents")}, settings)
            for spec in step.outputs:
                tables[spec.name] = sorted_table(found[spec.name].select(spec.schema.names).cast(spec.schema), spec.key)
        elif isinstance(step, MapStep):
            sides = {name: tables[name] for name in step.inputs[1:]}
            context = StepContext(
                step.settings, plan.fingerprints[step.name], models, sides, lambda own, name: folder / own / name
            )
            tables.update((await step.run(tables[step.inputs[0]], context)).tables)
        elif isinstance(step, BuildStep):
            scratch = folder / step.name
            scratch.mkdir(parents=True, exist_ok=True)
            build = MemoryBuild(step.settings, scratch, settings.run.seed, tables)
            step.run(build)
            for spec in step.outputs:
                made_rows = build.made.get(spec.name, spec.empty())
                tables[spec.name] = sorted_table(made_rows.cast(spec.schema), spec.key)
    return MemorySnapshot(tables, folder, manifest(settings, plan, len(documents)))


def sorted_table(table: pa.Table, key: Iterable[str]) -> pa.Table:
    return table.combine_chunks().sort_by([(name, "ascending") for name in key])


def manifest(settings: Settings, plan: ResolvedPlan, documents: int) -> Manifest:
    """A manifest that names the methods and the embedder; it lists no files."""
    prints = model_fingerprints(settings)
    return Manifest(
        number=1,
        parent=None,
        commit="memory",
        run="memory",
        created="1970-01-01T00:00:00Z",
        corpusmill="0",
        digest="",
        config={},
        config_fingerprint="",
        methods=method_entries(settings, plan),
        models=dict(prints.roles),
        embedder=prints.embedder,
        dim=embedder_dim(settings),
        artifacts=(),
        tables=(),
        index_files=(),
        counts=Counts(documents=documents),
    )


def _source_tables(documents: Sequence[Document]) -> Tables:
    rows: list[dict[str, object]] = []
    texts: dict[str, str] = {}
    for document in documents:
        text_hash = hash_text(document.text)
        texts[text_hash] = document.text
        rows.append(
            {
                "doc_id": content_id("document", "memory", document.path),
                "source_id": "memory",
                "path": document.path,
                "uri": f"memory:{document.path}",
                "title": document.title,
                "media_type": "text/plain",
                "size": len(document.text),
                "version": text_hash,
                "raw_hash": text_hash,
                "converter": "none",
                "text_hash": text_hash,
                "chars": len(document.text),
                "metadata": "{}",
                "metadata_hash": "",
                "labels": [],
                "outcome": "indexed",
                "reason": None,
                "attempts": 1,
            }
        )
    stored: list[dict[str, object]] = [{"text_hash": h, "text": texts[h]} for h in sorted(texts)]
    return {"documents": sorted_table(DOCUMENTS.table(rows), DOCUMENTS.key), "texts": TEXTS.table(stored)}


async def _build_texts(texts: Sequence[Text], plan: ResolvedPlan, models: Models, in_flight: int) -> list[Tables]:
    gate = asyncio.Semaphore(in_flight)
    steps = [step for step in plan.steps if isinstance(step, DocumentStep)]

    async def one(text: Text) -> Tables:
        own: Tables = {}
        async with gate:
            for step in plan.steps:
                if isinstance(step, TextStep):
                    own.update(step.run(text, own, TextContext(step.settings, plan.fingerprints[step.name])))
            found: Tables = {}
            await build_text(text, own, steps, plan, models, lambda built: found.update(built.output.tables))
        return {**own, **found}

    return list(await asyncio.gather(*(one(text) for text in texts)))


def spark_corpus(step: CorpusStep, tables: Mapping[str, pa.Table], settings: Settings) -> Tables:
    """The step's operations on a local Spark session, its outputs collected."""
    from spark_jobs.components import connected_components
    from spark_jobs.frames import flat_map, group_map, plain_schema
    from spark_jobs.session import spark_session

    spark = spark_session(settings, "corpusmill in-process")
    frames: dict[str, DataFrame] = {
        name: spark.createDataFrame(table.cast(plain_schema(table.schema))) for name, table in tables.items()
    }
    for op in step.ops:
        if isinstance(op, Sql):
            for name, frame in frames.items():
                frame.createOrReplaceTempView(name)
            made = spark.sql(op.query)
        elif isinstance(op, FlatMap):
            made = flat_map(frames[op.input], op.fn, op.schema)
        elif isinstance(op, GroupMap):
            made = group_map([frames[name] for name in op.inputs], op.by, op.fn, op.schema)
        else:
            made = connected_components(spark, frames[op.edges], settings.spark)
        frames[op.name] = made.localCheckpoint(eager=True)
    return {spec.name: frames[spec.name].toArrow() for spec in step.outputs}
