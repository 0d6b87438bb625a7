from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from corpusmill.methods.contextrag.logic import (
    closure,
    down,
    join,
    negation,
    residuum,
    soft_join,
    soft_meet,
    t_norm,
    up,
)
from tests.shared import shared_data

ONE = 64
VALUES = st.integers(0, ONE)
TRIPLES = hnp.arrays(np.int64, (3, 20), elements=VALUES)


@st.composite
def contexts(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(incidence, two extents, an intent) in 1/64."""
    shape = draw(hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=6))
    incidence = draw(hnp.arrays(np.int64, shape, elements=VALUES))
    first, second = (draw(hnp.arrays(np.int64, shape[0], elements=VALUES)) for _ in range(2))
    return incidence, first, second, draw(hnp.arrays(np.int64, shape[1], elements=VALUES))


def below(a: np.ndarray, b: np.ndarray) -> bool:
    return bool((a <= b).all())


@given(TRIPLES)
def test_the_residuum_is_adjoint_to_the_t_norm(triples: np.ndarray) -> None:
    a, b, c = triples
    assert np.array_equal(t_norm(a, b, ONE) <= c, a <= residuum(b, c, ONE))
    a, b, c = triples / ONE  # fractions of a power of two are as exact as integers
    assert np.array_equal(t_norm(a, b) <= c, a <= residuum(b, c))


@given(TRIPLES)
def test_the_t_norm_is_a_commutative_monoid_on_exact_values(triples: np.ndarray) -> None:
    a, b, c = triples
    assert np.array_equal(t_norm(a, b, ONE), t_norm(b, a, ONE))
    assert np.array_equal(t_norm(t_norm(a, b, ONE), c, ONE), t_norm(a, t_norm(b, c, ONE), ONE))
    assert np.array_equal(t_norm(a, np.full_like(a, ONE), ONE), a)
    assert below(t_norm(np.minimum(a, c), b, ONE), t_norm(a, b, ONE))


@given(TRIPLES)
def test_the_negation_is_involutive_and_is_the_residuum_to_zero(triples: np.ndarray) -> None:
    a = triples[0]
    assert np.array_equal(negation(negation(a, ONE), ONE), a)
    assert np.array_equal(negation(a, ONE), residuum(a, np.zeros_like(a), ONE))
    assert np.array_equal(negation(negation(a / ONE)), a / ONE)


@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=20))
def test_the_connectives_are_those_of_rational_arithmetic(pairs: list[tuple[int, int]]) -> None:
    a, b = np.array(pairs).T
    for x, y, product, implied in zip(a, b, t_norm(a, b, ONE), residuum(a, b, ONE), strict=True):
        p, q = Fraction(int(x), ONE), Fraction(int(y), ONE)
        assert Fraction(int(product), ONE) == max(Fraction(0), p + q - 1)
        assert Fraction(int(implied), ONE) == min(Fraction(1), 1 - p + q)


@given(contexts())
def test_the_derivations_are_those_of_the_definition(drawn: tuple[np.ndarray, ...]) -> None:
    incidence, extent, _, intent = drawn
    objects, attributes = (range(side) for side in incidence.shape)

    def imply(a: int, b: int) -> int:
        return min(ONE, ONE - a + b)

    assert up(extent, incidence, ONE).tolist() == [
        min([imply(extent[g], incidence[g, m]) for g in objects], default=ONE) for m in attributes
    ]
    assert down(intent, incidence, ONE).tolist() == [
        min([imply(intent[m], incidence[g, m]) for m in attributes], default=ONE) for g in objects
    ]


@given(contexts())
def test_the_derivations_are_an_antitone_galois_connection(drawn: tuple[np.ndarray, ...]) -> None:
    incidence, extent, _, intent = drawn
    assert below(extent, down(intent, incidence, ONE)) == below(intent, up(extent, incidence, ONE))
    inside = soft_meet(extent, down(intent, incidence, ONE))  # a pair for which both sides hold
    assert below(intent, up(inside, incidence, ONE))


@given(contexts())
def test_derivations_turn_the_order_round(drawn: tuple[np.ndarray, ...]) -> None:
    incidence, first, second, intent = drawn
    assert below(up(soft_join(first, second), incidence, ONE), up(first, incidence, ONE))
    assert below(down(intent, incidence, ONE), down(intent // 2, incidence, ONE))
    assert np.array_equal(
        up(soft_join(first, second), incidence, ONE),
        soft_meet(up(first, incidence, ONE), up(second, incidence, ONE)),
    )


@given(contexts())
def test_the_closure_is_extensive_idempotent_and_monotone(drawn: tuple[np.ndarray, ...]) -> None:
    incidence, first, second, _ = drawn
    closed = closure(first, incidence, ONE)
    assert below(first, closed)
    assert np.array_equal(closure(closed, incidence, ONE), closed)
    assert below(closed, closure(soft_join(first, second), incidence, ONE))
    assert np.array_equal(up(closed, incidence, ONE), up(first, incidence, ONE))


@given(contexts())
def test_the_join_closes_the_soft_join_and_the_meet_of_extents_is_closed(drawn: tuple[np.ndarray, ...]) -> None:
    incidence, first, second, _ = drawn
    a, b = closure(first, incidence, ONE), closure(second, incidence, ONE)
    whole = join(a, b, incidence, ONE)
    assert below(soft_join(a, b), whole)
    assert np.array_equal(whole, join(first, second, incidence, ONE))
    meet = soft_meet(a, b)
    assert np.array_equal(closure(meet, incidence, ONE), meet)


def test_a_soft_join_need_not_be_closed() -> None:
    incidence = np.array([[64, 0, 32], [0, 64, 32], [0, 0, 32]])
    first, second = closure(np.array([64, 0, 0]), incidence, ONE), closure(np.array([0, 64, 0]), incidence, ONE)
    assert (first.tolist(), second.tolist()) == ([64, 0, 0], [0, 64, 0])
    assert join(first, second, incidence, ONE).tolist() == [64, 64, 64]


@given(contexts())
def test_fractions_of_64_give_what_whole_numbers_give(drawn: tuple[np.ndarray, ...]) -> None:
    incidence, extent, _, _ = drawn
    assert np.array_equal(closure(extent / ONE, incidence / ONE) * ONE, closure(extent, incidence, ONE))


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.bool_])
def test_small_integers_do_not_overflow(dtype: type) -> None:
    one = 1 if dtype is np.bool_ else 100
    high, low = np.array([one], dtype), np.array([0], dtype)
    assert t_norm(high, high, one).tolist() == [one] and t_norm(low, low, one).tolist() == [0]
    assert residuum(high, low, one).tolist() == [0] and residuum(low, high, one).tolist() == [one]
    assert negation(high, one).tolist() == [0]


def test_bad_input_is_named() -> None:
    incidence = np.zeros((2, 3))
    with pytest.raises(ValueError, match=r"extent of shape \(3,\) does not fit a context of shape \(2, 3\)"):
        up(np.zeros(3), incidence)
    with pytest.raises(ValueError, match=r"intent of shape \(2,\)"):
        down(np.zeros(2), incidence)
    with pytest.raises(ValueError, match=r"extent has values from 0.0 to 2.0, expected 0 to 1.0"):
        up(np.array([0.0, 2.0]), incidence)
    with pytest.raises(ValueError, match="incidence has values from nan"):
        up(np.zeros(2), np.full((2, 3), np.nan))


# Crisp contexts: with memberships 0 and 1 all of this is classical formal concept analysis.

NAMES = [
    "animals_en",
    "bodiesofwater_de",
    "bodiesofwater_en",
    "driveconcepts_de",
    "driveconcepts_en",
    "famous_animals_en",
    "livingbeings_de",
    "livingbeings_en",
    "missmarple_de",
    "missmarple_en",
    "music_en",
    "newzealand_en",
    "officesupplies_de",
    "officesupplies_en",
    "planets_en",
    "seasoningplanner_de",
    "tealady",
]


def read_cxt(path: Path) -> np.ndarray:
    """int64 [objects, attributes] of 0 and 1 of a file in Burmeister's format: B, a name, two counts, names, rows."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].strip() == "B"
    held = [line for line in lines[2:] if line.strip()]
    objects, attributes = int(held[0]), int(held[1])
    rows = held[2 + objects + attributes :]
    assert len(rows) == objects and all(len(row.strip()) == attributes for row in rows)
    return np.array([[mark in "Xx" for mark in row.strip()] for row in rows], np.int64)


def classical_up(objects: frozenset[int], incidence: np.ndarray) -> frozenset[int]:
    return frozenset(m for m in range(incidence.shape[1]) if all(incidence[g, m] for g in objects))


def classical_down(attributes: frozenset[int], incidence: np.ndarray) -> frozenset[int]:
    return frozenset(g for g in range(incidence.shape[0]) if all(incidence[g, m] for m in attributes))


def fuzzy(members: frozenset[int], size: int) -> np.ndarray:
    return np.array([int(at in members) for at in range(size)])


def intents(incidence: np.ndarray) -> set[frozenset[int]]:
    """All intents without any derivation: whatever intersections of the rows there are, and all attributes."""
    found = {frozenset(range(incidence.shape[1]))}
    for row in incidence:
        own = frozenset(np.flatnonzero(row).tolist())
        found |= {own & other for other in found}
    return found


def next_closures(incidence: np.ndarray) -> Iterator[np.ndarray]:
    """All closed extents in lectic order (Ganter's algorithm), by `closure` alone."""
    n = incidence.shape[0]
    extent: np.ndarray | None = closure(np.zeros(n, np.int64), incidence, 1)
    while extent is not None:
        yield extent
        extent = _after(extent, incidence)


def _after(extent: np.ndarray, incidence: np.ndarray) -> np.ndarray | None:
    for at in reversed(range(len(extent))):
        if extent[at]:
            continue
        start = extent.copy()
        start[at:] = 0
        start[at] = 1
        closed = closure(start, incidence, 1)
        if np.array_equal(closed[:at], extent[:at]):
            return closed
    return None


@pytest.fixture(params=NAMES)
def crisp(request: pytest.FixtureRequest) -> np.ndarray:
    return read_cxt(shared_data("fcatools") / "contexts" / f"{request.param}.cxt")


def test_every_context_of_the_collection_is_read() -> None:
    assert sorted(path.stem for path in (shared_data("fcatools") / "contexts").glob("*.cxt")) == sorted(NAMES)


def test_crisp_derivations_are_the_classical_ones(crisp: np.ndarray) -> None:
    objects, attributes = crisp.shape
    rng = np.random.default_rng(0)
    small = [frozenset(some) for size in range(3) for some in combinations(range(objects), size)]
    drawn = [frozenset(np.flatnonzero(rng.random(objects) < share).tolist()) for share in (0.1, 0.5, 0.9) * 20]
    for extent in [*small, *drawn]:
        intent = classical_up(extent, crisp)
        closed = classical_down(intent, crisp)
        assert np.array_equal(up(fuzzy(extent, objects), crisp, 1), fuzzy(intent, attributes))
        assert np.array_equal(closure(fuzzy(extent, objects), crisp, 1), fuzzy(closed, objects))
        assert np.array_equal(
            closure(fuzzy(extent, objects).astype(float), crisp.astype(float)), fuzzy(closed, objects)
        )
    for size in range(3):
        for some in combinations(range(attributes), size):
            intent = frozenset(some)
            assert np.array_equal(
                down(fuzzy(intent, attributes), crisp, 1), fuzzy(classical_down(intent, crisp), objects)
            )


def test_the_concepts_are_those_of_an_independent_enumeration(crisp: np.ndarray) -> None:
    extents = list(next_closures(crisp))
    found = {frozenset(np.flatnonzero(up(extent, crisp, 1)).tolist()) for extent in extents}
    assert len(found) == len(extents)  # one concept, one intent
    assert found == intents(crisp)
    extents_again = {tuple(fuzzy(classical_down(intent, crisp), crisp.shape[0])) for intent in found}
    assert extents_again == {tuple(extent) for extent in extents}


def test_known_numbers_of_concepts() -> None:
    counts = {"livingbeings_en": 19, "contranominal": 2**6, "chain": 6}
    contranominal = 1 - np.eye(6, dtype=np.int64)
    chain = np.tril(np.ones((6, 6), np.int64))
    living = read_cxt(shared_data("fcatools") / "contexts" / "livingbeings_en.cxt")
    for name, context in (("livingbeings_en", living), ("contranominal", contranominal), ("chain", chain)):
        assert len(list(next_closures(context))) == counts[name]
