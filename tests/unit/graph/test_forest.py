"""The forest against brute force: unique, independent of order, tiles and duplicates."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.graph import forest as under_test
from corpusmill.graph.forest import compatible_forest, exact_forest, quantise, scores, spanning_forest, threshold_score


def _vectors(seed: int, n: int, d: int, groups: int, noise: float) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(groups, d))
    v = centres[rng.integers(groups, size=n)] + noise * rng.normal(size=(n, d))
    return (v / np.linalg.norm(v, axis=1, keepdims=True)).astype(np.float32)


def _brute(vectors: np.ndarray, ids: list[str], tau: float) -> list[tuple[str, str, int]]:
    order = sorted(range(len(ids)), key=lambda k: ids[k])
    grid = quantise(vectors[order]).astype(np.int64)
    names = [ids[k] for k in order]
    pairs = []
    for i in range(len(names)):
        for j in range(i + 1, len(names)):
            score = int(np.rint(np.float32(int(grid[i] @ grid[j])) * np.float32(10_000 / under_test.LEVELS**2)))
            if min(score, 10_000) >= threshold_score(tau):
                pairs.append((min(score, 10_000), i, j))
    pairs.sort(key=lambda p: (-p[0], p[1], p[2]))
    parent = list(range(len(names)))

    def root(x: int) -> int:
        while parent[x] != x:
            x = parent[x]
        return x

    kept = []
    for score, i, j in pairs:
        if root(i) != root(j):
            parent[root(i)] = root(j)
            kept.append((names[i], names[j], score))
    return kept


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    n=st.integers(1, 60),
    d=st.sampled_from([2, 3, 16]),
    groups=st.integers(1, 8),
    noise=st.sampled_from([0.0, 0.05, 0.5]),
    tau=st.sampled_from([-1.0, 0.0, 0.5, 0.9, 1.0]),
    tile=st.sampled_from([1, 7, 64]),
)
def test_equals_brute_force_whatever_the_order_and_tiles(
    seed: int, n: int, d: int, groups: int, noise: float, tau: float, tile: int
) -> None:
    vectors = _vectors(seed, n, d, groups, noise)
    ids = [f"m{k:03d}" for k in range(n)]
    expected = _brute(vectors, ids, tau)
    shuffled = np.random.default_rng(seed + 1).permutation(n)
    found = compatible_forest(vectors[shuffled], [ids[k] for k in shuffled], tau, tile=tile)
    assert found == expected


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_equal_keys_are_linked_to_their_least_member(keys: list[str], random: object) -> None:
    base = {"a": [1.0, 0.0], "b": [0.0, 1.0], "c": [-1.0, 0.0]}
    rows = [(f"m{k:02d}", key) for k, key in enumerate(keys)]
    random.shuffle(rows)  # type: ignore[attr-defined]
    vectors = np.array([base[key] for _, key in rows], dtype=np.float32)
    found = compatible_forest(vectors, [m for m, _ in rows], 0.5, keys=[key for _, key in rows])
    least = {key: min(m for m, k in rows if k == key) for key in set(keys)}
    assert sorted(found) == sorted((least[key], m, 10_000) for m, key in rows if m != least[key])


def test_scores_are_exact_whatever_the_order_of_addition() -> None:
    grid = quantise(_vectors(3, 64, 384, 3, 0.7)).astype(np.float32)
    whole = scores(grid, grid)
    shuffled = np.random.default_rng(0).permutation(384)
    assert np.array_equal(
        whole, scores(np.ascontiguousarray(grid[:, shuffled]), np.ascontiguousarray(grid[:, shuffled]))
    )
    assert np.array_equal(whole[5:6], scores(grid[5:6], grid))


def test_zero_vectors_and_single_members_join_nothing() -> None:
    assert compatible_forest(np.zeros((3, 4), np.float32), ["a", "b", "c"], 0.1) == []
    assert compatible_forest(np.ones((1, 4), np.float32), ["a"], -1.0) == []


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), bucket=st.sampled_from([8, 40]))
def test_buckets_depend_on_the_members_alone_and_find_only_compatible_pairs(seed: int, bucket: int) -> None:
    n = 150
    vectors = _vectors(seed, n, 24, 6, 0.15)
    ids = [f"m{k:03d}" for k in range(n)]
    exact = compatible_forest(vectors, ids, 0.8)
    shuffled = np.random.default_rng(seed).permutation(n)
    first = compatible_forest(vectors, ids, 0.8, exact_max=50, bucket=bucket)
    again = compatible_forest(vectors[shuffled], [ids[k] for k in shuffled], 0.8, exact_max=50, bucket=bucket)
    assert first == again
    assert len({frozenset(e[:2]) for e in first}) == len(first) <= len(exact)
    assert all(score >= 8000 for *_, score in first)


def test_a_bucket_of_near_equals_stays_connected_when_it_is_cut_in_runs() -> None:
    vectors = _vectors(1, 200, 16, 1, 0.001)
    found = compatible_forest(vectors, [f"m{k:03d}" for k in range(200)], 0.9, exact_max=50, bucket=16)
    assert len(found) == 199


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 4)), max_size=40), st.integers(0, 40))
def test_the_forest_of_a_union_is_the_forest_of_the_forests(raw: list[tuple[int, int, int]], cut: int) -> None:
    weight: dict[tuple[int, int], int] = {}
    for a, b, s in raw:
        if a != b:
            weight.setdefault((min(a, b), max(a, b)), s)
    edges = [(i, j, s) for (i, j), s in weight.items()]

    def forest(part: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        i, j, s = (np.array([e[k] for e in part], dtype=np.int64) for k in range(3))
        return [part[k] for k in spanning_forest(i, j, s, 10)]

    cut = min(cut, len(edges))
    assert forest(forest(edges[:cut]) + forest(edges[cut:])) == forest(edges)


def test_many_equal_scores_cannot_make_a_cycle() -> None:
    vectors = np.tile(np.eye(3, dtype=np.float32), (30, 1))
    found = exact_forest(quantise(vectors), 0.5, tile=8)
    assert len(found.i) == 87
    assert found.i.max() < 3
