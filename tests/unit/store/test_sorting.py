import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.store.sorting import sorted_batches

ROWS = st.lists(st.tuples(st.text("abcé鲁😀", max_size=3), st.integers(0, 9), st.integers(0, 99)), max_size=60)


@settings(max_examples=60, deadline=None)
@given(ROWS, st.integers(1, 2000), st.integers(1, 7))
def test_any_batches_come_out_sorted(rows: list[tuple[str, int, int]], run_bytes: int, batch_rows: int) -> None:
    unique = list({row[:2]: row for row in rows}.values())
    schema = pa.schema([("a", pa.string()), ("b", pa.int64()), ("c", pa.int64())])
    table = pa.Table.from_pylist([dict(zip("abc", row, strict=True)) for row in unique], schema=schema)
    stream = sorted_batches(table.to_batches(max_chunksize=4), ("a", "b"), run_bytes=run_bytes, batch_rows=batch_rows)
    out = [tuple(row.values()) for batch in stream for row in batch.to_pylist()]
    assert out == sorted(unique)
