"""Extents of concepts over blocks of chunks: what seeds, meets and joins weigh, where they are, and who leads them.

The extent of a seed is its column of the fuzzy context; of a meet the lesser, of a join the greater of its parents'
(the soft forms: the exact join is the closure of the soft one, see logic.py). Nothing is kept for a chunk: all here are
sums and the few strongest chunks, so that memory depends on the number of concepts alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from corpusmill.methods.contextrag.logic import soft_join, soft_meet

Ints = NDArray[np.int64]
LEADERS = 3
_BLOCK_CELLS = 1 << 22  # of one extent matrix


@dataclass(frozen=True)
class Block:
    """Some chunks in the order of the table's key. `context` int32 [n, seeds] in 1/10000, `vectors` float32 [n, d],
    `centres` float64 [n, L, d]: reconstructions from their codes, down to each level."""

    text_hashes: Sequence[str]
    chunk_ids: Sequence[str]
    context: NDArray[np.int32]
    vectors: np.ndarray
    centres: np.ndarray


@dataclass(frozen=True)
class Leader:
    """One of the strongest chunks of an extent."""

    value: int
    chunk_id: str
    text_hash: str


@dataclass
class Extents:
    """Sums over the extents of `size` concepts. `add` once for each block."""

    size: int
    dim: int
    mass: Ints = field(init=False)
    chunks: Ints = field(init=False)
    vectors: np.ndarray = field(init=False)  # float64 [size, dim]: sums weighted by membership
    leaders: list[list[Leader]] = field(init=False)

    def __post_init__(self) -> None:
        self.mass = np.zeros(self.size, np.int64)
        self.chunks = np.zeros(self.size, np.int64)
        self.vectors = np.zeros((self.size, self.dim))
        self.leaders = [[] for _ in range(self.size)]

    def add(self, extents: NDArray[np.int32], block: Block) -> None:
        """`extents` int32 [n, size] of the chunks of `block`."""
        self.mass += extents.sum(axis=0, dtype=np.int64)
        self.chunks += np.count_nonzero(extents, axis=0)
        self.vectors += extents.T.astype(np.float64) @ block.vectors.astype(np.float64)
        strongest = min(LEADERS, len(block.chunk_ids))
        for at in np.flatnonzero(extents.any(axis=0)):
            column = extents[:, at]
            bound = np.partition(column, len(column) - strongest)[len(column) - strongest]
            rows = np.flatnonzero((column >= bound) & (column > 0)).tolist()
            found = [Leader(int(column[row]), block.chunk_ids[row], block.text_hashes[row]) for row in rows]
            self.leaders[at] = sorted([*self.leaders[at], *found], key=lambda own: (-own.value, own.chunk_id))[:LEADERS]

    def means(self) -> np.ndarray:
        """float64 [size, dim]: the membership-weighted mean vector of each concept (zeros without mass)."""
        return _divided(self.vectors, self.mass)


@dataclass
class SeedSums:
    """The first pass: seeds, their centres by level, and the mass of the meet of every two of them."""

    seeds: int
    levels: int
    dim: int
    extents: Extents = field(init=False)
    meets: Ints = field(init=False)  # [seeds, seeds]
    centres: np.ndarray = field(init=False)  # float64 [seeds, levels, dim]: sums weighted by membership

    def __post_init__(self) -> None:
        self.extents = Extents(self.seeds, self.dim)
        self.meets = np.zeros((self.seeds, self.seeds), np.int64)
        self.centres = np.zeros((self.seeds, self.levels, self.dim))

    def add(self, block: Block) -> None:
        self.extents.add(block.context, block)
        weights = block.context.T.astype(np.float64)
        for level in range(self.levels):
            self.centres[:, level] += weights @ block.centres[:, level]
        for seed in range(self.seeds):
            self.meets[seed] += soft_meet(block.context[:, seed, None], block.context).sum(axis=0, dtype=np.int64)

    def mean_centres(self) -> np.ndarray:
        """float64 [seeds, levels, dim]: where the seed's chunks lie after each level."""
        flat = _divided(self.centres.reshape(self.seeds, self.levels * self.dim), self.extents.mass)
        return flat.reshape(self.centres.shape)


@dataclass(frozen=True)
class Pair:
    """Two seeds by number, a < b, and whether their meet and their join are concepts of their own."""

    a: int
    b: int
    meet: bool
    join: bool


def chosen_pairs(sums: SeedSums, per_seed: int, min_meet_share: float, max_jaccard: float) -> list[Pair]:
    """Each seed with the `per_seed` nearest by the cosine of their mean vectors, across and within levels.

    A meet counts if it has `min_meet_share` of the lesser parent's mass; neither counts if it is nearly a parent
    (Jaccard index of the extents at least `max_jaccard`). Seeds without mass have no pairs.
    """
    mass = sums.extents.mass
    alive = np.flatnonzero(mass > 0)
    unit = _unit(sums.extents.means()[alive])
    cosine = np.round(unit @ unit.T, 6)
    np.fill_diagonal(cosine, -np.inf)
    found: set[tuple[int, int]] = set()
    for row, seed in enumerate(alive):
        nearest = np.lexsort((alive, -cosine[row]))[: min(per_seed, len(alive) - 1)]
        found.update((min(seed, other), max(seed, other)) for other in alive[nearest])
    return [
        Pair(int(a), int(b), *_worth(sums.meets[a, b], mass[a], mass[b], min_meet_share, max_jaccard))
        for a, b in sorted(found)
    ]


def _worth(meet: int, a: int, b: int, min_share: float, max_jaccard: float) -> tuple[bool, bool]:
    """Whether meet and join of extents with these masses are kept. The meet lies in both parents and both in the join,
    so that the Jaccard index of two of them is the ratio of their masses."""
    join = a + b - meet
    is_meet = meet > 0 and meet >= min_share * min(a, b) and meet < max_jaccard * min(a, b)
    return bool(is_meet), bool(max(a, b) < max_jaccard * join)


def pair_extents(context: NDArray[np.int32], pairs: Sequence[Pair]) -> NDArray[np.int32]:
    """int32 [n, meets + joins]: the kept meets in the order of `pairs`, then the kept joins."""
    meets = [(p.a, p.b) for p in pairs if p.meet]
    joins = [(p.a, p.b) for p in pairs if p.join]
    parts = [np.zeros((len(context), 0), np.int32)]
    if meets:
        a, b = np.array(meets).T
        parts.append(soft_meet(context[:, a], context[:, b]))
    if joins:
        a, b = np.array(joins).T
        parts.append(soft_join(context[:, a], context[:, b]))
    return np.concatenate(parts, axis=1)


def block_rows(concepts: int) -> int:
    """Chunks of one block, so that an extent matrix stays within a few MiB."""
    return max(64, _BLOCK_CELLS // max(1, concepts))


def cooccurrence(windows: NDArray[np.bool_], factor: float) -> list[tuple[int, int, int]]:
    """(a, b, times chance in 1/10000) of columns of `windows` bool [w, seeds] that are in one window at least twice and
    more than `factor` times as often as independent ones would be. a < b, in order."""
    w = len(windows)
    counts = windows.astype(np.float32)
    together = np.rint(counts.T @ counts).astype(np.int64)  # exact below 2**24 windows
    alone = np.diagonal(together)
    out = []
    for a, b in zip(*np.triu_indices(windows.shape[1], 1), strict=True):
        n = int(together[a, b])
        chance = int(alone[a]) * int(alone[b])
        if n >= 2 and n * w > factor * chance:
            out.append((int(a), int(b), round(10_000 * n * w / chance)))
    return out


def _divided(sums: np.ndarray, mass: Ints) -> np.ndarray:
    return sums / np.maximum(mass, 1)[:, None]


def _unit(vectors: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit: np.ndarray = vectors / np.where(norms > 0, norms, 1.0)
    return unit
