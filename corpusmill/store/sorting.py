"""Rows in the order of a key within bounded memory: sorted runs in temporary files, merged a batch at a time."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

RUN_BYTES = 96 << 20
BATCH_ROWS = 8192


def sort_table(table: pa.Table, key: Sequence[str]) -> pa.Table:
    """The rows by `key` (strings by UTF-8 bytes, which is code point order)."""
    return table.sort_by([(name, "ascending") for name in key]) if key and table.num_rows > 1 else table


def sorted_batches(
    batches: Iterable[pa.RecordBatch], key: Sequence[str], *, run_bytes: int = RUN_BYTES, batch_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """`batches` (all of one schema) as one stream sorted by `key`.

    Up to `run_bytes` are sorted in memory. More are written as sorted runs into a temporary folder (the table's own
    size on disk) and merged; memory is then a run while they are written and one batch of each run while merging.
    """
    with tempfile.TemporaryDirectory(prefix="corpusmill-sort-") as folder:
        runs: list[Path] = []
        held: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            held.append(batch)
            size += batch.nbytes
            if size >= run_bytes:
                runs.append(_spill(sort_table(pa.Table.from_batches(held), key), Path(folder), len(runs), batch_rows))
                held, size = [], 0
        if held and not runs:
            yield from sort_table(pa.Table.from_batches(held), key).combine_chunks().to_batches(batch_rows)
            return
        if held:
            runs.append(_spill(sort_table(pa.Table.from_batches(held), key), Path(folder), len(runs), batch_rows))
            del held
        yield from _merge(runs, key, batch_rows)


def _spill(table: pa.Table, folder: Path, number: int, batch_rows: int) -> Path:
    path = folder / f"{number:06d}.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        for batch in table.combine_chunks().to_batches(batch_rows):
            writer.write_batch(batch)
    return path


def _merge(runs: Sequence[Path], key: Sequence[str], batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Take, of every run, the rows up to the least last key in memory; no later row can precede them."""
    streams = [_stream(path) for path in runs]
    heads = {i: table for i, stream in enumerate(streams) if (table := next(stream, None)) is not None}
    while heads:
        bound = min(_key_at(head, key, -1) for head in heads.values())
        ready = []
        for i, head in list(heads.items()):
            cut = _rows_up_to(head, key, bound)
            ready.append(head.slice(0, cut))
            rest = head.slice(cut) if cut < head.num_rows else next(streams[i], None)
            if rest is None:
                del heads[i]
            else:
                heads[i] = rest
        yield from sort_table(pa.concat_tables(ready), key).combine_chunks().to_batches(batch_rows)


def _stream(path: Path) -> Iterator[pa.Table]:
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        for i in range(reader.num_record_batches):
            yield pa.Table.from_batches([reader.get_batch(i)])


def _key_at(table: pa.Table, key: Sequence[str], row: int) -> tuple[Any, ...]:
    return tuple(table.column(name)[row].as_py() for name in key)


def _rows_up_to(table: pa.Table, key: Sequence[str], bound: tuple[Any, ...]) -> int:
    """How many leading rows of the sorted `table` are at most `bound`, by bisection."""
    low, high = 0, table.num_rows
    while low < high:
        middle = (low + high) // 2
        if _key_at(table, key, middle) <= bound:
            low = middle + 1
        else:
            high = middle
    return low
