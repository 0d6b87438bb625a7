"""Which artifact of a text counts, for each step: those of one build, never tables of two.

A model may answer differently when it is asked again, so two artifacts of one text and step may differ, and what a
later step made of one does not fit the other. Each artifact therefore names the digests of the tables that it was made
from. The steps of a text are decided in the order in which they read one another: an artifact fits if it was made from
just the tables of the artifacts chosen before it. Of those that fit, the complete one with the least segment counts,
else the incomplete one with the greatest, else none: the step must be run again. Leaving out segments that own nothing
changes no choice.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from corpusmill.schemas import required
from corpusmill.store.arrow import integers

TABLE_ROWS = pa.struct([required("name", pa.string()), required("rows", pa.int64()), required("digest", pa.string())])
TABLE_DIGEST = pa.struct([required("name", pa.string()), required("digest", pa.string())])
LINEAGE_COLUMNS = ("text_hash", "complete", "tables", "made_from")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One artifact of a text and step. `segment` orders them; `tables` and `made_from`: RowsDigest.hex by table."""

    segment: int | str
    complete: bool
    tables: Mapping[str, str]
    made_from: Mapping[str, str]
    row: int = 0


def choose(candidates: Mapping[str, Sequence[Candidate]]) -> dict[str, Candidate]:
    """The artifact that counts of each step of one text; steps of which none does are absent."""
    producers = {table: step for step, held in candidates.items() for one in held for table in one.tables}
    chosen: dict[str, Candidate | None] = {}

    def chosen_of(step: str) -> Candidate | None:
        if step not in chosen:
            chosen[step] = None  # a step that reads itself fits nothing
            chosen[step] = _best([one for one in candidates[step] if fits(one)])
        return chosen[step]

    def fits(one: Candidate) -> bool:
        for table, digest in one.made_from.items():
            above = chosen_of(producers[table]) if table in producers else None
            if above is None or above.tables.get(table) != digest:
                return False
        return True

    return {step: best for step in candidates if (best := chosen_of(step)) is not None}


def owner_rows(rows: pa.Table) -> pa.Array:
    """Places of the rows that count, ascending. `rows` have LINEAGE_COLUMNS, `step` and `segment`, of any texts; all
    rows of a text must be there, those of the steps that a step reads too."""
    texts: dict[str, dict[str, list[Candidate]]] = {}
    hashes, steps, segments, complete = (
        rows.column(name).to_pylist() for name in ("text_hash", "step", "segment", "complete")
    )
    lineage = zip(_digests(rows.column("tables")), _digests(rows.column("made_from")), strict=True)
    for place, (tables, made_from) in enumerate(lineage):
        one = Candidate(segments[place], complete[place], tables, made_from, place)
        texts.setdefault(hashes[place], {}).setdefault(steps[place], []).append(one)
    return integers(sorted(one.row for held in texts.values() for one in choose(held).values()))


def with_lineage(index: pa.Table) -> pa.Table:
    """Index rows with the column `made_from`; segments of the first versions lack it: made from nothing known."""
    if "made_from" in index.column_names:
        return index
    kind = pa.list_(TABLE_DIGEST)
    offsets = pa.Array.from_buffers(
        pa.int32(), index.num_rows + 1, [None, pa.py_buffer(array("i", bytes(4 * (index.num_rows + 1))))]
    )
    nothing = pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(_no_strings(), fields=list(TABLE_DIGEST)))
    return index.append_column(required("made_from", kind), nothing.cast(kind))


def _no_strings() -> list[pa.Array]:
    return [pa.StringArray.from_buffers(0, pa.py_buffer(bytes(4)), pa.py_buffer(b"")) for _ in TABLE_DIGEST]


def _best(fitting: Sequence[Candidate]) -> Candidate | None:
    complete = [one for one in fitting if one.complete]
    if complete:
        return min(complete, key=lambda one: one.segment)
    return max(fitting, key=lambda one: one.segment, default=None)


def _digests(column: pa.ChunkedArray) -> Iterator[dict[str, str]]:
    """Digest by table of each row, a column at a time: dictionaries of the cells would take most of the time."""
    for chunk in column.chunks:
        inner = chunk.flatten()
        pairs = zip(inner.field("name").to_pylist(), inner.field("digest").to_pylist(), strict=True)
        for count in chunk.value_lengths().to_pylist():
            yield dict(next(pairs) for _ in range(count or 0))
