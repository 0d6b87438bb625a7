"""Activation and routing against their formulas, taken naively."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from corpusmill.methods.contextrag import logic
from corpusmill.methods.contextrag.space import ConceptSpace, similarity, thresholds, top_rows

DIM, LEVELS, SEEDS = 4, 2, 3
levels_of = np.array([0, 0, 1])
value = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
number = st.integers(-4, 4)


def unit(vectors: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return (vectors / np.where(norms > 0, norms, 1)).astype(np.float32)


@st.composite
def spaces(draw) -> ConceptSpace:
    rows = draw(st.integers(1, 5))
    context = np.array(draw(st.lists(st.lists(value, min_size=SEEDS, max_size=SEEDS), min_size=rows, max_size=rows)))
    raw = np.array(draw(st.lists(number, min_size=SEEDS * LEVELS * DIM, max_size=SEEDS * LEVELS * DIM)), float)
    centres = unit(raw.reshape(SEEDS, LEVELS, DIM))
    centres[levels_of == 0, 1] = 0  # a seed has centres down to its own level
    return ConceptSpace(
        topics={0: 0, 1: 1},
        context=csr_array(context.astype(np.float32)),
        centres=centres,
        bridge_ids=("a", "b"),
        bridge_vectors=np.zeros((2, DIM), np.float32),
        parents=np.array([[0, 1], [1, 2]]),
        thresholds=np.array(draw(st.lists(value, min_size=LEVELS, max_size=LEVELS)), np.float32),
    )


queries = st.lists(number, min_size=DIM, max_size=DIM).map(lambda q: unit(np.array(q, float)))


@given(spaces(), queries)
def test_activation_is_the_t_norm_over_levels_of_threshold_implies_similarity(space, query):
    s = similarity(query, space.centres)
    for seed, mu in enumerate(space.activation(query)):
        expected = 1.0
        for level in range(LEVELS):
            if space.centres[seed, level].any():
                expected = max(0.0, expected + min(1.0, 1.0 - space.thresholds[level] + s[seed, level]) - 1.0)
        assert abs(mu - expected) < 1e-5


@given(spaces(), queries)
def test_a_chunk_is_routed_by_its_best_concept_joins_among_them(space, query):
    mu = space.activation(query)
    context = space.context.toarray()
    found = space.fuzzy(mu, np.arange(len(context)))
    for row, own in enumerate(context):
        seeds = [max(0.0, mu[v] + own[v] - 1.0) for v in range(SEEDS)]
        joins = [max(0.0, max(mu[a], mu[b]) + max(own[a], own[b]) - 1.0) for a, b in space.parents]
        meets = [max(0.0, min(mu[a], mu[b]) + min(own[a], own[b]) - 1.0) for a, b in space.parents]
        assert abs(found[row] - max(*seeds, *joins)) < 1e-5
        assert max(meets) <= max(seeds) + 1e-6  # which is why meets are left out
        assert abs(space.routed(mu)[row] - max(seeds)) < 1e-5


@given(spaces())
def test_leaders_of_a_bridge_are_allowed_and_strongest(space):
    context = space.context.toarray()
    among = np.arange(len(context)) % 2 == 0
    for bridge, (a, b) in enumerate(space.parents):
        extent = np.maximum(context[:, a], context[:, b])
        for allowed in (None, among):
            rows = space.leaders(bridge, allowed)
            values = extent if allowed is None else np.where(allowed, extent, 0)
            assert [extent[row] for row in rows] == sorted((x for x in values if x > 0), reverse=True)[:3]
            assert allowed is None or all(allowed[row] for row in rows)


def test_the_t_norm_is_that_of_the_logic():
    a, b = np.array([0.75, 0.5]), np.array([0.5, 0.25])
    assert (logic.t_norm(a, b) == np.maximum(0, a + b - 1)).all()


def test_thresholds_are_percentiles_by_level_over_the_seeds_that_reach_it():
    centres = np.zeros((2, 2, 2), np.float32)
    centres[0, 0], centres[1, 0], centres[1, 1] = [1, 0], [0, 1], [0, 1]
    probes = np.array([[1, 0], [0, 1]], np.float32)
    found = thresholds(probes, centres, 100.0)
    assert found.tolist() == [1.0, 1.0]
    assert thresholds(probes[:1], centres, 100.0).tolist() == [1.0, 0.5]
    assert thresholds(probes[:0], centres, 95.0).tolist() == [0.0, 0.0]


def test_top_rows_are_above_zero_in_order_ties_by_row():
    scores = np.array([0.0, 0.5, 0.9, 0.5, -1.0])
    assert list(top_rows(scores, 2)) == [2, 1]
    assert list(top_rows(scores, 9)) == [2, 1, 3]
    assert list(top_rows(scores, 9, np.array([True, False, False, True, True]))) == [3]
