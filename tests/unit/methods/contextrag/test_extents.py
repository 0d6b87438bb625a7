"""Sums over extents by blocks against the same taken at once, and what is kept of pairs and windows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.methods.contextrag.extents import (
    Block,
    Extents,
    Pair,
    SeedSums,
    chosen_pairs,
    cooccurrence,
    pair_extents,
)

DIM = 3


def block(context: np.ndarray, vectors: np.ndarray | None = None, first: int = 0) -> Block:
    n = len(context)
    own = np.ones((n, DIM), np.float32) if vectors is None else vectors
    ids = [f"c{first + row:03}" for row in range(n)]
    return Block(
        [f"t{own_id}" for own_id in ids], ids, context.astype(np.int32), own, np.repeat(own[:, None], 2, axis=1)
    )


contexts = (
    st.integers(1, 12)
    .flatmap(
        lambda rows: st.lists(
            st.lists(st.sampled_from([0, 0, 2500, 5000, 10_000]), min_size=4, max_size=4), min_size=rows, max_size=rows
        )
    )
    .map(lambda rows: np.array(rows, np.int32))
)


@given(contexts, st.integers(1, 12), st.randoms(use_true_random=False))
def test_sums_do_not_depend_on_the_blocks(context, size, random):
    vectors = np.array([[random.randint(-8, 8) for _ in range(DIM)] for _ in context], np.float32)
    whole, parts = SeedSums(4, 2, DIM), SeedSums(4, 2, DIM)
    whole.add(block(context, vectors))
    for at in range(0, len(context), size):
        parts.add(block(context[at : at + size], vectors[at : at + size], first=at))
    assert (whole.meets == parts.meets).all()
    assert (whole.extents.mass == parts.extents.mass).all()
    assert (whole.extents.chunks == parts.extents.chunks).all()
    assert whole.extents.leaders == parts.extents.leaders
    assert np.allclose(whole.extents.means(), parts.extents.means())
    assert np.allclose(whole.mean_centres(), parts.mean_centres())


@given(contexts)
def test_meets_and_joins_weigh_what_their_extents_do(context):
    sums = SeedSums(4, 2, DIM)
    sums.add(block(context))
    pairs = [Pair(a, b, True, True) for a in range(4) for b in range(a + 1, 4)]
    extents = pair_extents(context, pairs)
    for place, pair in enumerate(pairs):
        meet, join = extents[:, place], extents[:, len(pairs) + place]
        assert meet.sum() == sums.meets[pair.a, pair.b]
        assert join.sum() == sums.extents.mass[pair.a] + sums.extents.mass[pair.b] - sums.meets[pair.a, pair.b]
        assert (meet <= context[:, pair.a]).all() and (context[:, pair.a] <= join).all()


def test_leaders_are_the_strongest_chunks_and_of_equals_those_with_the_least_ids():
    extents = Extents(1, DIM)
    extents.add(np.array([[100], [900], [900], [0], [900]], np.int32), block(np.zeros((5, 1))))
    extents.add(np.array([[950]], np.int32), block(np.zeros((1, 1)), first=5))
    assert [(leader.value, leader.chunk_id) for leader in extents.leaders[0]] == [
        (950, "c005"),
        (900, "c001"),
        (900, "c002"),
    ]


def test_a_pair_that_overlaps_is_kept_and_one_that_is_nearly_its_parent_is_not():
    context = np.array(
        # halves of one another; the third has one chunk in common with the first; the fourth is almost the first
        [[10_000, 0, 0, 10_000]] * 10
        + [[10_000, 10_000, 0, 10_000]] * 10
        + [[0, 10_000, 10_000, 0]] * 10
        + [[10_000, 0, 10_000, 9_999]]
    )
    sums = SeedSums(4, 2, DIM)
    sums.add(block(context))
    found = {(pair.a, pair.b): pair for pair in chosen_pairs(sums, per_seed=3, min_meet_share=0.1, max_jaccard=0.95)}
    assert found[0, 1].meet and found[0, 1].join
    assert not found[0, 2].meet and found[0, 2].join  # one chunk of eleven is less than a tenth
    assert not found[0, 3].meet and not found[0, 3].join


def test_each_seed_is_paired_with_its_nearest_by_mean_vector():
    context = np.eye(4, dtype=np.int32) * 10_000
    vectors = np.array([[1, 0, 0], [0.9, 0.1, 0], [0, 1, 0], [0, 0.9, 0.1]], np.float32)
    sums = SeedSums(4, 2, DIM)
    sums.add(block(context, vectors))
    assert [(pair.a, pair.b) for pair in chosen_pairs(sums, 1, 0.1, 0.95)] == [(0, 1), (2, 3)]


def test_a_seed_without_mass_has_no_pairs():
    sums = SeedSums(3, 2, DIM)
    sums.add(block(np.array([[10_000, 0, 0], [0, 0, 10_000]])))
    assert [(pair.a, pair.b) for pair in chosen_pairs(sums, 8, 0.1, 0.95)] == [(0, 2)]


@pytest.mark.parametrize(("factor", "expected"), [(1.9, [(0, 1, 20_000)]), (2.0, [])])
def test_windows_link_seeds_that_meet_more_often_than_by_chance(factor, expected):
    windows = np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1], [0, 0, 1]], bool)
    assert cooccurrence(windows, factor) == expected


def test_one_window_in_common_is_no_link():
    assert cooccurrence(np.array([[1, 1]] + [[0, 0]] * 99, bool), 2.0) == []
