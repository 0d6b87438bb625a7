"""The tasks of ingest that touch documents: listing, reading and converting, text steps."""

import atexit
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from corpusmill.digest import RowsDigest, rows_digest
from corpusmill.errors import CorpusmillError
from corpusmill.planning import TEXT_FINGERPRINT
from corpusmill.run import RunSpec
from corpusmill.schemas import DOCUMENTS, TEXTS
from corpusmill.settings import ConvertSettings
from corpusmill.sources.listing import Listed, Record, Source, document_id
from corpusmill.sources.reading import DocumentReader
from corpusmill.sources.records import told_place
from corpusmill.sources.sandbox import Sandbox
from corpusmill.steps import Text, TextContext, TextStep
from corpusmill.store.manifest import SegmentEntry
from corpusmill.store.objects import ObjectStore, open_store
from corpusmill.store.segments import SegmentWriter, TextArtifact, conformed, list_segments, read_segment_index
from spark_jobs.frames import plain_schema

if TYPE_CHECKING:
    from pyspark import Accumulator
    from pyspark.sql import SparkSession

LISTED = pa.schema(
    [
        pa.field("doc_id", pa.string()),
        pa.field("path", pa.string()),
        pa.field("uri", pa.string()),
        pa.field("version", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("location", pa.string()),
        pa.field("problem", pa.string()),
        pa.field("line", pa.int64()),
        pa.field("place", pa.string()),
        pa.field("text", pa.string()),
        pa.field("title", pa.string()),
        pa.field("metadata", pa.string()),
        pa.field("labels", pa.list_(pa.string())),
    ]
)
# A row of `documents` with what became of it: new, changed, unchanged, deleted; `dirty`: differs from the parent's row;
# `converted`: read by this run.
PLANNED = pa.schema(
    [
        *plain_schema(DOCUMENTS.schema),
        pa.field("category", pa.string()),
        pa.field("dirty", pa.bool_()),
        pa.field("converted", pa.bool_()),
    ]
)
_LIST_ROWS, _LIST_CHARS = 1000, 4 << 20
_OUT_ROWS = 500
_SAME = ("text_hash", "metadata_hash", "labels", "outcome", "title", "reason", "path")


@dataclass(frozen=True)
class TextSteps:
    """The text steps of a plan with their fingerprints, in order."""

    steps: tuple[TextStep, ...]
    fingerprints: Mapping[str, str]

    def run(self, text: Text, only: frozenset[str] | None = None) -> Iterator[tuple[str, TextArtifact]]:
        """(step, artifact) of each step; `only` names the steps whose results are wanted (all run: later ones read
        earlier ones' tables). A step that cannot take the text leaves empty tables and the reason, and those that read
        them are incomplete like it: one text must not end the run."""
        tables: dict[str, pa.Table] = {}
        digests: dict[str, RowsDigest] = {}
        partial: dict[str, str] = {}  # table -> the step that left it incomplete
        for step in self.steps:
            inputs = {name: tables[name] for name in step.inputs if name in tables}
            made, failures = self._made(step, text, inputs)
            upstream = sorted({partial[name] for name in inputs if name in partial})
            failures = (*failures, *(f"step {name!r} before it is incomplete" for name in upstream))
            for name in made:
                if failures:
                    partial[name] = step.name
            tables |= made
            for name in inputs.keys() - digests.keys():
                digests[name] = rows_digest(inputs[name])
            if only is None or step.name in only:
                made_from = {name: digests[name] for name in inputs}
                yield step.name, TextArtifact(text.text_hash, made, failures, made_from)

    def _made(
        self, step: TextStep, text: Text, inputs: Mapping[str, pa.Table]
    ) -> tuple[dict[str, pa.Table], tuple[str, ...]]:
        try:
            found = step.run(text, inputs, TextContext(step.settings, self.fingerprints[step.name]))
            return {spec.name: conformed(spec, found[spec.name], text.text_hash) for spec in step.outputs}, ()
        except (CorpusmillError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - recorded with the text
            reason = f"step {step.name!r} failed on it: {type(error).__name__}: {error}"
            return {spec.name: spec.empty() for spec in step.outputs}, (reason,)


def list_source(
    _: Iterator[pa.RecordBatch], spec: RunSpec, counts: "DocumentCounts | None" = None
) -> Iterator[pa.RecordBatch]:
    """The whole listing of the run's source, as a stream of LISTED rows."""
    source = Source.parse(spec.source or "", spec.settings)
    rows: list[dict[str, object]] = []
    chars = 0
    for listed in source.listing(spec.settings):
        rows.append(_listed_row(spec.source_id, listed))
        if counts is not None:
            counts.listed.add(1)
        chars += len(listed.record.text) if listed.record is not None else 0
        if len(rows) >= _LIST_ROWS or chars >= _LIST_CHARS:
            yield pa.RecordBatch.from_pylist(rows, schema=LISTED)
            rows, chars = [], 0
    if rows:
        yield pa.RecordBatch.from_pylist(rows, schema=LISTED)


def rename_repeated(batches: Iterator[pa.RecordBatch], spec: RunSpec) -> Iterator[pa.RecordBatch]:
    """LISTED rows of a record source; those with `repeat` > 1 become quarantined documents named by their place."""
    for batch in batches:
        rows = batch.to_pylist()
        for row in rows:
            if row.pop("repeat") > 1:
                place = row["place"] or f"{row['path']} (again)"
                stem = row["uri"].rpartition("#")[0]
                where = f"{told_place(stem, row['place'])}: " if row["place"] else ""
                problem = f"{where}the id {row['path']!r} stands on an earlier line too; expected each id once"
                row.update(
                    path=place, problem=problem, doc_id=document_id(spec.source_id, place), uri=f"{stem}#{place}"
                )
        yield pa.RecordBatch.from_pylist(rows, schema=LISTED)


@dataclass(frozen=True)
class DocumentCounts:
    """Documents listed and read so far; a task's part is added when it ends, once more if it runs again."""

    listed: "Accumulator[int]"
    read: "Accumulator[int]"


def document_counts(spark: "SparkSession") -> DocumentCounts:
    return DocumentCounts(*(spark.sparkContext.accumulator(0) for _ in range(2)))


def read_documents(
    batches: Iterator[pa.RecordBatch],
    spec: RunSpec,
    steps: TextSteps,
    command: Sequence[str],
    counts: DocumentCounts | None = None,
) -> Iterator[pa.RecordBatch]:
    """Rows of (LISTED columns `n_*`, the parent's DOCUMENTS columns `o_*`, `read`) to PLANNED rows.

    Rows with `read` are read, converted and chunked; their texts and chunks go to segments that are sealed when the
    task's rows end, and are in the index only then.
    """
    out: list[dict[str, object]] = []
    task = _Task(spec, steps, command)
    for batch in batches:
        for joined in batch.to_pylist():
            out.append(task.planned(joined))
            if counts is not None and joined["n_doc_id"] is not None:
                counts.read.add(1)
            if len(out) >= _OUT_ROWS:
                yield pa.RecordBatch.from_pylist(out, schema=PLANNED)
                out = []
    task.seal()
    if out:
        yield pa.RecordBatch.from_pylist(out, schema=PLANNED)


def run_missing_steps(batches: Iterator[pa.RecordBatch], spec: RunSpec, steps: TextSteps) -> Iterator[pa.RecordBatch]:
    """Rows of (segment file as JSON, text hashes with the steps each lacks) to one row a segment with its count."""
    from corpusmill.store.segments import read_segment_table

    store = open_store(spec.index, spec.settings.store)
    for batch in batches:
        for row in batch.to_pylist():
            entry = SegmentEntry.model_validate_json(row["segment"])
            missing = {text["text_hash"]: frozenset(text["missing"]) for text in row["texts"]}
            writers = _Writers(spec, store, steps)
            hashes = sorted(missing)
            for start in range(0, len(hashes), 64):
                rows = read_segment_table(store, entry, TEXTS.name, hashes[start : start + 64]).to_pylist()
                for text in rows:
                    for step, artifact in steps.run(Text(**text), missing[text["text_hash"]]):
                        writers.of(step).add(artifact)
            writers.seal()
            yield pa.RecordBatch.from_pydict({"texts": [len(missing)]}, schema=pa.schema([("texts", pa.int64())]))


@dataclass
class _Writers:
    spec: RunSpec
    store: ObjectStore
    steps: TextSteps
    open: dict[str, SegmentWriter] = field(default_factory=dict)

    def of(self, step: str) -> SegmentWriter:
        if step not in self.open:
            texts = step == TEXTS.name
            outputs = (TEXTS,) if texts else next(s.outputs for s in self.steps.steps if s.name == step)
            fingerprint = TEXT_FINGERPRINT if texts else self.steps.fingerprints[step]
            ray = self.spec.settings.ray
            self.open[step] = SegmentWriter(
                self.store, step, fingerprint, outputs, max_bytes=ray.segment_mb << 20, max_age_s=ray.segment_age_s
            )
        return self.open[step]

    def seal(self) -> None:
        """The texts last: whoever finds a text finds what the steps made of it."""
        for step in sorted(self.open, key=lambda name: name == TEXTS.name):
            self.open[step].seal()


class _Task:
    """What one reading task holds; nothing is opened before the first document that must be read."""

    def __init__(self, spec: RunSpec, steps: TextSteps, command: Sequence[str]) -> None:
        self._spec = spec
        self._steps = steps
        self._command = tuple(command)
        self._reader: DocumentReader | None = None
        self._store = open_store(spec.index, spec.settings.store)
        self._writers = _Writers(spec, self._store, steps)
        self._written: set[str] = set()
        self._known: _Hashes | None = None

    def planned(self, joined: Mapping[str, Any]) -> dict[str, object]:
        old = {name: joined[f"o_{name}"] for name in DOCUMENTS.schema.names} if joined["o_doc_id"] is not None else None
        if joined["n_doc_id"] is None:
            return {**(old or {}), "category": "deleted", "dirty": True, "converted": False}
        if not joined["read"] and old is not None:
            row = {**old, "uri": joined["n_uri"]}
            return {**row, "category": "unchanged", "dirty": row != old, "converted": False}
        row = self._read(joined)
        same = old is not None and all(row[name] == old[name] for name in _SAME)
        category = "new" if old is None else "unchanged" if same else "changed"
        converted = row["raw_hash"] is not None
        return {**row, "category": category, "dirty": row != old, "converted": converted}

    def seal(self) -> None:
        self._writers.seal()

    def _read(self, joined: Mapping[str, Any]) -> dict[str, object]:
        if self._reader is None:
            source = Source.parse(self._spec.source or "", self._spec.settings)
            sandbox = _sandbox(self._spec.settings.convert, self._command)
            opener = source.opener(self._spec.settings)
            self._reader = DocumentReader(self._spec.source_id, self._spec.settings, opener, sandbox)
        found = self._reader.read(joined["n_doc_id"], _listed(joined))
        if found.text is not None:
            self._keep(Text(str(found.row["text_hash"]), found.text))
        return dict(found.row)

    def _keep(self, text: Text) -> None:
        if text.text_hash in self._written:
            return
        self._written.add(text.text_hash)
        if self._known is None:
            self._known = _Hashes.of(self._store, TEXT_FINGERPRINT)
        if text.text_hash in self._known:
            return  # its steps' results are there too, or are made by run_missing_steps
        self._writers.of(TEXTS.name).add(
            TextArtifact(text.text_hash, {TEXTS.name: TEXTS.table([{"text_hash": text.text_hash, "text": text.text}])})
        )
        for step, artifact in self._steps.run(text):
            self._writers.of(step).add(artifact)


class _Hashes:
    """A set of ids in 16 bytes each."""

    def __init__(self, raw: np.ndarray) -> None:
        self._sorted = np.sort(raw)

    @classmethod
    def of(cls, store: ObjectStore, fingerprint: str) -> "_Hashes":
        """The texts in all segments of a step."""
        parts = [
            read_segment_index(store, segment, ("text_hash",)).column("text_hash").to_pylist()
            for segment in list_segments(store, fingerprint)
        ]
        arrays = [np.array([bytes.fromhex(h) for h in part], dtype="V16") for part in parts]
        joined = np.concatenate(arrays) if arrays else np.empty(0, dtype="V16")
        return cls(joined.view(_PAIR))

    def __contains__(self, text_hash: str) -> bool:
        one = np.frombuffer(bytes.fromhex(text_hash), dtype=_PAIR)
        at = int(np.searchsorted(self._sorted, one)[0])
        return at < len(self._sorted) and bool(self._sorted[at] == one[0])


_PAIR = np.dtype([("high", ">u8"), ("low", ">u8")])


@cache
def _sandbox(settings: ConvertSettings, command: tuple[str, ...]) -> Sandbox:
    """One converter process for each Python worker, kept between tasks; it ends with the worker."""
    sandbox = Sandbox(settings, command)
    atexit.register(sandbox.close)
    return sandbox


def _listed_row(source_id: str, listed: Listed) -> dict[str, object]:
    record = listed.record
    return {
        "doc_id": document_id(source_id, listed.path),
        "path": listed.path,
        "uri": listed.uri,
        "version": listed.version,
        "size": listed.size,
        "location": listed.location,
        "problem": listed.problem,
        "line": listed.line,
        "place": listed.place,
        "text": record.text if record is not None else None,
        "title": record.title if record is not None else None,
        "metadata": record.metadata if record is not None else None,
        "labels": list(record.labels) if record is not None else None,
    }


def _listed(joined: Mapping[str, Any]) -> Listed:
    record = None
    if joined["n_text"] is not None:
        record = Record(joined["n_text"], joined["n_title"], joined["n_metadata"], tuple(joined["n_labels"]))
    return Listed(
        path=joined["n_path"],
        uri=joined["n_uri"],
        version=joined["n_version"],
        size=joined["n_size"],
        location=joined["n_location"],
        record=record,
        problem=joined["n_problem"],
    )
