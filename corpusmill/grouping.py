"""Cutting a stream that is sorted by a key into bounded tables that never split the rows of one key."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa


def whole_keys(batches: Iterable[pa.RecordBatch], by: str, rows: int) -> Iterator[pa.Table]:
    """Tables of at most `rows` rows, in order, each with all rows of the keys that it holds.

    Equal values of the string column `by` must be neighbours. A key with more than `rows` rows is a table of its own.
    """
    held: pa.Table | None = None
    for batch in batches:
        if not batch.num_rows:
            continue
        table = pa.Table.from_batches([batch])
        held = table if held is None else pa.concat_tables([held, table])
        if held.num_rows > rows:
            ready, held = _cut(held, by, rows, last=False)
            yield from ready
    if held is not None and held.num_rows:
        yield from _cut(held, by, rows, last=True)[0]


def _cut(table: pa.Table, by: str, rows: int, *, last: bool) -> tuple[list[pa.Table], pa.Table]:
    """Full tables from the front of `table`, and the rest. Unless `last`, the last key may go on: it stays there."""
    keys = np.asarray(table.column(by).to_pylist(), dtype=object)
    starts = [0, *(np.flatnonzero(keys[1:] != keys[:-1]) + 1).tolist()]
    ends = [*starts[1:], table.num_rows] if last else starts[1:]
    ready: list[pa.Table] = []
    begin = previous = 0
    for end in ends:
        if end - begin > rows and previous > begin:
            ready.append(table.slice(begin, previous - begin))
            begin = previous
        previous = end
    if last and begin < table.num_rows:
        ready.append(table.slice(begin))
        begin = table.num_rows
    elif previous - begin >= rows:
        ready.append(table.slice(begin, previous - begin))
        begin = previous
    return ready, table.slice(begin).combine_chunks()
