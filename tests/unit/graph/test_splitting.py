import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.graph.forest import exact_forest, quantise, scores, threshold_score
from corpusmill.graph.splitting import split


def _fan(n: int, seed: int) -> np.ndarray:
    angle = np.sort(np.random.default_rng(seed).uniform(0, np.pi, n))
    return quantise(np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32))


def _top_down(i: np.ndarray, j: np.ndarray, s: np.ndarray, grid: np.ndarray, floor: int) -> list[int]:
    """Remove the weakest edge (the last of the forest's order) of every part that fails, until none does."""
    edges = list(zip(i.tolist(), j.tolist(), s.tolist(), strict=True))
    while True:
        label = list(range(len(grid)))
        for _ in range(len(grid)):
            for a, b, _score in edges:
                label[a] = label[b] = min(label[a], label[b])
        for root in set(label):
            members = [k for k in range(len(grid)) if label[k] == root]
            rows = grid[members].astype(np.float32)
            if len(members) > 1 and scores(rows, rows).min() < floor:
                edges.remove([e for e in edges if label[e[0]] == root][-1])
                break
        else:
            return label


@settings(max_examples=60, deadline=None)
@given(n=st.integers(2, 25), seed=st.integers(0, 500), floor=st.sampled_from([-1.0, 0.0, 0.5, 0.9]))
def test_equals_removing_the_weakest_edge_until_each_part_passes(n: int, seed: int, floor: float) -> None:
    grid = _fan(n, seed)
    found = exact_forest(grid, 0.8)
    parts = split(found.i, found.j, found.score, np.arange(n), grid, floor)
    assert parts.label.tolist() == _top_down(found.i, found.j, found.score, grid, threshold_score(floor))
    assert len(parts.tree) == n - len(set(parts.label.tolist()))


def test_few_witnesses_split_only_on_evidence_and_still_find_a_wide_fan() -> None:
    grid = _fan(300, 7)
    found = exact_forest(grid, 0.8)
    exact = split(found.i, found.j, found.score, np.arange(300), grid, 0.2)
    few = split(found.i, found.j, found.score, np.arange(300), grid, 0.2, witnesses=8)
    assert 1 < len(set(few.label.tolist())) <= len(set(exact.label.tolist()))
    none = split(found.i, found.j, found.score, np.arange(300), grid, -1.0, witnesses=8)
    assert set(none.label.tolist()) == {0}


def test_members_with_one_vector_share_a_place() -> None:
    grid = quantise(np.eye(2, dtype=np.float32))
    edges = (np.array([0, 1, 2]), np.array([1, 2, 3]), np.array([10_000, 5000, 10_000]))
    parts = split(*edges, np.array([0, 0, 1, 1]), grid, 0.5)
    assert parts.label.tolist() == [0, 0, 2, 2]
    assert parts.tree.tolist() == [0, 2]
