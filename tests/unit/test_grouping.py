"""Cutting sorted rows into bounded tables of whole keys."""

from itertools import groupby, pairwise

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.grouping import whole_keys

sizes = st.lists(st.integers(1, 9), max_size=30)  # rows of each key


@settings(deadline=None)
@given(sizes, st.integers(1, 12), st.integers(1, 7))
def test_keys_stay_whole_tables_stay_bounded_and_nothing_is_lost(keys: list[int], rows: int, batch: int) -> None:
    values = [f"k{i:03d}" for i, n in enumerate(keys) for _ in range(n)]
    table = pa.table({"key": pa.array(values, pa.string()), "n": pa.array(range(len(values)), pa.int64())})
    parts = list(whole_keys(table.to_batches(max_chunksize=batch), "key", rows))
    assert [n for part in parts for n in part.column("n").to_pylist()] == list(range(len(values)))
    seen = [key for part in parts for key, _ in groupby(part.column("key").to_pylist())]
    assert len(seen) == len(set(seen))
    for part in parts:
        assert part.num_rows <= rows or len(set(part.column("key").to_pylist())) == 1


@settings(deadline=None)
@given(sizes, st.integers(1, 12))
def test_two_neighbouring_tables_would_not_fit_in_one(keys: list[int], rows: int) -> None:
    values = [f"k{i:03d}" for i, n in enumerate(keys) for _ in range(n)]
    table = pa.table({"key": pa.array(values, pa.string())})
    parts = list(whole_keys(table.to_batches(), "key", rows))
    for left, right in pairwise(parts):
        first_of_right = right.column("key").to_pylist()
        assert left.num_rows + first_of_right.count(first_of_right[0]) > rows
