"""HDBSCAN from exact spanning trees over items that stand in an order: banded where the order allows it, dense else.

The distance of items i and j of a sequence is 1 - cos(v_i, v_j) + alpha * |i - j| (FlexStructRAG, equation 3). Where
many distances are equal the minimum spanning tree, and with it the clusters, would be arbitrary; so

- distances are integers of 2**-20. The vectors are rounded to integers first, so that every dot product is exact
  whatever the shape of the matrix product, and a pair has one distance in every form and on every machine;
- edges are ordered by (mutual reachability, i, j), which makes the minimum spanning tree unique;
- hdbscan's own linkage, condensing and selection read that tree, and clusters are numbered by their first member.

With alpha > 0 a pair further apart than `band_width` is longer than each step of the walk between its ends, so it
cannot be in the tree: the banded form returns what the dense form returns, at linear cost.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

UNIT = 1 << 20  # distances are integers of 1/UNIT; finer than what float32 vectors carry
_VECTOR_SCALE = 1 << 26  # a dot product stays under 2**53, the last integer that float64 and its sums hold exactly
_BLOCK_PAIRS = 1 << 18  # pairs held at once, or four for each item if that is more

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Tree:
    """Edges of a spanning tree in the order of their (weight, i, j), i < j; weights in units of 1/UNIT."""

    i: Ints
    j: Ints
    weight: Ints


def cluster_sequence(
    vectors: np.ndarray,
    alpha: float,
    min_cluster_size: int = 2,
    min_samples: int = 1,
    allow_single_cluster: bool = False,
    width: int | None = None,
) -> Ints:
    """Cluster labels int64 [n] of `vectors` [n, d], given in sequence order: 0, 1, ... by first member, -1 for noise.

    `width` overrides the number of neighbours looked at on each side (n - 1: the dense form).
    """
    n = len(vectors)
    if n < 2:
        return np.full(n, -1, dtype=np.int64)
    tree = sequence_tree(vectors, alpha, min_samples, width)
    return number_by_first_member(tree_labels(tree, min_cluster_size, allow_single_cluster))


def band_width(alpha: float, min_samples: int, n: int) -> int:
    """Neighbours on each side that hold every edge of the minimum spanning tree; n - 1 where alpha is 0.

    Each step of the walk between two items weighs at most 2 + alpha * min_samples, a pair g places apart at least
    alpha * g.
    """
    if alpha * (n - 1) <= 2:
        return n - 1
    return min(n - 1, math.ceil((2 + alpha * min(min_samples, n - 1)) / alpha) + 1)


def sequence_tree(vectors: np.ndarray, alpha: float, min_samples: int = 1, width: int | None = None) -> Tree:
    """The minimum spanning tree of mutual reachability over the band, by Kruskal's order (weight, i, j).

    Memory is linear in n: pairs are made and folded into the forest block by block.
    """
    n = len(vectors)
    width = band_width(alpha, min_samples, n) if width is None else min(width, n - 1)
    space = _Sequence(_integer_units(vectors), alpha, width)
    core = space.core_distances(min(min_samples, n - 1))
    forest = Tree(*(np.empty(0, dtype=np.int64) for _ in range(3)))
    pending: list[tuple[Ints, Ints, Ints]] = []
    held = 0
    for i, j, distance in space.pairs():
        weight = np.maximum(distance, np.maximum(core[i], core[j]))
        if len(forest.i) == n - 1:  # a later pair no lighter than all of a spanning tree cannot enter it
            light = weight < forest.weight.max()
            i, j, weight = i[light], j[light], weight[light]
        pending.append((i, j, weight))
        held += len(i)
        if held >= max(_BLOCK_PAIRS, 4 * n):
            forest, pending, held = _fold(forest, pending, n), [], 0
    if pending:
        forest = _fold(forest, pending, n)
    order = np.argsort(forest.weight, kind="stable")
    return Tree(forest.i[order], forest.j[order], forest.weight[order])


def tree_labels(tree: Tree, min_cluster_size: int, allow_single_cluster: bool) -> Ints:
    """hdbscan's flat clusters (excess of mass) of a spanning tree of n - 1 ordered edges; -1 is noise."""
    from hdbscan._hdbscan_linkage import label
    from hdbscan._hdbscan_tree import compute_stability, condense_tree, get_clusters

    edges = np.column_stack([tree.i, tree.j, tree.weight / UNIT]).astype(np.float64)
    condensed = condense_tree(label(edges), min_cluster_size)
    stability = compute_stability(condensed)
    labels = get_clusters(condensed, stability, "eom", allow_single_cluster)[0]
    return np.asarray(labels, dtype=np.int64)


def number_by_first_member(labels: np.ndarray) -> Ints:
    """The same partition with clusters numbered in the order of their first members; negative stays -1."""
    out = np.full(len(labels), -1, dtype=np.int64)
    inside = labels >= 0
    if inside.any():
        _, first, inverse = np.unique(labels[inside], return_index=True, return_inverse=True)
        rank = np.empty(len(first), dtype=np.int64)
        rank[np.argsort(first)] = np.arange(len(first))
        out[inside] = rank[inverse]
    return out


def _integer_units(vectors: np.ndarray) -> np.ndarray:
    """Unit vectors times 2**26, rounded: float64 that hold integers. A zero vector stays zero."""
    wide = np.asarray(vectors, dtype=np.float64)
    norms = np.sqrt((wide * wide).sum(axis=1, keepdims=True))
    return np.rint(np.divide(wide, norms, out=np.zeros_like(wide), where=norms > 0) * _VECTOR_SCALE)


def _fold(forest: Tree, blocks: list[tuple[Ints, Ints, Ints]], n: int) -> Tree:
    """The minimum spanning forest of `forest` and later pairs; both in the order of (i, j), and so the result."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import minimum_spanning_tree

    i, j, weight = (np.concatenate(parts) for parts in zip((forest.i, forest.j, forest.weight), *blocks, strict=True))
    order = np.argsort(weight, kind="stable")  # pairs come in the order of (i, j), so this is (weight, i, j)
    rank = np.empty(len(order), dtype=np.float64)
    rank[order] = np.arange(1, len(order) + 1)  # distinct weights: one minimum spanning tree
    kept = minimum_spanning_tree(coo_array((rank, (i, j)), shape=(n, n)).tocsr()).data
    at = np.sort(order[kept.astype(np.int64) - 1])
    return Tree(i[at], j[at], weight[at])


@dataclass(frozen=True)
class _Sequence:
    """Distances between items of a sequence at most `width` places apart, block by block."""

    units: np.ndarray
    alpha: float
    width: int

    def core_distances(self, min_samples: int) -> Ints:
        """Distance to the `min_samples`-th nearest other item within the band, int64 [n]."""
        core = np.empty(len(self.units), dtype=np.int64)
        far = np.iinfo(np.int64).max
        for rows, _, gap, distance in self._blocks():
            distance[(gap == 0) | (gap > self.width)] = far
            core[rows] = np.partition(distance, min_samples - 1, axis=1)[:, min_samples - 1]
        return core

    def pairs(self) -> Iterator[tuple[Ints, Ints, Ints]]:
        """(i, j, distance) of all pairs i < j of the band, in the order of (i, j)."""
        for rows, columns, gap, distance in self._blocks():
            at = np.nonzero((columns[None, :] > rows[:, None]) & (gap <= self.width))
            yield rows[at[0]], columns[at[1]], distance[at]

    def _blocks(self) -> Iterator[tuple[Ints, Ints, Ints, Ints]]:
        n = len(self.units)
        step = max(1, min(256, _BLOCK_PAIRS // n)) if self.width >= n - 1 else 256
        for first in range(0, n, step):
            last = min(n, first + step)
            low, high = max(0, first - self.width), min(n, last + self.width)
            dots = self.units[first:last] @ self.units[low:high].T
            cosine = np.rint((_VECTOR_SCALE**2 - dots) * (UNIT / _VECTOR_SCALE**2))
            rows, columns = np.arange(first, last), np.arange(low, high)
            gap = np.abs(rows[:, None] - columns[None, :])
            place = np.rint(self.alpha * UNIT * gap)
            # At least one unit, so that 1 / distance stays finite for repeated vectors at alpha 0.
            yield rows, columns, gap, np.maximum(np.maximum(cosine, 0) + place, 1).astype(np.int64)
