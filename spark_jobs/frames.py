"""Tables of the store as Spark frames and back, over Arrow in the workers; grouped maps that stream."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.digest import RowsDigest
from corpusmill.schemas import TableSpec
from corpusmill.store.layout import data_key
from corpusmill.store.manifest import FileEntry
from corpusmill.store.objects import ObjectStore
from corpusmill.store.tables import iter_table_file, write_table_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

SEGMENT = "_segment"
_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_OUT_ROWS = 4096
_OUT_BYTES = 8 << 20
_FILES = pa.schema([pa.field("segment", pa.string()), pa.field("file", pa.string())])
_WRITTEN = pa.schema([pa.field("file", pa.string()), pa.field("rows", pa.int64()), pa.field("digest", pa.string())])


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type that Spark gives back for an Arrow type: lists of one length become lists, large strings strings."""
    if pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(plain_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain_type(field.type)) for field in kind])
    if pa.types.is_large_string(kind):
        return pa.string()
    return kind


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """All columns nullable and of plain types: what travels between Python and the JVM."""
    return pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])


def spark_schema(schema: pa.Schema) -> "StructType":
    from pyspark.sql.pandas.types import from_arrow_schema

    kind: StructType = from_arrow_schema(plain_schema(schema))
    return kind


def local_frame(spark: "SparkSession", table: pa.Table, partitions: int) -> "DataFrame":
    """A frame of the driver's rows in at most `partitions` partitions: Spark makes one of each Arrow batch."""
    before = spark.conf.get(_BATCH_ROWS) or ""
    spark.conf.set(_BATCH_ROWS, max(1, -(-table.num_rows // partitions)))
    try:
        return spark.createDataFrame(table.combine_chunks())
    finally:
        spark.conf.set(_BATCH_ROWS, before)


def read_files(
    spark: "SparkSession",
    store: ObjectStore,
    files: Sequence[tuple[str, FileEntry]],
    schema: pa.Schema,
    partitions: int,
) -> "DataFrame":
    """Rows of table objects with the columns of `schema` and `_segment`, the name given with each file."""
    out = pa.schema([*schema, pa.field(SEGMENT, pa.string())])
    listing = pa.table(
        {"segment": [name for name, _ in files], "file": [file.model_dump_json() for _, file in files]}, schema=_FILES
    )
    return local_frame(spark, listing, partitions).mapInArrow(
        partial(_read, store=store, schema=schema), spark_schema(out)
    )


def _read(batches: Iterator[pa.RecordBatch], store: ObjectStore, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    flat = plain_schema(schema)
    names = [*schema.names, SEGMENT]
    for batch in batches:
        for row in batch.to_pylist():
            for rows in iter_table_file(store, FileEntry.model_validate_json(row["file"]), schema.names):
                columns = [rows.column(field.name).cast(field.type) for field in flat]
                segment = pa.array([row["segment"]] * rows.num_rows, pa.string())
                yield pa.RecordBatch.from_arrays([*columns, segment], names=names)


def write_table(
    frame: "DataFrame", store: ObjectStore, run: str, spec: TableSpec
) -> tuple[tuple[FileEntry, ...], RowsDigest]:
    """Write a frame as files of exactly `spec.schema`, each sorted by the key; only files of finished tasks count."""
    ordered = frame.select(*spec.schema.names).sortWithinPartitions(*spec.key)
    written = ordered.mapInArrow(partial(_write, store=store, run=run, spec=spec), spark_schema(_WRITTEN)).toArrow()
    rows = written.to_pylist()
    digest = sum((RowsDigest.parse(row["rows"], row["digest"]) for row in rows), RowsDigest())
    files = sorted((FileEntry.model_validate_json(row["file"]) for row in rows), key=lambda file: file.key)
    return tuple(files), digest


def _write(
    batches: Iterator[pa.RecordBatch], store: ObjectStore, run: str, spec: TableSpec
) -> Iterator[pa.RecordBatch]:
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return
    entry, digest = write_table_file(store, data_key(run, spec.name), _chain(first, filled), spec.schema)
    row = {"file": entry.model_dump_json(), "rows": digest.rows, "digest": digest.hex}
    yield pa.RecordBatch.from_pylist([row], schema=_WRITTEN)


def _chain(first: pa.RecordBatch, rest: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield first
    yield from rest


def flat_map(
    frame: "DataFrame", fn: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: pa.Schema
) -> "DataFrame":
    """`fn` over the record batches of each partition, its output in plain types."""
    return frame.mapInArrow(partial(_flat_map, fn=fn, schema=schema), spark_schema(schema))


def _flat_map(
    batches: Iterator[pa.RecordBatch],
    fn: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    flat = plain_schema(schema)
    for batch in fn(batches):
        yield _plain(batch, flat)


def _plain(batch: pa.RecordBatch | pa.Table, flat: pa.Schema) -> pa.RecordBatch:
    arrays = [_whole(batch.column(field.name)).cast(field.type) for field in flat]
    return pa.RecordBatch.from_arrays(arrays, schema=flat)


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    joined = column.combine_chunks()
    return pa.concat_arrays(joined.chunks) if isinstance(joined, pa.ChunkedArray) else joined


def group_map(
    frames: Sequence["DataFrame"],
    by: str,
    fn: Callable[[str, Sequence[pa.Table]], pa.Table],
    schema: pa.Schema,
) -> "DataFrame":
    """`fn(key, one table for each frame)` for each value of `by`, co-grouped.

    Rows are brought together by key and sorted, and a task walks its partition group by group: a small group costs
    microseconds, not a call of Spark's own grouped map. Rows of several frames travel as one, a struct for each.
    """
    from pyspark.sql import functions as f

    parts = []
    for place, frame in enumerate(frames):
        boxes = [
            (f.struct(*other.columns) if at == place else f.lit(None).cast(other.schema)).alias(f"in{at}")
            for at, other in enumerate(frames)
        ]
        parts.append(
            frame.where(f.col(by).isNotNull()).select(f.col(by).alias("key"), f.lit(place).alias("frame"), *boxes)
        )
    joined = parts[0]
    for part in parts[1:]:
        joined = joined.unionAll(part)
    grouped = joined.repartition("key").sortWithinPartitions("key")
    run = partial(_run_groups, inputs=len(frames), fn=fn, schema=schema)
    return grouped.mapInArrow(run, spark_schema(schema))


def _run_groups(
    batches: Iterator[pa.RecordBatch],
    inputs: int,
    fn: Callable[[str, Sequence[pa.Table]], pa.Table],
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    flat = plain_schema(schema)
    held: list[pa.Table] = []
    rows = size = 0
    for key, group in _groups(batches):
        made = fn(key, [_unboxed(group, place) for place in range(inputs)])
        if made.num_rows:
            held.append(made)
            rows, size = rows + made.num_rows, size + made.nbytes
        if rows >= _OUT_ROWS or size >= _OUT_BYTES:
            yield _plain(pa.concat_tables(held), flat)
            held, rows, size = [], 0, 0
    if held:
        yield _plain(pa.concat_tables(held), flat)


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, pa.Table]]:
    """Runs of equal keys in a sorted stream; only the run at hand is in memory."""
    key: str | None = None
    held: list[pa.RecordBatch] = []
    for batch in batches:
        keys = batch.column("key")
        start = 0
        for end in _run_ends(keys):
            current = keys[start].as_py()
            if held and current != key:
                yield str(key), pa.Table.from_batches(held)
                held = []
            key = current
            held.append(batch.slice(start, end - start))
            start = end
    if held:
        yield str(key), pa.Table.from_batches(held)


def _run_ends(keys: pa.Array) -> list[int]:
    if not len(keys):
        return []
    changes = pc.not_equal(keys.slice(1), keys.slice(0, len(keys) - 1)).to_numpy(zero_copy_only=False)
    return [*(changes.nonzero()[0] + 1).tolist(), len(keys)]


def _unboxed(group: pa.Table, place: int) -> pa.Table:
    """The rows of one frame in a group, as a table of their own."""
    alone = f"in{place + 1}" not in group.column_names and place == 0
    rows = group if alone else group.filter(pc.equal(group.column("frame"), place))
    mine = rows.column(f"in{place}")
    kind = mine.type
    chunks = [pa.RecordBatch.from_struct_array(chunk) for chunk in mine.chunks if len(chunk)]
    return pa.Table.from_batches(chunks, schema=pa.schema(list(kind)))
