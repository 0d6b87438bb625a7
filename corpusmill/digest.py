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
    names = sorted(f.name for f in table.schema if (f.metadata or {}).get(b"corpusmill.digest") != b"skip")
    columns = [table.column(name).to_pylist() for name in names]
    prefix = "\x00".join(names).encode()
    total = 0
    for row in zip(*columns, strict=True):
        h = hashlib.blake2b(prefix, digest_size=32)
        for cell in row:
            _feed(h, cell)
        total += int.from_bytes(h.digest(), "little")
    return RowsDigest(table.num_rows, total % _MODULUS)


def digest_by(table: pa.Table, column: str) -> dict[str, RowsDigest]:
    """One digest for each value of `column` (for example one for each text)."""
    out: dict[str, RowsDigest] = {}
    keys = table.column(column).to_pylist()
    for i, key in enumerate(keys):
        out[key] = out.get(key, RowsDigest()) + rows_digest(table.slice(i, 1))
    return out


def snapshot_digest(tables: Mapping[str, RowsDigest], extra: object = None) -> str:
    """The digest of a snapshot: its tables by name, and the identity of what made them (`extra`)."""
    rows = {name: [d.rows, d.hex] for name, d in tables.items()}
    return hashlib.blake2b(canonical_json({"tables": rows, "extra": extra}).encode(), digest_size=16).hexdigest()


def _feed(h: "hashlib._Hash", cell: object) -> None:
    if cell is None:
        h.update(b"n")
    elif isinstance(cell, bool):
        h.update(b"t" if cell else b"f")
    elif isinstance(cell, int):
        raw = str(cell).encode()
        h.update(b"i%d:" % len(raw) + raw)
    elif isinstance(cell, float):
        h.update(b"d" + struct.pack("<d", cell + 0.0))
    elif isinstance(cell, str):
        raw = cell.encode("utf-8", "surrogatepass")
        h.update(b"s%d:" % len(raw) + raw)
    elif isinstance(cell, bytes):
        h.update(b"b%d:" % len(cell) + cell)
    elif isinstance(cell, Mapping):
        h.update(b"m%d:" % len(cell))
        for key in sorted(cell):
            _feed(h, key)
            _feed(h, cell[key])
    elif isinstance(cell, Iterable):
        items = list(cell)
        h.update(b"l%d:" % len(items))
        for item in items:
            _feed(h, item)
    else:
        _feed(h, str(cell))
