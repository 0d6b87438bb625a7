"""The maximum spanning forest of the compatible pairs of a block: its merge evidence, a function of its members alone.

Scores are exact. A unit vector is rounded to integers of at most `LEVELS`; a dot product of two such vectors is an
integer below 2**24, as is every partial sum on the way to it (Cauchy-Schwarz), so that float32 BLAS gives it without
error in whatever order it adds. Scores are cosines in ten-thousandths, and pairs are ordered by
(score descending, i, j) with i < j places in the order of ids: a strict order, so the forest is unique and the forest
of a union of graphs is the forest of the union of their forests.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from corpusmill.hashing import content_id

LEVELS = 4000  # (LEVELS + sqrt(d) / 2)**2 < 2**24 up to 36,000 dimensions
SCORE_ONE = 10_000
_TO_SCORE = np.float32(SCORE_ONE / LEVELS**2)
_NONE = np.float32(-np.inf)
_QUANTISED_ROWS = 4096


@dataclass(frozen=True)
class Forest:
    """Edges i < j (int64 [m]) with scores in ten-thousandths (int32 [m]), in the order (score descending, i, j)."""

    i: np.ndarray
    j: np.ndarray
    score: np.ndarray

    @classmethod
    def of(cls, edges: Sequence[tuple[int, int, int]]) -> "Forest":
        table = np.array(edges, dtype=np.int64).reshape(-1, 3)
        order = np.lexsort((table[:, 1], table[:, 0], -table[:, 2]))
        return cls(table[order, 0], table[order, 1], table[order, 2].astype(np.int32))


def quantise(vectors: np.ndarray) -> np.ndarray:
    """int16 [n, d]: unit vectors (float32 [n, d]) on the grid of 1 / LEVELS. Zero vectors stay zero.

    Some rows at a time: in double precision a hub's vectors would take four times the memory of their grid.
    """
    grid = np.empty(vectors.shape, dtype=np.int16)
    for start in range(0, len(vectors), _QUANTISED_ROWS):
        part = vectors[start : start + _QUANTISED_ROWS]
        norms = np.sqrt(np.einsum("ij,ij->i", part, part, dtype=np.float64))
        scale = LEVELS / np.where(norms > 0, norms, 1.0)
        grid[start : start + _QUANTISED_ROWS] = np.rint(part * scale[:, None])
    return grid


def scores(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """float32 [n, m] of whole numbers: cosines in ten-thousandths of quantised rows (as float32 [n, d], [m, d])."""
    found: np.ndarray = left @ right.T
    np.multiply(found, _TO_SCORE, out=found)
    np.rint(found, out=found)
    return np.minimum(found, np.float32(SCORE_ONE), out=found)


def threshold_score(tau: float) -> int:
    """The least score that passes a cosine threshold."""
    return round(tau * SCORE_ONE)


def exact_forest(grid: np.ndarray, tau: float, tile: int = 1024) -> Forest:
    """The forest of all pairs with cosine >= tau among quantised rows (int16 [n, d]), by Borůvka over BLAS tiles.

    Memory: the rows as float32 and a few tiles of tile**2 floats. Each round makes one pass over the tiles that still
    hold a compatible pair between two components; there are at most log2(n) rounds.
    """
    n = len(grid)
    rows = grid.astype(np.float32)
    floor = np.float32(threshold_score(tau))
    group = np.arange(n, dtype=np.int32)
    starts = range(0, n, tile)
    live = [(r, c) for r in starts for c in starts if c >= r]
    edges: list[tuple[int, int, int]] = []
    while live and len(np.unique(group)) > 1:
        best = _Best(n)
        live = [(r, c) for r, c in live if _scan_tile(rows, group, floor, slice(r, r + tile), slice(c, c + tile), best)]
        added = best.edges_of(group)
        if not added:
            break
        group = _join(group, added)
        edges.extend(added)
    return Forest.of(edges)


def compatible_forest(
    vectors: np.ndarray,
    ids: Sequence[str],
    tau: float,
    *,
    keys: Sequence[str] | None = None,
    exact_max: int = 16_384,
    bucket: int = 4096,
    tile: int = 1024,
    tables: int = 8,
    seed: int = 0,
    block: str = "",
) -> list[tuple[str, str, int]]:
    """The maximum spanning forest of the pairs of `ids` with cosine >= tau: (a, b, score), a < b, strongest first.

    `vectors` float32 [n, d] belong to `ids` (distinct) in any order. Members with one key (`keys`, the hash of what was
    embedded) are one vector: each is linked to the least id of its key with score 10,000 whatever tau is. Up to
    `exact_max` distinct vectors all pairs are looked at; above, those that share a bucket in one of `tables` seeded
    tables of random hyperplanes, each bucket's pairs exactly, at most `bucket` members at a time (in an
    order that `block` seeds).
    """
    order = sorted(range(len(ids)), key=lambda at: ids[at])
    first: dict[str, str] = {}
    links: list[tuple[str, str, int]] = []
    kept: list[int] = []
    for at in order:
        key = keys[at] if keys is not None else ids[at]
        least = first.setdefault(key, ids[at])
        if least != ids[at]:
            links.append((least, ids[at], SCORE_ONE))
        else:
            kept.append(at)
    grid = quantise(np.asarray(vectors, dtype=np.float32)[kept])
    names = [ids[at] for at in kept]
    if len(names) <= exact_max:
        forest = exact_forest(grid, tau, tile)
    else:
        forest = _bucketed_forest(grid, names, tau, bucket, tile, tables, seed, block)
    found = [(names[i], names[j], int(s)) for i, j, s in zip(forest.i, forest.j, forest.score, strict=True)]
    return sorted([*links, *found], key=lambda edge: (-edge[2], edge[0], edge[1]))


def spanning_forest(i: np.ndarray, j: np.ndarray, score: np.ndarray, nodes: int) -> np.ndarray:
    """Indices (int64) of the given edges that form their maximum spanning forest, strongest first (Kruskal).

    Order (score descending, i, j); of repeated pairs the first counts.
    """
    order = np.lexsort((j, i, -np.asarray(score, dtype=np.int64)))
    parent = list(range(nodes))
    kept: list[int] = []
    for at in order.tolist():
        a, b = find(parent, int(i[at])), find(parent, int(j[at]))
        if a != b:
            parent[max(a, b)] = min(a, b)
            kept.append(at)
    return np.array(kept, dtype=np.int64)


def find(parent: list[int], node: int) -> int:
    """The root of `node` in a disjoint-set forest, with path halving."""
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node


class _Best:
    """For each node the strongest edge that leaves its component: score, least (i, j) among equals."""

    def __init__(self, nodes: int) -> None:
        self.score = np.full(nodes, _NONE, dtype=np.float32)
        self.i = np.zeros(nodes, dtype=np.int64)
        self.j = np.zeros(nodes, dtype=np.int64)

    def offer(self, nodes: np.ndarray, score: np.ndarray, i: np.ndarray, j: np.ndarray) -> None:
        known, ki, kj = self.score[nodes], self.i[nodes], self.j[nodes]
        better = (score > known) | ((score == known) & (score > _NONE) & ((i < ki) | ((i == ki) & (j < kj))))
        at = nodes[better]
        self.score[at], self.i[at], self.j[at] = score[better], i[better], j[better]

    def edges_of(self, group: np.ndarray) -> list[tuple[int, int, int]]:
        """The strongest edge of each component, each once."""
        at = np.flatnonzero(self.score > _NONE)
        order = at[np.lexsort((self.j[at], self.i[at], -self.score[at], group[at]))]
        leads = order[np.concatenate([[True], group[order][1:] != group[order][:-1]])] if len(order) else order
        chosen = {(int(self.i[k]), int(self.j[k]), int(self.score[k])) for k in leads}
        return sorted(chosen)


def _scan_tile(rows: np.ndarray, group: np.ndarray, floor: np.float32, r: slice, c: slice, best: _Best) -> bool:
    """Offer the tile's strongest edges to their ends; False if it holds no pair left to join."""
    left, right = group[r], group[c]
    if left.min() == left.max() == right.min() == right.max():
        return False
    found = scores(rows[r], rows[c])
    np.copyto(found, _NONE, where=left[:, None] == right[None, :])
    if r.start == c.start:
        np.copyto(found, _NONE, where=np.tri(*found.shape, dtype=np.bool_))
    columns = found.argmax(axis=1)
    of_rows = found[np.arange(len(left)), columns]
    of_rows[of_rows < floor] = _NONE
    if of_rows.max(initial=_NONE) == _NONE:
        return False
    found = np.ascontiguousarray(found.T)  # argmax down the columns of a row-major array is ten times slower
    lines = found.argmax(axis=1)
    of_columns = found[np.arange(len(right)), lines]
    of_columns[of_columns < floor] = _NONE
    at_row, at_column = np.arange(r.start, r.start + len(left)), np.arange(c.start, c.start + len(right))
    best.offer(at_row, of_rows, at_row, c.start + columns)
    best.offer(at_column, of_columns, r.start + lines, at_column)
    return True


def _join(group: np.ndarray, edges: Sequence[tuple[int, int, int]]) -> np.ndarray:
    parent = list(range(len(group)))
    for i, j, _ in edges:
        a, b = find(parent, int(group[i])), find(parent, int(group[j]))
        parent[max(a, b)] = min(a, b)
    roots = np.array([find(parent, g) for g in range(len(group))], dtype=np.int32)
    return roots[group]


def hyperplane_codes(grid: np.ndarray, bits: int, tables: int, seed: int) -> np.ndarray:
    """int64 [tables, n]: the side of `bits` random hyperplanes on which each quantised row lies, for each table.

    Hyperplanes have small integer normals, so that signs are exact and equal on every machine.
    """
    planes = np.random.default_rng(seed).integers(-8, 9, size=(tables, bits, grid.shape[1]))
    sides = np.einsum("nd,tbd->tnb", grid.astype(np.float64), planes.astype(np.float64), optimize=True) > 0
    return (sides * (1 << np.arange(bits, dtype=np.int64))).sum(axis=2)


def bucket_bits(members: int, bucket: int) -> int:
    """Bits a table needs for buckets of about half `bucket` members."""
    return max(1, int(np.ceil(np.log2(2 * members / bucket))))


def bucket_runs(order: np.ndarray, bucket: int) -> Iterator[np.ndarray]:
    """A bucket's members, in some order (int64 [m]), in runs of at most `bucket` + 1; neighbours share one member."""
    for start in range(0, len(order), bucket):
        yield np.sort(order[start : start + bucket + 1])


def run_key(block: str, table: int, member: str) -> str:
    """Where a member stands in the order in which a bucket of a table is cut in runs; other tables, other orders."""
    return content_id("run", block, table, member)


def _bucketed_forest(
    grid: np.ndarray, names: Sequence[str], tau: float, bucket: int, tile: int, tables: int, seed: int, block: str
) -> Forest:
    codes = hyperplane_codes(grid, bucket_bits(len(grid), bucket), tables, seed)
    pieces: list[Forest] = []
    for table in range(tables):
        buckets: dict[int, list[int]] = {}
        for at, code in enumerate(codes[table].tolist()):
            buckets.setdefault(code, []).append(at)
        for members in buckets.values():
            members.sort(key=lambda at, t=table: run_key(block, t, names[at]))  # type: ignore[misc]
            for run in bucket_runs(np.array(members, dtype=np.int64), bucket):
                part = exact_forest(grid[run], tau, tile)
                pieces.append(Forest(run[part.i], run[part.j], part.score))
    i, j, score = (np.concatenate([getattr(p, name) for p in pieces]) for name in ("i", "j", "score"))
    kept = spanning_forest(i, j, score, len(grid))
    return Forest(i[kept], j[kept], score[kept])
