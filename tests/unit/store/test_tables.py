from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill.digest import rows_digest
from corpusmill.errors import CorruptObjectError, StoreUnavailableError
from corpusmill.methods.flexstructrag.tables import STATEMENTS
from corpusmill.schemas import TEXTS, vector_table
from corpusmill.store import tables
from corpusmill.store.local import LocalStore
from corpusmill.store.tables import iter_table_file, read_rows_of, read_table_file, write_table_file


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "index"))


def _vectors(rows: int, dim: int = 8) -> pa.Table:
    spec = vector_table("v", dim)
    values = pa.array(np.arange(rows * dim, dtype="float32"))
    ids = [f"{i:08x}" for i in range(rows)]
    return pa.Table.from_arrays([ids, ids, ids, pa.FixedSizeListArray.from_arrays(values, dim)], schema=spec.schema)


def test_round_trip_keeps_schema_and_metadata(store: LocalStore) -> None:
    table = _vectors(1000)
    entry, digest = write_table_file(store, "t.parquet", table, table.schema)
    back = read_table_file(store, entry)
    assert back.equals(table)
    assert back.schema.field("vector").metadata[b"corpusmill.digest"] == b"skip"
    assert digest == rows_digest(table) == rows_digest(back)
    assert (entry.rows, entry.bytes) == (1000, len(store.get("t.parquet")))
    assert read_table_file(store, entry, ["vector"]).schema.field("vector").type == pa.list_(pa.float32(), 8)


def test_streams_become_bounded_row_groups(store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = _vectors(5000)
    monkeypatch.setattr(tables, "_BUFFERED_BYTES", 0)

    def stream() -> Iterator[pa.RecordBatch]:
        yield from table.to_batches(max_chunksize=7)

    entry, digest = write_table_file(store, "t.parquet", stream(), table.schema, row_group_bytes=20_000)
    assert digest == rows_digest(table)
    assert entry.blake2b == tables.digest_bytes(store.get("t.parquet"))
    file = pq.ParquetFile(tmp_path / "index" / "t.parquet")
    sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    assert 100 < max(sizes) < 500
    assert pa.Table.from_batches(iter_table_file(store, entry, batch_rows=100)).equals(table)
    whole, _ = write_table_file(store, "u.parquet", table, table.schema)
    assert read_table_file(store, whole).equals(table)


def test_types_are_cast_and_columns_found_by_name(store: LocalStore) -> None:
    """Spark has no fixed-size lists and its own column order."""
    table = _vectors(3)
    loose = pa.table({"vector": table.column("vector").cast(pa.list_(pa.float32()))}).append_column(
        "text_hash", table.column("text_hash").cast(pa.large_string())
    )
    loose = loose.append_column("input_hash", table.column("input_hash")).append_column(
        "unit_id", table.column("unit_id")
    )
    entry, digest = write_table_file(store, "t.parquet", loose, table.schema)
    assert read_table_file(store, entry).equals(table)
    assert digest == rows_digest(table)


def test_rows_that_do_not_fit_are_refused(store: LocalStore) -> None:
    with pytest.raises(ValueError, match="lack the column 'text'"):
        write_table_file(store, "t.parquet", pa.table({"text_hash": ["a"]}), TEXTS.schema)
    with pytest.raises(ValueError, match="'text' has 1 nulls"):
        write_table_file(
            store, "t.parquet", pa.table({"text_hash": ["a"], "text": pa.nulls(1, pa.large_string())}), TEXTS.schema
        )
    with pytest.raises(ValueError, match="column 'text' of type int64"):
        bad = pa.table({"text_hash": ["a"], "text": pa.array([[1]])}).set_column(1, "text", pa.array([1]))
        write_table_file(
            store, "t.parquet", bad, pa.schema([TEXTS.schema.field(0), pa.field("text", pa.list_(pa.int8()))])
        )
    assert not store.exists("t.parquet")


def test_only_row_groups_that_may_hold_a_value_are_read(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    table = _vectors(5000)
    entry, _ = write_table_file(store, "t.parquet", table, table.schema, row_group_bytes=20_000)
    with tables.open_parquet(store, entry.key) as file:
        assert len(tables.groups_with(file, "text_hash", ["00000a00"])) == 1
        assert tables.groups_with(file, "text_hash", ["ffff", "zz"]) == []
        assert len(tables.groups_with(file, "text_hash", ["00000000", "00001387"])) == 2
    found = read_rows_of(store, entry, "text_hash", {"00000a00", "00000001", "none"}, ["unit_id"])
    assert found.to_pydict() == {"unit_id": ["00000001", "00000a00"]}


def test_what_is_missing_or_damaged_is_named(store: LocalStore) -> None:
    with pytest.raises(CorruptObjectError, match=r"t\.parquet is missing"):
        read_table_file(store, "t.parquet")
    store.put("t.parquet", b"PAR1 not really PAR1")
    with pytest.raises(CorruptObjectError, match=r"t\.parquet cannot be read as a table"):
        read_table_file(store, "t.parquet")


def test_no_room_for_the_temporary_file(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables.tempfile, "tempdir", "/no/such/folder")
    with pytest.raises(StoreUnavailableError, match="temporary file in /no/such/folder"):
        write_table_file(store, "t.parquet", iter([]), STATEMENTS.schema)
