"""Segments: artifacts of many texts in a few immutable objects, with an index that is written last.

`segments/<step fingerprint>/<segment>/<table>.parquet` hold the rows, sorted by text; `_index.parquet` says for each
text whether it is complete, why not, and how many rows with which digest each table has for it. Its schema metadata
describes the table files, so a segment can be found and used from its index alone.
"""

import json
import secrets
import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.parquet as pq

from corpusmill.digest import RowsDigest, digest_by
from corpusmill.errors import CorruptObjectError
from corpusmill.schemas import TableSpec, required
from corpusmill.store.arrow import among, repeated, strings
from corpusmill.store.layout import segment_index_key, segment_key, segment_prefix
from corpusmill.store.manifest import FileEntry, SegmentEntry
from corpusmill.store.objects import ObjectStore
from corpusmill.store.ownership import TABLE_DIGEST, TABLE_ROWS, owner_rows, with_lineage
from corpusmill.store.tables import digest_bytes, read_rows_of, read_table_file, reading, write_table_file

ROW_GROUP_BYTES = 2 << 20  # a text is looked up by reading one
_METADATA = b"corpusmill.segment"
_INDEX_NAME = "_index.parquet"

INDEX_SCHEMA = pa.schema(
    [
        required("text_hash", pa.string()),
        required("complete", pa.bool_()),
        required("failures", pa.list_(pa.string())),
        required("tables", pa.list_(TABLE_ROWS)),  # `digest` is RowsDigest.hex of the text's rows
        required("made_from", pa.list_(TABLE_DIGEST)),  # the artifact tables that the step read, see ownership.py
    ]
)


@dataclass(frozen=True)
class TextArtifact:
    """What a step made of one text. Tables that are left out are empty; with failures the artifact is incomplete.
    `made_from`: the digest of the text's rows in each artifact table that the step read."""

    text_hash: str
    tables: Mapping[str, pa.Table]
    failures: tuple[str, ...] = ()
    made_from: Mapping[str, RowsDigest] = field(default_factory=dict)


class SegmentWriter:
    """Collects artifacts of one step and seals them. Safe for several threads; uploads happen in the sealing one."""

    def __init__(
        self,
        store: ObjectStore,
        step: str,
        step_fingerprint: str,
        specs: Sequence[TableSpec],
        *,
        max_bytes: int = 32 << 20,
        max_age_s: float = 60.0,
    ) -> None:
        """`max_bytes` counts Arrow bytes in memory; `max_age_s` runs from the first artifact of a segment."""
        self._store = store
        self._step = step
        self._fingerprint = step_fingerprint
        self._specs = {spec.name: spec for spec in specs}
        self._max_bytes = max_bytes
        self._max_age = max_age_s
        self._lock = threading.Lock()
        self._held: dict[str, TextArtifact] = {}
        self._bytes = 0
        self._since = 0.0

    def add(self, artifact: TextArtifact) -> SegmentEntry | None:
        """Take an artifact; the sealed segment if that filled it or it is old enough. Of two artifacts of one text in
        one segment the first complete one is kept. Raises ValueError, and takes nothing, on rows of another text or
        another schema, and on nulls where none may be."""
        tables = {name: self._conformed(name, table, artifact.text_hash) for name, table in artifact.tables.items()}
        with self._lock:
            known = self._held.get(artifact.text_hash)
            if known is None or (known.failures and not artifact.failures):
                self._since = self._since if self._held else time.monotonic()
                self._held[artifact.text_hash] = replace(artifact, tables=tables)
                self._bytes += sum(table.nbytes for table in tables.values())
            due = self._due()
        return self.seal() if due else None

    def seal_if_due(self) -> SegmentEntry | None:
        """Seal what is held if it is full or old (for a timer)."""
        with self._lock:
            due = self._due()
        return self.seal() if due else None

    def seal(self) -> SegmentEntry | None:
        """Write what is held as one segment; None if nothing is. What could not be written is held on."""
        with self._lock:
            held, self._held, self._bytes = self._held, {}, 0
        if not held:
            return None
        specs = tuple(self._specs.values())
        try:
            return write_segment(self._store, self._step, self._fingerprint, specs, list(held.values()))
        except BaseException:
            with self._lock:
                self._held = held | self._held
                self._bytes = sum(t.nbytes for artifact in self._held.values() for t in artifact.tables.values())
            raise

    def _due(self) -> bool:
        return bool(self._held) and (self._bytes >= self._max_bytes or time.monotonic() - self._since >= self._max_age)

    def _conformed(self, name: str, table: pa.Table, text_hash: str) -> pa.Table:
        spec = self._specs.get(name)
        if spec is None:
            raise ValueError(f"step {self._step!r} has no table {name!r}; its tables: {sorted(self._specs)}")
        return conformed(spec, table, text_hash)


def conformed(spec: TableSpec, table: pa.Table, text_hash: str) -> pa.Table:
    """Rows of one text with exactly the schema of `spec`. Raises ValueError naming the column that is absent or of
    another type, the one that has nulls where none may be, or the foreign text."""
    missing = [column for column in spec.schema.names if column not in table.schema.names]
    if missing:
        raise ValueError(f"rows of {spec.name!r} lack the column {missing[0]!r}; they have {table.schema.names}")
    table = table.select(spec.schema.names)
    for wanted, column in zip(spec.schema, table.columns, strict=True):
        _refuse_nulls(f"{spec.name}.{wanted.name}", wanted, column)
    if not table.schema.equals(spec.schema, check_metadata=True):
        try:
            table = table.cast(spec.schema)
        except pa.ArrowException as error:
            raise ValueError(f"rows of {spec.name!r} do not fit its schema: {error}") from error
    others = [value for value in table.column("text_hash").unique().to_pylist() if value != text_hash]
    if others:
        raise ValueError(f"table {spec.name!r} of text {text_hash} holds rows of text {others[0]}")
    return table


def _refuse_nulls(where: str, wanted: pa.Field, column: pa.ChunkedArray | pa.Array) -> None:
    """Raise ValueError on a null in a field that may have none, at any depth."""
    if column.null_count:
        if not wanted.nullable:
            raise ValueError(f"{where} has {column.null_count} nulls, where none may be")
        column = column.drop_null()
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        if pa.types.is_struct(wanted.type) and pa.types.is_struct(chunk.type):
            for child in wanted.type:
                at = chunk.type.get_field_index(child.name)
                if at >= 0:
                    _refuse_nulls(f"{where}.{child.name}", child, chunk.field(at))
        elif isinstance(chunk, pa.ListArray | pa.LargeListArray | pa.FixedSizeListArray):
            _refuse_nulls(f"{where} items", wanted.type.value_field, chunk.flatten())


def write_segment(
    store: ObjectStore, step: str, step_fingerprint: str, specs: Sequence[TableSpec], artifacts: Iterable[TextArtifact]
) -> SegmentEntry:
    """Write one segment: table files, then the index. The tables must have exactly the schemas of `specs`."""
    ordered = sorted(artifacts, key=lambda artifact: artifact.text_hash)
    segment = new_segment_id()
    digests: dict[str, dict[str, RowsDigest]] = {}
    files: dict[str, FileEntry] = {}
    for spec in specs:
        parts = [artifact.tables[spec.name] for artifact in ordered if spec.name in artifact.tables]
        whole = pa.concat_tables([spec.empty(), *parts])
        digests[spec.name] = digest_by(whole, "text_hash")
        key = segment_key(step_fingerprint, segment, spec.name)
        files[spec.name], _ = write_table_file(store, key, whole, spec.schema, row_group_bytes=ROW_GROUP_BYTES)
    rows = [
        {
            "text_hash": artifact.text_hash,
            "complete": not artifact.failures,
            "failures": list(artifact.failures),
            "tables": [
                _table_rows(name, found.get(artifact.text_hash, RowsDigest())) for name, found in digests.items()
            ],
            "made_from": [{"name": name, "digest": d.hex} for name, d in sorted(artifact.made_from.items())],
        }
        for artifact in ordered
    ]
    description = {
        "version": 1,
        "step": step,
        "fingerprint": step_fingerprint,
        "files": {name: entry.model_dump() for name, entry in files.items()},
    }
    schema = INDEX_SCHEMA.with_metadata({_METADATA: json.dumps(description).encode()})
    index, _ = write_table_file(
        store, segment_index_key(step_fingerprint, segment), pa.Table.from_pylist(rows, schema=schema), schema
    )
    return SegmentEntry(id=segment, index=index, files=files)


def _table_rows(name: str, digest: RowsDigest) -> dict[str, object]:
    return {"name": name, "rows": digest.rows, "digest": digest.hex}


def new_segment_id() -> str:
    """Unique, and later ones sort after earlier ones of the same clock: 16 hex digits of nanoseconds, 16 random."""
    return f"{time.time_ns():016x}{secrets.token_hex(8)}"


def list_segments(store: ObjectStore, step_fingerprint: str, known: Iterable[SegmentEntry] = ()) -> list[SegmentEntry]:
    """All sealed segments of a step, by id. `known` ones are taken as they are; of others only the index is read.

    Raises CorruptObjectError for an index that cannot be read.
    """
    have = {entry.id: entry for entry in known}
    prefix = segment_prefix(step_fingerprint)
    found = [
        info.key[len(prefix) : -len(_INDEX_NAME) - 1]
        for info in store.list(prefix)
        if info.key.endswith("/" + _INDEX_NAME)
    ]
    missing = [segment for segment in found if segment not in have]
    with ThreadPoolExecutor(min(8, max(1, len(missing)))) as pool:
        read = list(pool.map(lambda segment: _entry(store, step_fingerprint, segment), missing))
    have |= {entry.id: entry for entry in read}
    return [have[segment] for segment in sorted(found)]


def read_segment_index(store: ObjectStore, entry: SegmentEntry, columns: Sequence[str] | None = None) -> pa.Table:
    """INDEX_SCHEMA rows of a segment, one a text, sorted by text hash."""
    return _lineage_if_asked(read_table_file(store, entry.index, columns), columns)


def read_index_rows_of(
    store: ObjectStore, entry: SegmentEntry, text_hashes: Collection[str], columns: Sequence[str] | None = None
) -> pa.Table:
    """INDEX_SCHEMA rows of the texts named."""
    return _lineage_if_asked(read_rows_of(store, entry.index, "text_hash", text_hashes, columns), columns)


def _lineage_if_asked(rows: pa.Table, columns: Sequence[str] | None) -> pa.Table:
    return with_lineage(rows) if columns is None or "made_from" in columns else rows


def read_segment_table(
    store: ObjectStore,
    entry: SegmentEntry,
    table: str,
    text_hashes: Collection[str] | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """Rows of one table of a segment, of all texts or of those named. Raises KeyError on a table it has not."""
    file = segment_file(entry, table)
    if text_hashes is None:
        return read_table_file(store, file, columns)
    return read_rows_of(store, file, "text_hash", text_hashes, columns)


def segment_file(entry: SegmentEntry, table: str) -> FileEntry:
    if table not in entry.files:
        raise KeyError(f"segment {entry.id} has no table {table!r}; its tables: {sorted(entry.files)}")
    return entry.files[table]


def owners(indexes: Mapping[str, Sequence[pa.Table]]) -> dict[str, pa.Table]:
    """The index rows that count, by step, sorted by text hash, with a column `segment`: the place in that step's list.

    `indexes`: for each step, and each that it reads, the index rows of its segments in the order of segment ids.
    """
    parts = [
        with_lineage(index)
        .append_column("segment", repeated(place, index.num_rows))
        .append_column("step", strings([step] * index.num_rows))
        for step, held in indexes.items()
        for place, index in enumerate(held)
    ]
    if not parts:
        empty = INDEX_SCHEMA.append(pa.field("segment", pa.int32())).empty_table()
        return dict.fromkeys(indexes, empty)
    rows = pa.concat_tables(parts)
    chosen = rows.take(owner_rows(rows)).sort_by("text_hash")
    return {step: chosen.filter(among(chosen.column("step"), [step])).drop_columns("step") for step in indexes}


def _entry(store: ObjectStore, step_fingerprint: str, segment: str) -> SegmentEntry:
    key = segment_index_key(step_fingerprint, segment)
    with reading(store, key):
        data = store.get(key)
        schema = pq.read_schema(pa.BufferReader(data))
        rows = pq.read_metadata(pa.BufferReader(data)).num_rows
    text = (schema.metadata or {}).get(_METADATA)
    if text is None:
        raise CorruptObjectError(f"{store.uri}/{key} does not describe its segment's files")
    files = {name: FileEntry.model_validate(file) for name, file in json.loads(text)["files"].items()}
    index = FileEntry(key=key, rows=rows, bytes=len(data), blake2b=digest_bytes(data))
    return SegmentEntry(id=segment, index=index, files=files)
