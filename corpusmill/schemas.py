"""Arrow schemas of the tables that every method shares. The schema is the interface between Spark, Ray and the store.

All offsets are Unicode code points of the stored document text: `text[start:end]` is exactly what is meant.
"""

from dataclasses import dataclass

import pyarrow as pa

from corpusmill.digest import NOT_DIGESTED

SPAN = pa.struct([pa.field("start", pa.int64(), nullable=False), pa.field("end", pa.int64(), nullable=False)])


@dataclass(frozen=True)
class TableSpec:
    """A named table, its schema and the columns that identify a row. Document tables lead with `text_hash`."""

    name: str
    schema: pa.Schema
    key: tuple[str, ...]

    def empty(self) -> pa.Table:
        return self.schema.empty_table()

    def table(self, rows: list[dict[str, object]]) -> pa.Table:
        """Rows as an Arrow table of exactly this schema. Raises pa.ArrowInvalid on a row that does not fit."""
        return pa.Table.from_pylist(rows, schema=self.schema)


def required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


DOCUMENTS = TableSpec(
    "documents",
    pa.schema(
        [
            required("doc_id", pa.string()),
            required("source_id", pa.string()),
            required("path", pa.string()),  # relative to the source, or the id column's value
            required("uri", pa.string()),
            pa.field("title", pa.string()),
            pa.field("media_type", pa.string()),
            pa.field("size", pa.int64()),
            required("version", pa.string()),  # ETag, or size and mtime, or the record's hash
            pa.field("raw_hash", pa.string()),
            required("converter", pa.string()),  # fingerprint of the converter and its settings
            pa.field("text_hash", pa.string()),  # null when nothing could be read
            pa.field("chars", pa.int64()),
            required("metadata", pa.string()),  # canonical JSON
            required("metadata_hash", pa.string()),
            required("labels", pa.list_(pa.string())),  # sorted; empty: everyone may read
            required("outcome", pa.string()),  # indexed, empty or quarantined; partial is told by the artifacts
            pa.field("reason", pa.string()),
            required("attempts", pa.int32()),
        ]
    ),
    ("doc_id",),
)

TEXTS = TableSpec(
    "texts",
    pa.schema([required("text_hash", pa.string()), required("text", pa.large_string())]),
    ("text_hash",),
)

CHUNKS = TableSpec(
    "chunks",
    pa.schema(
        [
            required("text_hash", pa.string()),
            required("chunk_id", pa.string()),  # content_id("chunk", text_hash, chunker fingerprint, start, end)
            required("ordinal", pa.int32()),
            required("start", pa.int64()),
            required("end", pa.int64()),
            required("tokens", pa.int32()),
        ]
    ),
    ("text_hash", "ordinal"),
)


def vector_table(name: str, dim: int) -> TableSpec:
    """Vectors of the units of a text: unit_id names the unit, input_hash what was embedded."""
    return TableSpec(
        name,
        pa.schema(
            [
                required("text_hash", pa.string()),
                required("unit_id", pa.string()),
                required("input_hash", pa.string()),
                pa.field("vector", pa.list_(pa.float32(), dim), nullable=False, metadata=NOT_DIGESTED),
            ]
        ),
        ("text_hash", "unit_id"),
    )
