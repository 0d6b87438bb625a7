"""Arrow tables as Parquet objects of the store: written whole with their digest, read by columns and row groups."""

import contextlib
import hashlib
import io
import tempfile
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from corpusmill.digest import RowsDigest, rows_digest
from corpusmill.errors import CorruptObjectError, StoreUnavailableError
from corpusmill.store.arrow import among
from corpusmill.store.manifest import FileEntry
from corpusmill.store.objects import ObjectStore

ROW_GROUP_BYTES = 4 << 20  # in memory: small enough that one text is found without decoding its neighbours
_BUFFERED_BYTES = 64 << 20  # a larger table goes through a temporary file
_CHUNK = 1 << 20


def write_table_file(
    store: ObjectStore,
    key: str,
    batches: Iterable[pa.RecordBatch] | pa.Table,
    schema: pa.Schema,
    *,
    row_group_bytes: int = ROW_GROUP_BYTES,
) -> tuple[FileEntry, RowsDigest]:
    """Write rows under a fresh key as zstd Parquet of exactly `schema` (columns by name, types cast, metadata kept).

    Streams: memory is bounded by a row group and 64 MiB. Raises ValueError if the rows do not fit the schema (a
    missing column, a null where none may be), StoreUnavailableError if they cannot be written.
    """
    if isinstance(batches, pa.Table) and batches.nbytes <= _BUFFERED_BYTES:
        out = io.BytesIO()
        digest = _write(out, batches.to_batches(), schema, row_group_bytes)
        data = out.getvalue()
        store.put(key, data)
        return FileEntry(key=key, rows=digest.rows, bytes=len(data), blake2b=digest_bytes(data)), digest
    source = batches.to_batches() if isinstance(batches, pa.Table) else batches
    with _scratch_file() as path:
        with path.open("wb") as sink:
            digest = _write(sink, source, schema, row_group_bytes)
        entry = FileEntry(key=key, rows=digest.rows, bytes=path.stat().st_size, blake2b=digest_file(path))
        store.put_file(key, path)
    return entry, digest


def read_table_file(
    store: ObjectStore,
    entry: FileEntry | str,
    columns: Sequence[str] | None = None,
    filters: Any = None,
) -> pa.Table:
    """A whole table object (or some columns; `filters` as pyarrow.parquet takes them).

    Raises CorruptObjectError if it is absent or is not Parquet.
    """
    key = entry if isinstance(entry, str) else entry.key
    wanted = list(columns) if columns is not None else None
    with reading(store, key):
        if filters is None:
            with open_parquet(store, key) as file:
                return file.read(columns=wanted)
        with contextlib.closing(store.open(key)) as source:
            return pq.read_table(source, columns=wanted, filters=filters)


def iter_table_file(
    store: ObjectStore, entry: FileEntry | str, columns: Sequence[str] | None = None, *, batch_rows: int = 8192
) -> Iterator[pa.RecordBatch]:
    """The rows of a table object in file order, at most `batch_rows` at a time. Raises as `read_table_file`."""
    key = entry if isinstance(entry, str) else entry.key
    with reading(store, key), open_parquet(store, key, pre_buffer=False) as file:
        yield from file.iter_batches(batch_size=batch_rows, columns=list(columns) if columns is not None else None)


def read_rows_of(
    store: ObjectStore, entry: FileEntry | str, column: str, values: Collection[str], columns: Sequence[str] | None
) -> pa.Table:
    """The rows whose string `column` is one of `values`; row groups that cannot hold one are not read."""
    key = entry if isinstance(entry, str) else entry.key
    with reading(store, key), open_parquet(store, key) as file:
        return rows_of(file, column, values, columns)


def rows_of(file: pq.ParquetFile, column: str, values: Collection[str], columns: Sequence[str] | None) -> pa.Table:
    """`read_rows_of` for an open file."""
    wanted = None if columns is None else list(dict.fromkeys([*columns, column]))
    groups = groups_with(file, column, sorted(values))
    table = file.read_row_groups(groups, columns=wanted)
    table = table.filter(among(table.column(column), sorted(values)))
    return table if columns is None else table.select(list(columns))


def groups_with(file: pq.ParquetFile, column: str, values: Sequence[str]) -> list[int]:
    """Row groups whose statistics allow one of the sorted `values` in `column`."""
    at = file.schema_arrow.get_field_index(column)
    found = []
    for group in range(file.metadata.num_row_groups):
        statistics = file.metadata.row_group(group).column(at).statistics
        if statistics is not None and statistics.has_min_max:
            place = bisect_left(values, statistics.min)
            if place == len(values) or values[place] > statistics.max:
                continue
        found.append(group)
    return found


def open_parquet(store: ObjectStore, key: str, *, pre_buffer: bool = True) -> pq.ParquetFile:
    """The object as an open Parquet file, memory-mapped where it is a local one."""
    path = store.local_path(key)
    if path is not None:
        return pq.ParquetFile(path, memory_map=True)
    return pq.ParquetFile(store.open(key), pre_buffer=pre_buffer)


@contextlib.contextmanager
def reading(store: ObjectStore, key: str) -> Iterator[None]:
    """Name the object in what goes wrong while one that a snapshot or segment names is read."""
    try:
        yield
    except FileNotFoundError as error:
        raise CorruptObjectError(f"{store.uri}/{key} is missing, though the index names it") from error
    except PermissionError as error:
        raise StoreUnavailableError(f"cannot read {store.uri}/{key}: {error.strerror or error}") from error
    except (pa.ArrowException, OSError) as error:
        raise CorruptObjectError(f"{store.uri}/{key} cannot be read as a table: {_one_line(error)}") from error


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of `schema` by name, cast to its types. Raises ValueError naming the column that does not fit."""
    if batch.schema.equals(schema, check_metadata=False):
        return _checked(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
    arrays = []
    for field in schema:
        at = batch.schema.get_field_index(field.name)
        if at < 0:
            raise ValueError(f"rows lack the column {field.name!r}; they have {batch.schema.names}")
        try:
            arrays.append(batch.column(at).cast(field.type))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            have = batch.schema.field(at).type
            raise ValueError(f"column {field.name!r} of type {have} does not fit {field.type}: {error}") from error
    return _checked(pa.RecordBatch.from_arrays(arrays, schema=schema))


def digest_bytes(data: bytes) -> str:
    """BLAKE2b-256 in hex, as FileEntry holds it."""
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def digest_stream(stream: BinaryIO) -> tuple[int, str]:
    """(bytes, BLAKE2b-256 in hex) of what is left in `stream`."""
    h = hashlib.blake2b(digest_size=32)
    size = 0
    while piece := stream.read(_CHUNK):
        h.update(piece)
        size += len(piece)
    return size, h.hexdigest()


def digest_file(path: Path) -> str:
    with path.open("rb") as stream:
        return digest_stream(stream)[1]


def file_entry(store: ObjectStore, key: str, path: Path, rows: int = 0) -> FileEntry:
    """Put a local file under a fresh key and describe it."""
    store.put_file(key, path)
    return FileEntry(key=key, rows=rows, bytes=path.stat().st_size, blake2b=digest_file(path))


def _write(sink: Any, batches: Iterable[pa.RecordBatch], schema: pa.Schema, group_bytes: int) -> RowsDigest:
    digest = RowsDigest()
    with pq.ParquetWriter(sink, schema, compression="zstd", use_dictionary=_repeating(schema)) as writer:
        for group in _regrouped(batches, schema, group_bytes):
            digest += rows_digest(group)
            writer.write_table(group)
    return digest


def _repeating(schema: pa.Schema) -> list[str]:
    """Leaf columns worth a dictionary: all but floats, which hardly ever repeat."""

    def leaves(field: pa.Field, path: str) -> Iterator[str]:
        kind = field.type
        if pa.types.is_struct(kind):
            for child in kind:
                yield from leaves(child, f"{path}.{child.name}")
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
            yield from leaves(kind.value_field, f"{path}.list.element")
        elif not pa.types.is_floating(kind):
            yield path

    return [path for field in schema for path in leaves(field, field.name)]


def _regrouped(batches: Iterable[pa.RecordBatch], schema: pa.Schema, group_bytes: int) -> Iterator[pa.Table]:
    """Join small batches and cut large ones, so that a row group holds about `group_bytes`."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        rest = conform(batch, schema)
        while rest.num_rows:
            fits = max(1, int(rest.num_rows * (group_bytes - size) / max(1, rest.nbytes)))
            piece, rest = rest.slice(0, fits), rest.slice(fits)
            held.append(piece)
            size += piece.nbytes
            if size >= group_bytes or rest.num_rows:
                yield pa.Table.from_batches(held, schema)
                held, size = [], 0
    if held:
        yield pa.Table.from_batches(held, schema)


def _checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if not field.nullable and column.null_count:
            raise ValueError(f"column {field.name!r} has {column.null_count} nulls, where none may be")
    return batch


@contextlib.contextmanager
def _scratch_file() -> Iterator[Path]:
    folder = tempfile.gettempdir()
    try:
        with tempfile.TemporaryDirectory(prefix="corpusmill-") as made:
            yield Path(made) / "table.parquet"
    except OSError as error:
        raise StoreUnavailableError(f"cannot write a temporary file in {folder}: {error.strerror or error}") from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
