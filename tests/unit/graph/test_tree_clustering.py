"""The banded form against a plain dense Kruskal, and against hdbscan itself where no distances are equal."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from corpusmill.graph import tree_clustering
from corpusmill.graph.tree_clustering import (
    UNIT,
    Tree,
    band_width,
    cluster_sequence,
    number_by_first_member,
    sequence_tree,
    tree_labels,
)


def dense_tree(vectors: np.ndarray, alpha: float, min_samples: int) -> Tree:
    """Kruskal over the whole matrix, pair by pair, in the order of (weight, i, j)."""
    n = len(vectors)
    units = [[int(x) for x in row] for row in tree_clustering._integer_units(vectors)]
    scale = tree_clustering._VECTOR_SCALE**2
    distance = np.zeros((n, n), dtype=np.int64)
    for i in range(n):
        for j in range(i + 1, n):
            dot = sum(a * b for a, b in zip(units[i], units[j], strict=True))
            cosine = max(0, round((scale - dot) * (UNIT / scale)))
            distance[i, j] = distance[j, i] = max(1, cosine + round(alpha * UNIT * (j - i)))
    core = np.partition(distance, min(n - 1, min_samples), axis=0)[min(n - 1, min_samples)]
    edges = sorted(
        (max(int(distance[i, j]), int(core[i]), int(core[j])), i, j) for i in range(n) for j in range(i + 1, n)
    )
    return kruskal(edges, n)


def kruskal(edges: list[tuple[int, int, int]], n: int) -> Tree:
    parent = list(range(n))

    def root(x: int) -> int:
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        return x

    kept = []
    for weight, i, j in edges:
        if root(i) != root(j):
            parent[root(i)] = root(j)
            kept.append((i, j, weight))
    return Tree(*np.array(kept, dtype=np.int64).reshape(-1, 3).T)


def equal(a: Tree, b: Tree) -> bool:
    return all(np.array_equal(x, y) for x, y in zip((a.i, a.j, a.weight), (b.i, b.j, b.weight), strict=True))


# Few distinct values and repeated rows: many equal distances.
COARSE = st.integers(2, 48).flatmap(
    lambda n: arrays(np.float32, (n, 3), elements=st.sampled_from([-1.0, 0.0, 0.5, 1.0]))
)
ALPHAS = st.sampled_from([0.0, 0.05, 0.1, 0.25, 1.0, 3.0])


@settings(max_examples=60, deadline=None)
@given(COARSE, ALPHAS, st.integers(1, 3))
def test_banded_tree_is_the_dense_kruskal_tree(vectors: np.ndarray, alpha: float, min_samples: int) -> None:
    assert equal(sequence_tree(vectors, alpha, min_samples), dense_tree(vectors, alpha, min_samples))


def statements(n: int, kind: str, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if kind == "random":
        return rng.normal(size=(n, 64)).astype(np.float32)
    topics = np.repeat(rng.normal(size=(n // 9 + 1, 64)), 9, axis=0)[:n]
    if kind == "topical":
        return (topics + 0.6 * rng.normal(size=(n, 64))).astype(np.float32)
    if kind == "repeated":
        return topics[9 * rng.integers(0, 7, size=n)].astype(np.float32)
    signs = rng.choice([-1.0, 1.0], size=(n, 1))  # opposite vectors: the longest cosine distances there are
    return (signs * topics[:1] + 1e-6 * rng.normal(size=(n, 64))).astype(np.float32)


@pytest.mark.parametrize("kind", ["random", "topical", "repeated", "opposite"])
@pytest.mark.parametrize(("n", "alpha"), [(700, 0.1), (700, 0.03), (700, 0.5)])
def test_banded_clusters_are_the_dense_ones(kind: str, n: int, alpha: float) -> None:
    vectors = statements(n, kind, seed=n)
    assert band_width(alpha, 1, n) < n - 1
    banded, dense = sequence_tree(vectors, alpha), sequence_tree(vectors, alpha, width=n - 1)
    assert equal(banded, dense)
    assert np.array_equal(cluster_sequence(vectors, alpha), number_by_first_member(tree_labels(dense, 2, False)))


@pytest.mark.parametrize("kind", ["repeated", "topical"])
def test_banded_clusters_are_the_dense_ones_at_2000(kind: str) -> None:
    vectors = statements(2000, kind, seed=1)
    banded = cluster_sequence(vectors, 0.1)
    assert np.array_equal(banded, cluster_sequence(vectors, 0.1, width=1999))
    assert banded.max() > 100


def test_a_band_too_narrow_is_noticed() -> None:
    """The comparison above can fail: half the band gives another tree."""
    vectors = statements(700, "opposite", seed=3)
    assert not equal(sequence_tree(vectors, 0.1, width=6), sequence_tree(vectors, 0.1))


@pytest.mark.parametrize("kind", ["random", "topical"])
@pytest.mark.parametrize("alpha", [0.0, 0.1])
def test_same_clusters_as_hdbscan_where_nothing_is_equal(kind: str, alpha: float) -> None:
    import hdbscan

    vectors = statements(600, kind, seed=5)
    unit = vectors.astype(np.float64) / np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    place = np.arange(len(vectors))
    distance = np.maximum(1 - unit @ unit.T, 0) + alpha * np.abs(place[:, None] - place)
    np.fill_diagonal(distance, 0)
    theirs = hdbscan.HDBSCAN(metric="precomputed", min_cluster_size=2, min_samples=1).fit_predict(distance)
    ours = cluster_sequence(vectors, alpha)
    assert np.array_equal(ours, number_by_first_member(theirs))
    assert ours.max() > 10


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors = statements(300, "repeated", seed=1)
    whole = sequence_tree(vectors, 0.0)
    monkeypatch.setattr(tree_clustering, "_BLOCK_PAIRS", 777)
    assert equal(sequence_tree(vectors, 0.0), whole)


def test_float32_noise_below_a_unit_changes_nothing() -> None:
    vectors = statements(400, "topical", seed=2)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert np.array_equal(cluster_sequence(vectors, 0.1), cluster_sequence(np.nextafter(vectors, 2), 0.1))


@settings(max_examples=60, deadline=None)
@given(arrays(np.int64, st.integers(0, 30), elements=st.integers(-1, 5)))
def test_numbering_keeps_the_partition_and_follows_first_members(labels: np.ndarray) -> None:
    numbered = number_by_first_member(labels)
    assert np.array_equal(numbered < 0, labels < 0)
    seen = list(dict.fromkeys(int(x) for x in numbered if x >= 0))
    assert seen == list(range(len(seen)))
    pairs = {(int(a), int(b)) for a, b in zip(labels, numbered, strict=True)}
    assert len({a for a, _ in pairs}) == len({b for _, b in pairs}) == len(pairs)


@pytest.mark.parametrize("n", [0, 1])
def test_fewer_than_two_items_are_noise(n: int) -> None:
    assert cluster_sequence(np.ones((n, 4), dtype=np.float32), 0.1).tolist() == [-1] * n


@pytest.mark.parametrize("n", [2, 3, 4, 5])
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("alpha", [0.0, 0.1])
def test_small_and_identical_inputs_are_survived(n: int, single: bool, alpha: float) -> None:
    labels = cluster_sequence(np.ones((n, 4), dtype=np.float32), alpha, allow_single_cluster=single)
    assert len(labels) == n
    assert single or n > 3 or set(labels) == {-1}


def test_zero_vectors_have_no_direction_and_do_no_harm() -> None:
    vectors = np.vstack([np.zeros((3, 8)), statements(20, "random", 0)[:, :8]]).astype(np.float32)
    assert len(cluster_sequence(vectors, 0.1)) == 23
