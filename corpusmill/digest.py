"""The content digest: what a snapshot says, whatever its files, row order and machine.

A row's hash covers every column of the table's digest schema, each cell in one canonical binary form. A table's
digest is the sum of its row hashes modulo 2**256 with the row count: equal to hashing the sorted rows for telling
contents apart, but it can be taken in parallel, per document, and added up. Vectors are covered by their key (what was
embedded by what), since floats differ between machines: a column whose Arrow field carries `NOT_DIGESTED` is left out,
and its bytes are still covered by the file digest that `verify` checks.
"""

import hashlib
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from corpusmill.hashing import canonical_json

NOT_DIGESTED = {b"corpusmill.digest": b"skip"}
_MODULUS = 1 << 256


@dataclass(frozen=True)
class RowsDigest:
    """An additive digest of a multiset of rows."""

    rows: int = 0
    total: int = 0

    def __add__(self, other: "RowsDigest") -> "RowsDigest":
        return RowsDigest(self.rows + other.rows, (self.total + other.total) % _MODULUS)

    @property
    def hex(self) -> str:
        return f"{self.total:064x}"

    @classmethod
    def parse(cls, rows: int, text: str) -> "RowsDigest":
        return cls(rows, int(text, 16))


def rows_digest(table: pa.Table | pa.RecordBatch) -> RowsDigest:
    """The digest of all rows of `table` (column order does not matter, column names do)."""
    hashes = _row_hashes(table)
    return RowsDigest(len(hashes), sum(hashes) % _MODULUS)


def digest_by(table: pa.Table, column: str) -> dict[str, RowsDigest]:
    """One digest for each value of `column` (for example one for each text), in one pass."""
    rows: dict[str, int] = {}
    totals: dict[str, int] = {}
    for key, value in zip(table.column(column).to_pylist(), _row_hashes(table), strict=True):
        rows[key] = rows.get(key, 0) + 1
        totals[key] = totals.get(key, 0) + value
    return {key: RowsDigest(count, totals[key] % _MODULUS) for key, count in rows.items()}


def snapshot_digest(tables: Mapping[str, RowsDigest], extra: object = None) -> str:
    """The digest of a snapshot: its tables by name, and the identity of what made them (`extra`)."""
    rows = {name: [d.rows, d.hex] for name, d in tables.items()}
    return hashlib.blake2b(canonical_json({"tables": rows, "extra": extra}).encode(), digest_size=16).hexdigest()


def _row_hashes(table: pa.Table | pa.RecordBatch) -> list[int]:
    names = sorted(f.name for f in table.schema if (f.metadata or {}).get(b"corpusmill.digest") != b"skip")
    prefix = "\x00".join(names).encode()
    if not names:
        rows: Iterable[tuple[bytes, ...]] = [()] * table.num_rows
    else:
        rows = zip(*(_encoded(table.column(name)) for name in names), strict=True)
    blake, join, number = hashlib.blake2b, b"".join, int.from_bytes
    return [number(blake(join((prefix, *row)), digest_size=32).digest(), "little") for row in rows]


def _encoded(column: pa.ChunkedArray | pa.Array) -> list[bytes]:
    """The canonical form of each cell, as `_encode` gives it, taken a column at a time."""
    if isinstance(column, pa.ChunkedArray):
        return [cell for chunk in column.chunks for cell in _encoded(chunk)]
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        raw = column.cast(pa.binary() if pa.types.is_string(kind) else pa.large_binary()).to_pylist()
        return [b"n" if cell is None else b"s%d:%b" % (len(cell), cell) for cell in raw]
    if pa.types.is_integer(kind):
        digits = [None if cell is None else b"%d" % cell for cell in column.to_pylist()]
        return [b"n" if cell is None else b"i%d:%b" % (len(cell), cell) for cell in digits]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        items = iter(_encoded(column.flatten()))
        sizes = column.value_lengths().to_pylist()
        return [b"n" if n is None else b"l%d:" % n + b"".join(islice(items, n)) for n in sizes]
    if pa.types.is_struct(kind):
        return _encoded_structs(column)
    return [_encode(cell) for cell in column.to_pylist()]


def _encoded_structs(column: pa.StructArray) -> list[bytes]:
    names = [field.name for field in column.type]
    children = dict(zip(names, map(_encoded, column.flatten()), strict=True))
    head = b"m%d:" % len(names)
    labelled = [[_encode(name) + cell for cell in children[name]] for name in sorted(names)]
    present = column.is_valid().to_pylist()
    if not names:
        return [head if valid else b"n" for valid in present]
    cells = zip(*labelled, strict=True)
    return [head + b"".join(parts) if valid else b"n" for valid, parts in zip(present, cells, strict=True)]


def _encode(cell: object) -> bytes:
    if cell is None:
        return b"n"
    if isinstance(cell, str):
        raw = cell.encode("utf-8", "surrogatepass")
        return b"s%d:%b" % (len(raw), raw)
    if isinstance(cell, bool):
        return b"t" if cell else b"f"
    if isinstance(cell, int):
        raw = b"%d" % cell
        return b"i%d:%b" % (len(raw), raw)
    if isinstance(cell, float):
        return b"d" + struct.pack("<d", cell + 0.0)
    if isinstance(cell, bytes):
        return b"b%d:%b" % (len(cell), cell)
    if isinstance(cell, Mapping):
        return b"m%d:" % len(cell) + b"".join(_encode(key) + _encode(cell[key]) for key in sorted(cell))
    if isinstance(cell, Iterable):
        items = list(cell)
        return b"l%d:" % len(items) + b"".join(map(_encode, items))
    return _encode(str(cell))
