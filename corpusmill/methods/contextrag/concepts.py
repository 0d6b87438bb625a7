"""The concept graph (step 5), made in two passes over the chunks by blocks, and what the codebook looks like by now."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from corpusmill.frozen import Frozen
from corpusmill.hashing import content_id
from corpusmill.methods.common.passages import VECTOR_STEP
from corpusmill.methods.common.vectors import CHUNK_VECTORS
from corpusmill.methods.contextrag import codebooks
from corpusmill.methods.contextrag.extents import (
    Block,
    Extents,
    Pair,
    SeedSums,
    block_rows,
    chosen_pairs,
    cooccurrence,
    pair_extents,
)
from corpusmill.methods.contextrag.memberships import ONE, spread
from corpusmill.methods.contextrag.quantiser import Codebook, reconstruct
from corpusmill.methods.contextrag.tables import LEVELS, LINKS, MEMBERSHIPS, TRAINING, concepts_table
from corpusmill.retrieval.vectors import VectorIndex, matrix
from corpusmill.steps import BuildContext


class GraphSettings(Frozen):
    """What changes the concept graph."""

    pairs_per_seed: int
    min_meet_share: float
    max_jaccard: float
    window: int
    windows_max: int
    cooccurrence: float
    nprobe: int
    dim: int
    levels: int


@dataclass(frozen=True)
class Node:
    """A concept of the graph. `parents` are seeds by number; of a seed none, and `place` is its (level, centroid)."""

    concept_id: str
    kind: str
    place: tuple[int, int]
    parents: tuple[int, ...] = ()


@dataclass(frozen=True)
class Codes:
    """Of all chunks in the order of the table's key: codes int16 [n, L], distances int32 [n, L], ids."""

    codes: np.ndarray
    distances: np.ndarray
    chunk_ids: list[str]


def build_graph(context: BuildContext) -> None:
    """`context_concepts`, `context_links` and `context_levels`."""
    own = context.settings
    assert isinstance(own, GraphSettings)
    training = _table(context, TRAINING.name)
    book = codebooks.from_tables(_table(context, "context_codebook"), training)
    if book is None or not context.rows(MEMBERSHIPS.name):
        return
    codes = _codes(context, len(book.levels))
    places = _seed_places(book, codes)
    sums = SeedSums(len(places), len(book.levels), own.dim)
    values: list[np.ndarray] = []
    for block in _blocks(context, book, places, block_rows(len(places))):
        sums.add(block)
        values.append(_sampled(block.context))
    pairs = chosen_pairs(sums, own.pairs_per_seed, own.min_meet_share, own.max_jaccard)
    derived = Extents(sum(p.meet for p in pairs) + sum(p.join for p in pairs), own.dim)
    for block in _blocks(context, book, places, block_rows(len(places) + derived.size)):
        derived.add(pair_extents(block.context, pairs), block)
    address = book.digest
    seeds = [Node(content_id("concept", address, "seed", *place), "seed", place) for place in places]
    nodes = [*seeds, *_derived_nodes(address, seeds, pairs)]
    context.put("context_concepts", _concept_rows(address, nodes, seeds, sums, derived, own))
    links = [*_lattice(nodes, seeds, sums, derived), *_cooccurring(context, codes, places, seeds, own)]
    context.put(LINKS.name, LINKS.table(sorted(links, key=lambda row: tuple(map(str, row.values())))))
    context.put(LEVELS.name, _level_rows(training, book, codes, np.concatenate(values), places))
    context.progress(f"{len(seeds)} seeds, {derived.size} meets and joins, {len(links)} links")


def _seed_places(book: Codebook, codes: Codes) -> list[tuple[int, int]]:
    """(level, centroid) of the active centroids that at least two chunks of the corpus have: a seed each."""
    places = []
    for level, active in enumerate(book.active):
        sizes = np.bincount(codes.codes[:, level], minlength=len(active))
        places += [(level, int(at)) for at in np.flatnonzero(active & (sizes > 1))]
    return places


def _table(context: BuildContext, name: str) -> pa.Table:
    batches = list(context.batches(name))
    return pa.Table.from_batches(batches) if batches else pa.table({})


def _derived_nodes(address: str, seeds: Sequence[Node], pairs: Sequence[Pair]) -> Iterator[Node]:
    """In the order of `pair_extents`: kept meets, then kept joins."""
    for kind in ("meet", "join"):
        for pair in pairs:
            if getattr(pair, kind):
                parents = sorted((seeds[pair.a].concept_id, seeds[pair.b].concept_id))
                yield Node(content_id("concept", address, kind, *parents), kind, (-1, -1), (pair.a, pair.b))


def _blocks(context: BuildContext, book: Codebook, places: Sequence[tuple[int, int]], rows: int) -> Iterator[Block]:
    """Memberships and vectors of chunks, joined: both tables are sorted by (text, chunk)."""
    column = {place: at for at, place in enumerate(places)}
    members = _rechunked(context, MEMBERSHIPS.name, ["text_hash", "chunk_id", "codes", "attributes"], rows)
    vectors = _rechunked(context, CHUNK_VECTORS, ["text_hash", "unit_id", "vector"], rows)
    dim = book.levels[0].shape[1]
    for mine, theirs in zip(members, vectors, strict=True):
        chunk_ids = mine.column("chunk_id").to_pylist()
        if chunk_ids != theirs.column("unit_id").to_pylist():
            raise ValueError(f"memberships and vectors are not of the same chunks, from {chunk_ids[0]!r} on")
        codes = np.array(mine.column("codes").to_pylist(), np.int16).reshape(len(chunk_ids), -1)
        yield Block(
            mine.column("text_hash").to_pylist(),
            chunk_ids,
            _context(mine.column("attributes"), column),
            matrix(theirs.column("vector"), dim),
            reconstruct(book, codes).astype(np.float64),
        )


def _rechunked(context: BuildContext, table: str, columns: list[str], rows: int) -> Iterator[pa.Table]:
    """The table in pieces of exactly `rows` rows (the last may be shorter), whatever its batches."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in context.batches(table, columns):
        held.append(batch)
        count += batch.num_rows
        while count >= rows:
            whole = pa.Table.from_batches(held)
            yield whole.slice(0, rows)
            held, count = whole.slice(rows).to_batches(), count - rows
    if count:
        yield pa.Table.from_batches(held)


def _context(attributes: pa.ChunkedArray, column: dict[tuple[int, int], int]) -> np.ndarray:
    """int32 [n, seeds]; attributes of centroids that are no seeds are left out."""
    attributes = attributes.combine_chunks()
    if isinstance(attributes, pa.ChunkedArray):
        attributes = pa.concat_arrays(attributes.chunks)
    sizes = attributes.value_lengths().to_numpy(zero_copy_only=False)
    flat = attributes.flatten()
    places = zip(flat.field("level").to_pylist(), flat.field("centroid").to_pylist(), strict=True)
    columns = np.array([column.get(place, -1) for place in places], np.int64)
    rows = np.repeat(np.arange(len(sizes)), sizes)
    out = np.zeros((len(sizes), len(column)), np.int32)
    known = columns >= 0
    out[rows[known], columns[known]] = flat.field("value").to_numpy(zero_copy_only=False)[known]
    return out


def _sampled(context: np.ndarray) -> np.ndarray:
    """Of a block every 16th row at most 256: enough for quantiles of the spread."""
    sample: np.ndarray = context[:: max(1, len(context) // 256)]
    return sample


def _concept_rows(
    address: str, nodes: Sequence[Node], seeds: Sequence[Node], sums: SeedSums, derived: Extents, own: GraphSettings
) -> pa.Table:
    centres = sums.mean_centres().astype(np.float32)
    rows: list[dict[str, object]] = []
    for at, node in enumerate(nodes):
        extents, place = (sums.extents, at) if at < len(seeds) else (derived, at - len(seeds))
        own_centres = np.zeros((own.levels, own.dim), np.float32)
        if node.kind == "seed":
            own_centres[: node.place[0] + 1] = centres[at, : node.place[0] + 1]
        mass = int(extents.mass[place])
        if not mass:
            continue
        rows.append(
            {
                "concept_id": node.concept_id,
                "codebook": address,
                "kind": node.kind,
                "level": node.place[0],
                "centroid": node.place[1],
                "parents": [seeds[parent].concept_id for parent in node.parents],
                "mass": mass,
                "chunks": int(extents.chunks[place]),
                "leaders": [vars(leader) for leader in extents.leaders[place]],
                "vector": (extents.vectors[place] / mass).astype(np.float32),
                "centres": own_centres.reshape(-1),
            }
        )
    return concepts_table(own.dim, own.levels).table(sorted(rows, key=lambda row: str(row["concept_id"])))


def _lattice(
    nodes: Sequence[Node], seeds: Sequence[Node], sums: SeedSums, derived: Extents
) -> Iterator[dict[str, object]]:
    """Child to parent: a meet lies in both its parents, which lie in their join."""
    for place, node in enumerate(nodes[len(seeds) :]):
        mass = int(derived.mass[place])
        for parent in node.parents:
            other = int(sums.extents.mass[parent])
            if not mass or not other:
                continue
            ends = (node.concept_id, seeds[parent].concept_id)
            source, target = ends if node.kind == "meet" else ends[::-1]
            share = round(ONE * min(mass, other) / max(mass, other))
            yield {"kind": "lattice", "source": source, "target": target, "weight_e4": share}


def _codes(context: BuildContext, levels: int) -> Codes:
    codes, distances, ids = [], [], []
    for batch in context.batches(MEMBERSHIPS.name, ["chunk_id", "codes", "distances_e4"]):
        ids += batch.column("chunk_id").to_pylist()
        codes.append(np.array(batch.column("codes").to_pylist(), np.int16).reshape(batch.num_rows, levels))
        distances.append(np.array(batch.column("distances_e4").to_pylist(), np.int32).reshape(batch.num_rows, levels))
    return Codes(np.concatenate(codes), np.concatenate(distances), ids)


def _cooccurring(
    context: BuildContext,
    all_codes: Codes,
    places: Sequence[tuple[int, int]],
    seeds: Sequence[Node],
    own: GraphSettings,
) -> Iterator[dict[str, object]]:
    """Seeds whose chunks share retrieval windows: a chunk with its nearest neighbours.

    Of more than `windows_max` chunks those with the least ids are asked.
    """
    index = VectorIndex(lambda name: context.index_file(VECTOR_STEP, name), own.nprobe)
    n, levels = all_codes.codes.shape
    asked = np.array(sorted(sorted(range(n), key=all_codes.chunk_ids.__getitem__)[: own.windows_max]), np.int64)
    seed_of = np.full((levels, int(all_codes.codes.max()) + 1), len(places))  # the last column: no seed
    for at, (level, centroid) in enumerate(places):
        seed_of[level, centroid] = at
    seeds_of = seed_of[np.arange(levels), all_codes.codes]
    windows = np.zeros((len(asked), len(places) + 1), bool)
    for window, rows in index.neighbours(asked, own.window + 1):
        for level in range(levels):
            windows[np.repeat(window, rows.shape[1]), seeds_of[rows.reshape(-1), level]] = True
    for a, b, times in cooccurrence(windows[:, :-1], own.cooccurrence):
        source, target = sorted((seeds[a].concept_id, seeds[b].concept_id))
        yield {"kind": "cooccurrence", "source": source, "target": target, "weight_e4": times}


def _level_rows(
    training: pa.Table, book: Codebook, codes: Codes, sample: np.ndarray, places: Sequence[tuple[int, int]]
) -> pa.Table:
    fitted = {row["level"]: row["residual_e4"] for row in training.to_pylist()}
    rows: list[dict[str, object]] = []
    for level, centroids in enumerate(book.levels):
        sizes = np.bincount(codes.codes[:, level], minlength=len(centroids))
        residual = round(float(codes.distances[:, level].mean()))
        own = spread(sample[:, [at for at, place in enumerate(places) if place[0] == level]])
        rows.append(
            {
                "level": level,
                "centroids": len(centroids),
                "occupied": int((sizes > 0).sum()),
                "singletons": int((sizes == 1).sum()),
                "largest": int(sizes.max()),
                "median": int(np.median(sizes)),
                "residual_e4": residual,
                "drift_e4": round(ONE * residual / fitted[level]) if fitted.get(level) else ONE,
                "spread": [round(ONE * share) for share in (own.p05, own.p25, own.median, own.p75, own.p95)],
            }
        )
    return LEVELS.table(rows)
