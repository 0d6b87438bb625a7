"""Connected components in memory: scipy over integers; a component's label is its least member."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def component_labels(a: np.ndarray, b: np.ndarray, nodes: int) -> np.ndarray:
    """int64 [nodes]: for each of 0..nodes-1 the least node of its component, given edges a[k] - b[k] (int [m])."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    graph = coo_matrix((np.ones(len(a), dtype=np.int8), (a, b)), shape=(nodes, nodes))
    count, label = connected_components(graph, directed=False)
    least = np.full(count, nodes, dtype=np.int64)
    np.minimum.at(least, label, np.arange(nodes, dtype=np.int64))
    return least[label]


def components(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Components of edges between any int64 ids: (nodes sorted int64 [n], least member of each one's component [n])."""
    nodes, place = np.unique(np.concatenate([a, b]), return_inverse=True)
    label = component_labels(place[: len(a)], place[len(a) :], len(nodes))
    return nodes, nodes[label]


def string_components(
    a: Sequence[str] | pa.ChunkedArray | pa.Array, b: Sequence[str] | pa.ChunkedArray | pa.Array
) -> pa.Table:
    """Components of edges between string ids: a table (node, component), sorted by node; component = least string."""
    ends = pa.chunked_array([*_chunks(a), *_chunks(b)], type=pa.string())
    nodes = pc.unique(ends)
    nodes = nodes.take(pc.sort_indices(nodes))
    place = pc.index_in(ends, value_set=nodes).to_numpy()
    half = len(place) // 2
    label = component_labels(place[:half], place[half:], len(nodes))
    return pa.table({"node": nodes, "component": nodes.take(pa.array(label))})


def _chunks(ids: Sequence[str] | pa.ChunkedArray | pa.Array) -> list[pa.Array]:
    if isinstance(ids, pa.ChunkedArray):
        return list(ids.chunks)
    return [ids if isinstance(ids, pa.Array) else pa.array(ids, pa.string())]
