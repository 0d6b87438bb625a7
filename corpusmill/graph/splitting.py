"""Splitting a component that chains: no part may hold two members less alike than a floor.

Components over compatible pairs chain by nature. The rule: remove the weakest edge of the component's maximum spanning
forest, again and again, from every part whose least pairwise similarity is under the floor. That is the same as
building the single-linkage tree from the strongest edge down and keeping its largest nodes that pass, which is what is
done here: each pair of members is compared once. A part keeps at most `WITNESSES` members to compare, those least like
its sum; up to that many distinct vectors the least similarity is exact, above it the witnesses are evidence: a part is
split only by a pair that was seen to be under the floor.
"""

from dataclasses import dataclass, field

import numpy as np

from corpusmill.graph.forest import find, scores, spanning_forest, threshold_score

WITNESSES = 1024


@dataclass(frozen=True)
class Parts:
    """`label` int64 [nodes]: the least node of each node's part; `tree` int64: the edges that hold parts together."""

    label: np.ndarray
    tree: np.ndarray


@dataclass
class _Part:
    places: np.ndarray  # of distinct vectors, sorted; all of them, or the witnesses
    total: np.ndarray | None = field(default=None)  # the sum of all vectors once `places` were cut down


def split(
    i: np.ndarray,
    j: np.ndarray,
    score: np.ndarray,
    place: np.ndarray,
    grid: np.ndarray,
    floor: float,
    witnesses: int = WITNESSES,
) -> Parts:
    """Split the components of edges i - j (int64 [m], scores in ten-thousandths) between nodes 0..n-1.

    `place` int64 [n] is each node's row in `grid`, the distinct quantised vectors (int16 [v, d]).
    """
    nodes = len(place)
    least = threshold_score(floor)
    rows = grid.astype(np.float32)
    whole, part = list(range(nodes)), list(range(nodes))
    failed = [False] * nodes
    held = {node: _Part(place[node : node + 1]) for node in range(nodes)}
    tree: list[int] = []
    for edge in spanning_forest(i, j, score, nodes).tolist():
        a, b = find(whole, int(i[edge])), find(whole, int(j[edge]))
        root, other = min(a, b), max(a, b)
        whole[other] = root
        joined = None if failed[a] or failed[b] else _joined(held[a], held[b], rows, least, witnesses)
        if joined is None:
            failed[root] = True
            continue
        held[root] = joined
        del held[other]
        part[other] = root
        tree.append(edge)
    label = np.array([find(part, node) for node in range(nodes)], dtype=np.int64)
    return Parts(label, np.array(sorted(tree), dtype=np.int64))


def _joined(left: _Part, right: _Part, rows: np.ndarray, least: int, witnesses: int) -> _Part | None:
    """The union of two parts that pass, or None if a pair across them is under the floor."""
    if scores(rows[left.places], rows[right.places]).min() < least:
        return None
    places = np.union1d(left.places, right.places)
    whole = left.total is None and right.total is None
    if len(places) <= (witnesses if whole else 2 * witnesses):
        return _Part(places, None if whole else _total(left, rows) + _total(right, rows))
    total = _total(left, rows) + _total(right, rows)
    likeness = rows[places].astype(np.float64) @ total  # whole numbers below 2**53: exact
    kept = np.lexsort((places, likeness))[:witnesses]
    return _Part(np.sort(places[kept]), total)


def _total(part: _Part, rows: np.ndarray) -> np.ndarray:
    if part.total is not None:
        return part.total
    total: np.ndarray = rows[part.places].sum(axis=0, dtype=np.float64)
    return total
