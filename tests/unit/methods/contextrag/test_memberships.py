import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.methods.contextrag.memberships import NONE, ONE, LevelMemberships, Spread, memberships, spread
from corpusmill.methods.contextrag.quantiser import Codebook, encode, fit
from tests.unit.methods.contextrag.test_quantiser import topics

BOOK = fit(topics(1500), (12, 6, 3))
SEEDS = st.integers(0, 10**6)


def dense(level: LevelMemberships, k: int) -> np.ndarray:
    """int64 [n, k] with the values at their centroids."""
    out = np.zeros((len(level.centroid), k), np.int64)
    rows, places = np.nonzero(level.value)
    out[rows, level.centroid[rows, places]] = level.value[rows, places]
    return out


def plain(book: Codebook, vector: np.ndarray) -> list[dict[int, float]]:
    """u of one vector by the definition, by active centroid, a level each."""
    left, out = vector.astype(np.float64), []
    for level, active in zip(book.levels, book.active, strict=True):
        norms = np.linalg.norm(left - level.astype(np.float64), axis=1)
        held = {m: norms[m] for m in np.flatnonzero(active)}
        out.append({m: 1 / sum((d / other) ** 2 for other in held.values()) for m, d in held.items()})
        left = left - level[norms.argmin()]
    return out


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_raw_values_are_those_of_the_definition_and_sum_to_one(seed: int) -> None:
    vectors = topics(20, seed=seed)
    for number, level in enumerate(memberships(BOOK, vectors, "raw")):
        k = len(BOOK.levels[number])
        assert level.centroid.dtype == np.int16 and level.value.dtype == np.int32 and level.value.shape == (20, k)
        values = dense(level, k)
        expected = [plain(BOOK, vector)[number] for vector in vectors]
        for row, own in zip(values, expected, strict=True):
            assert all(abs(row[m] / ONE - u) < 0.7 / ONE for m, u in own.items())
        assert (np.abs(values.sum(axis=1) - ONE) <= 0.5 * k + 1e-9).all()


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(1, 15))
def test_relative_is_raw_over_its_greatest_cut_to_the_first(seed: int, keep: int) -> None:
    vectors = topics(20, seed=seed)
    for number, level in enumerate(memberships(BOOK, vectors, "relative", keep)):
        k = len(BOOK.levels[number])
        assert level.value.shape == (20, keep)
        assert (level.value[:, 0] == ONE).all()
        assert ((level.value > 0).sum(axis=1) <= keep).all()
        assert (np.diff(level.value, axis=1) <= 0).all()
        assert ((level.centroid == NONE) == (level.value == 0)).all()
        for row, vector in zip(dense(level, k), vectors, strict=True):
            own = plain(BOOK, vector)[number]
            top = max(own.values())
            held = {m: u / top for m, u in own.items() if row[m]}
            assert all(abs(row[m] / ONE - value) < 1.5 / ONE for m, value in held.items())
            left_out = [u / top for m, u in own.items() if not row[m]]
            assert not left_out or len(held) < keep or max(left_out) <= min(held.values()) + 1 / ONE


@settings(max_examples=20, deadline=None)
@given(SEEDS, st.sampled_from(["relative", "raw"]))
def test_a_row_depends_on_itself_alone(seed: int, form: str) -> None:
    vectors = topics(23, seed=seed)
    whole = memberships(BOOK, vectors, form)  # type: ignore[arg-type]
    for at in range(23):
        for level, alone in zip(whole, memberships(BOOK, vectors[at : at + 1], form), strict=True):  # type: ignore[arg-type]
            assert np.array_equal(level.centroid[at], alone.centroid[0])
            assert np.array_equal(level.value[at], alone.value[0])


@settings(max_examples=20, deadline=None)
@given(SEEDS, st.floats(1e-3, 1e3))
def test_scaling_vectors_and_centroids_changes_nothing(seed: int, factor: float) -> None:
    vectors = topics(20, seed=seed)
    levels = tuple((level * factor).astype(np.float32) for level in BOOK.levels)
    scaled = Codebook(levels, BOOK.occupancy, BOOK.scale * 2.0 ** np.ceil(np.log2(factor)))
    large = (vectors * factor).astype(np.float32)
    same = (encode(BOOK, vectors).codes == encode(scaled, large).codes).all(axis=1)  # a near tie may fall otherwise
    assert same.mean() > 0.8
    for a, b in zip(memberships(BOOK, vectors, "raw"), memberships(scaled, large, "raw"), strict=True):
        difference = dense(a, a.value.shape[1]) - dense(b, b.value.shape[1])
        assert np.abs(difference[same]).max() <= 1


def test_a_power_of_two_changes_no_bit() -> None:
    vectors = topics(200, seed=4)
    scaled = Codebook(tuple(level * np.float32(2**30) for level in BOOK.levels), BOOK.occupancy, BOOK.scale * 2**30)
    for a, b in zip(memberships(BOOK, vectors), memberships(scaled, vectors * np.float32(2**30)), strict=True):
        assert np.array_equal(a.value, b.value) and np.array_equal(a.centroid, b.centroid)


def test_inactive_centroids_take_no_part() -> None:
    centroids = np.array([[1, 0], [0, 1], [-1, 0]], np.float32)
    vectors = np.array([[0.99, 0], [0, 0.5]], np.float32)
    book = Codebook((centroids,), (np.array([1, 8, 9]),), 2.0)
    (level,) = memberships(book, vectors, "raw")
    assert not (level.centroid == 0).any()
    assert (dense(level, 3).sum(axis=1) == ONE).all()
    none = Codebook((centroids,), (np.array([1, 0, 1]),), 2.0)
    for form in ("relative", "raw"):
        (level,) = memberships(none, vectors, form)  # type: ignore[arg-type]
        assert not level.value.any() and (level.centroid == NONE).all() and level.value.shape == (2, 3)


def test_a_row_on_a_centroid_belongs_to_it_alone_and_ties_share() -> None:
    centroids = np.array([[1, 0], [0, 1], [1, 0], [-1, 0]], np.float32)
    book = Codebook((centroids,), (np.array([4, 4, 4, 4]),), 2.0)
    vectors = np.array([[0, 1], [1, 0], [0, 0]], np.float32)
    (raw,) = memberships(book, vectors, "raw")
    assert dense(raw, 4).tolist() == [[0, ONE, 0, 0], [ONE // 2, 0, ONE // 2, 0], [ONE // 4] * 4]
    (relative,) = memberships(book, vectors, "relative")
    assert relative.centroid.tolist() == [[1, NONE, NONE], [0, 2, NONE], [0, 1, 2]]  # ties: the lower centroids
    assert relative.value.tolist() == [[ONE, 0, 0], [ONE, ONE, 0], [ONE, ONE, ONE]]


def test_equal_vectors_belong_wholly() -> None:
    vectors = np.repeat(topics(1), 100, axis=0)
    for form in ("relative", "raw"):
        for level in memberships(fit(vectors), vectors, form):  # type: ignore[arg-type]
            assert (level.centroid[:, 0] == 0).all() and (level.value[:, 0] == ONE).all()


def test_no_rows() -> None:
    levels = memberships(BOOK, np.zeros((0, 16), np.float32))
    assert [level.value.shape for level in levels] == [(0, 3)] * 3


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="'soft', choose from: relative, raw"):
        memberships(BOOK, topics(2), "soft")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="keep 0"):
        memberships(BOOK, topics(2), keep=0)
    with pytest.raises(ValueError, match="1 of 2 vectors are not finite"):
        memberships(BOOK, np.array([[np.nan] * 16, [0.0] * 16], np.float32))


def test_the_spread_leaves_zeros_out() -> None:
    values = np.array([[0, 100, 200], [0, 300, 10_000]], np.int32)
    assert spread(values) == Spread(4, 0.01, 0.01, 0.01, 0.02, 0.03, 0.03, 1.0)
    assert spread(np.zeros((4, 3), np.int32)) == Spread(0, 0, 0, 0, 0, 0, 0, 0)
