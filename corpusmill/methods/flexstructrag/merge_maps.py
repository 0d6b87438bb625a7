"""The merge's pure functions over Arrow: names and blocks, groups that a task can hold, forests, splits, ids."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.graph.forest import bucket_bits, exact_forest, hyperplane_codes, quantise, run_key, spanning_forest
from corpusmill.graph.splitting import split
from corpusmill.hashing import content_id, hash_text
from corpusmill.methods.flexstructrag.tables import ENTITY_PARTS
from corpusmill.names import normal_form
from corpusmill.schemas import required

if TYPE_CHECKING:
    from corpusmill.methods.flexstructrag.merge_settings import MergeSettings

Row = dict[str, object]

# One row for each name of a member: its own normal form (alias false), and each alias's.
NAMED = pa.schema(
    [
        required("member_id", pa.string()),
        required("doc_id", pa.string()),
        required("text_hash", pa.string()),
        required("local_id", pa.string()),
        required("normal", pa.string()),
        required("surface", pa.string()),
        required("degree", pa.int32()),
        pa.field("input_hash", pa.string()),  # null: nothing was embedded, the member stays alone
        required("name", pa.string()),
        required("alias", pa.bool_()),
        required("block", pa.string()),  # content_id("block", name, *labels)
    ]
)
# Distinct texts of blocks; `grp` is what one task compares: a block, or a bucket of a large one, ordered by `turn`.
GROUPED = pa.schema(
    [
        required("grp", pa.string()),
        required("block", pa.string()),
        required("large", pa.bool_()),
        required("turn", pa.string()),
        required("member_id", pa.string()),
        required("doc_id", pa.string()),
        required("input_hash", pa.string()),
        required("vector", pa.binary()),  # int16 [d], graph.forest.quantise
    ]
)
FOUND = pa.schema(
    [
        required("block", pa.string()),
        required("large", pa.bool_()),
        required("a", pa.string()),
        required("b", pa.string()),
        required("a_doc", pa.string()),
        required("b_doc", pa.string()),
        required("a_text", pa.string()),  # input hashes
        required("b_text", pa.string()),
        required("score_e4", pa.int32()),
    ]
)
# Evidence after splits: `holds` marks the pairs of the part's own spanning forest.
JUDGED = pa.schema(
    [
        required("block", pa.string()),
        required("a", pa.string()),
        required("b", pa.string()),
        required("a_doc", pa.string()),
        required("b_doc", pa.string()),
        required("score_e4", pa.int32()),
        required("kept", pa.bool_()),
        required("holds", pa.bool_()),
        required("a_part", pa.string()),
        required("b_part", pa.string()),
    ]
)
ASSIGNED = pa.schema([*NAMED, required("part", pa.string()), required("entity_id", pa.string())])


def member_id(doc_id: str, normal: str) -> str:
    return content_id("member", doc_id, normal)


def entity_id(least_member: str) -> str:
    return content_id("entity", least_member)


def block_id(name: str, labels: Sequence[str]) -> str:
    """The block of a name within one label set (labels sorted and distinct here)."""
    return content_id("block", name, *sorted(set(labels)))


def name_members(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Each member under its normal form and those of its aliases."""
    for batch in batches:
        rows: list[Row] = []
        for row in batch.to_pylist():
            labels, aliases = row.pop("labels"), row.pop("aliases")
            own = {**row, "member_id": member_id(row["doc_id"], row["normal"])}
            names = dict.fromkeys((row["normal"], *(normal_form(alias) for alias in aliases)))
            rows.extend(
                {**own, "name": name, "alias": name != row["normal"], "block": block_id(name, labels)}
                for name in names
                if name
            )
        yield pa.RecordBatch.from_pylist(rows, schema=NAMED)


def group_texts(batches: Iterator[pa.RecordBatch], settings: "MergeSettings") -> Iterator[pa.RecordBatch]:
    """Send the texts of a block to one group, those of a large block to a bucket of each table."""
    for batch in batches:
        grid = quantise(vector_rows(batch.column("vector")))
        narrow = batch.select(["block", "member_id", "doc_id", "input_hash"]).to_pylist()
        sizes = batch.column("size").to_pylist()
        rows: list[Row] = []
        large: dict[int, list[int]] = {}
        for at, (row, size) in enumerate(zip(narrow, sizes, strict=True)):
            if size <= settings.exact_block_max:
                rows.append({**row, "grp": row["block"], "large": False, "turn": "", "vector": grid[at].tobytes()})
            else:
                large.setdefault(size, []).append(at)
        yield pa.RecordBatch.from_pylist(rows, schema=GROUPED)
        for size, places in large.items():
            for start in range(0, len(places), 1024):
                yield _bucketed(narrow, grid, places[start : start + 1024], size, settings)


def _bucketed(
    narrow: Sequence[Mapping[str, str]], grid: np.ndarray, places: list[int], size: int, settings: "MergeSettings"
) -> pa.RecordBatch:
    codes = hyperplane_codes(grid[places], bucket_bits(size, settings.bucket), settings.tables, settings.seed)
    rows: list[Row] = []
    for table in range(settings.tables):
        for at, code in zip(places, codes[table].tolist(), strict=True):
            row = narrow[at]
            group = content_id("bucket", row["block"], table, code)
            turn = run_key(row["block"], table, row["member_id"])
            rows.append({**row, "grp": group, "large": True, "turn": turn, "vector": grid[at].tobytes()})
    return pa.RecordBatch.from_pylist(rows, schema=GROUPED)


def forest_of_run(key: str, tables: Sequence[pa.Table], settings: "MergeSettings") -> pa.Table:
    """The maximum spanning forest of the compatible pairs of one group."""
    texts = tables[0].sort_by("member_id")
    if texts.num_rows < 2:
        return FOUND.empty_table()
    grid = grid_rows(texts.column("vector"))
    forest = exact_forest(grid, settings.tau_merge)
    a, b = pa.array(forest.i), pa.array(forest.j)
    return pa.table(
        {
            "block": texts.column("block").take(a),
            "large": texts.column("large").take(a),
            "a": texts.column("member_id").take(a),
            "b": texts.column("member_id").take(b),
            "a_doc": texts.column("doc_id").take(a),
            "b_doc": texts.column("doc_id").take(b),
            "a_text": texts.column("input_hash").take(a),
            "b_text": texts.column("input_hash").take(b),
            "score_e4": pa.array(forest.score, pa.int32()),
        },
        schema=FOUND,
    )


def forest_of_forests(key: str, tables: Sequence[pa.Table]) -> pa.Table:
    """The forest of a large block from those of its runs: the forest of a union is that of the union of forests."""
    edges = tables[0]
    i, j, nodes = _ends(edges)
    return edges.take(pa.array(spanning_forest(i, j, edges.column("score_e4").to_numpy(), len(nodes))))


def split_component(key: str, tables: Sequence[pa.Table], settings: "MergeSettings") -> pa.Table:
    """Judge a component's evidence: pairs between two parts are not kept (graph/splitting.py)."""
    edges, vectors = tables
    i, j, nodes = _ends(edges)
    score = edges.column("score_e4").to_numpy()
    texts = vectors.column("input_hash").combine_chunks()
    place = np.zeros(len(nodes), dtype=np.int64)
    place[i] = pc.index_in(edges.column("a_text").combine_chunks(), value_set=texts).to_numpy(zero_copy_only=False)
    place[j] = pc.index_in(edges.column("b_text").combine_chunks(), value_set=texts).to_numpy(zero_copy_only=False)
    parts = split(
        i, j, score, place, quantise(vector_rows(vectors.column("vector"))), settings.min_component_similarity
    )
    holds = np.zeros(len(i), dtype=bool)
    holds[parts.tree] = True
    a_part, b_part = parts.label[i], parts.label[j]
    judged = {name: edges.column(name) for name in ("block", "a", "b", "a_doc", "b_doc", "score_e4")}
    judged |= {"kept": pa.array(a_part == b_part), "holds": pa.array(holds)}
    judged |= {"a_part": nodes.take(pa.array(a_part)), "b_part": nodes.take(pa.array(b_part))}
    return pa.table(judged, schema=JUDGED)


def assign_entities(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Append the id of the entity that a member's part is."""
    for batch in batches:
        ids = pa.array([entity_id(part) for part in batch.column("part").to_pylist()], pa.string())
        columns = [ids if name == "entity_id" else batch.column(name) for name in ASSIGNED.names]
        yield pa.RecordBatch.from_arrays(columns, schema=ASSIGNED)


def hash_parts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        parts = batch.column("part")
        hashes = pa.array([hash_text(part) for part in parts.to_pylist()], pa.string())
        columns = {"entity_id": batch.column("entity_id"), "name": batch.column("name")}
        columns |= {"part_hash": hashes, "part": parts}
        schema = ENTITY_PARTS.schema
        yield pa.RecordBatch.from_arrays(
            [columns[name].cast(schema.field(name).type) for name in schema.names], schema=schema
        )


def vector_rows(column: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """float32 [n, d] of a column of lists of one length."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    flat = array.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(len(array), -1) if len(array) else flat.reshape(0, 1)


def grid_rows(column: pa.ChunkedArray) -> np.ndarray:
    """int16 [n, d] of a column of quantised vectors."""
    return np.frombuffer(b"".join(column.to_pylist()), dtype=np.int16).reshape(len(column), -1)


def _ends(edges: pa.Table) -> tuple[np.ndarray, np.ndarray, pa.Array]:
    """Places of both ends of each edge in the sorted members, and these."""
    a, b = edges.column("a").combine_chunks(), edges.column("b").combine_chunks()
    nodes = pc.unique(pa.chunked_array([a, b]))
    nodes = nodes.take(pc.sort_indices(nodes))
    i, j = (pc.index_in(end, value_set=nodes).to_numpy(zero_copy_only=False).astype(np.int64) for end in (a, b))
    return i, j, nodes
