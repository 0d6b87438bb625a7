import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.methods.contextrag.quantiser import (
    Codebook,
    encode,
    fit,
    reconstruct,
    sample_limit,
    sample_rows,
    squared_distances,
)


def unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def topics(n: int, dim: int = 16, count: int = 6, seed: int = 0) -> np.ndarray:
    """float32 [n, dim] unit vectors around `count` directions."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(count, dim))
    return unit(centres[rng.integers(0, count, size=n)] + 0.3 * rng.normal(size=(n, dim)))


def plain_encode(book: Codebook, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Codes and distances by the definition, one row at a time, in double precision and off the grid."""
    codes, distances = [], []
    for vector in vectors.astype(np.float64):
        left, own = vector, []
        for level in book.levels:
            norms = np.linalg.norm(left - level.astype(np.float64), axis=1)
            own.append((int(norms.argmin()), float(norms.min())))
            left = left - level[own[-1][0]]
        codes.append([code for code, _ in own])
        distances.append([norm for _, norm in own])
    return np.array(codes), np.array(distances)


BOOK = fit(topics(1500), (12, 6, 3))


def test_sizes_are_scaled_down_below_the_points_a_centroid() -> None:
    book = fit(topics(200), (96, 4, 12), points_per_centroid=32)
    assert [len(level) for level in book.levels] == [6, 4, 6]
    assert book.sizes == (96, 4, 12) and book.rows == 200
    assert [len(level) for level in fit(topics(200), (96, 4), points_per_centroid=1).levels] == [96, 4]


def test_occupancy_and_residuals_are_those_of_the_training_rows() -> None:
    vectors = topics(1500)
    encoded = encode(BOOK, vectors)
    for number, counts in enumerate(BOOK.occupancy):
        assert counts.tolist() == np.bincount(encoded.codes[:, number], minlength=len(counts)).tolist()
    assert np.allclose(encoded.distances.mean(axis=0), BOOK.residual_norms, rtol=1e-12)
    assert encoded.residual_norms.tolist() == encoded.distances[:, -1].tolist()
    left = np.square(encoded.distances).sum(axis=0)
    total = np.square(vectors - vectors.astype(np.float64).mean(axis=0)).sum()
    taken = -np.diff([total, *left]) / total
    assert np.allclose(BOOK.explained, taken, atol=1e-6) and min(BOOK.explained) > 0 and BOOK.explained[0] > 0.5


def test_codes_and_distances_are_those_of_the_definition() -> None:
    vectors = topics(300, seed=3)
    codes, distances = plain_encode(BOOK, vectors)
    encoded = encode(BOOK, vectors)
    assert encoded.codes.dtype == np.int16
    assert np.array_equal(encoded.codes, codes)
    assert np.allclose(encoded.distances, distances, atol=3e-6)


def test_the_fit_is_as_good_as_that_of_another_library() -> None:
    from sklearn.cluster import KMeans

    vectors = topics(1500, count=12, seed=2)
    ours = np.square(encode(fit(vectors, (12,)), vectors).distances).sum()
    theirs = min(KMeans(12, n_init=1, init="random", random_state=seed).fit(vectors).inertia_ for seed in range(5))
    assert ours < 1.5 * theirs


@pytest.mark.parametrize("seed", range(3))
def test_rows_without_clusters_are_shared_out(seed: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = unit(rng.normal(size=(1500, 384))) * rng.uniform(0.6, 1, size=(1500, 1)).astype(np.float32)
    for counts in fit(vectors, (12, 12), seed=seed).occupancy:
        assert counts.min() >= 20 and counts.max() <= 400


def test_equal_rows_give_an_equal_codebook_in_another_process() -> None:
    again = fit(topics(1500), (12, 6, 3))
    assert again.digest == BOOK.digest
    script = (
        "from tests.unit.methods.contextrag.test_quantiser import topics;"
        "from corpusmill.methods.contextrag.quantiser import fit;"
        "print(fit(topics(1500), (12, 6, 3)).digest)"
    )
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == BOOK.digest


def test_the_digest_tells_seeds_and_scales_apart() -> None:
    digests = {BOOK.digest, fit(topics(1500), (12, 6, 3), seed=1).digest, fit(2 * topics(1500), (12, 6, 3)).digest}
    assert len(digests) == 3


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40))
def test_a_row_is_encoded_the_same_alone_and_in_any_batch(seed: int, n: int) -> None:
    vectors = topics(n, seed=seed, count=4)
    whole = encode(BOOK, vectors)
    for at in range(n):
        alone = encode(BOOK, vectors[at : at + 1])
        assert np.array_equal(alone.codes[0], whole.codes[at])
        assert np.array_equal(alone.distances[0], whole.distances[at])  # to the last bit
    order = np.random.default_rng(seed).permutation(n)
    assert np.array_equal(encode(BOOK, vectors[order]).distances, whole.distances[order])


def test_a_row_is_encoded_the_same_across_blocks() -> None:
    vectors = topics(9000, seed=5)
    whole = encode(BOOK, vectors)
    part = encode(BOOK, vectors[4000:8500])
    assert np.array_equal(whole.codes[4000:8500], part.codes)
    assert np.array_equal(whole.distances[4000:8500], part.distances)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([2.0**-60, 2.0**-3, 3.7, 2.0**40]))
def test_distances_scale_with_the_vectors(seed: int, factor: float) -> None:
    vectors = topics(300, seed=seed)
    book, scaled = fit(vectors, (6, 3)), fit((vectors * factor).astype(np.float32), (6, 3))
    plain, large = encode(book, vectors), encode(scaled, (vectors * factor).astype(np.float32))
    if factor != 3.7:  # a power of two: nothing at all may differ
        assert np.array_equal(plain.codes, large.codes)
        assert np.array_equal(plain.distances * factor, large.distances)
    assert np.allclose(plain.residual_norms.mean() * factor, large.residual_norms.mean(), rtol=0.05)


def test_ties_go_to_the_lowest_centroid() -> None:
    centroids = np.array([[1, 0], [0, 1], [-1, 0], [0, 1]], np.float32)
    book = Codebook((centroids,), (np.array([5, 5, 5, 5]),), 1.0)
    vectors = np.array([[0, 0], [1, 1], [-1, 1], [0, 1], [0, -1]], np.float32)
    assert encode(book, vectors).codes[:, 0].tolist() == [0, 0, 1, 1, 0]


def test_squared_distances_are_exact_and_come_by_blocks_and_levels() -> None:
    vectors = topics(5000)
    seen = list(squared_distances(BOOK, vectors))
    assert [(at.start, at.stop, level) for at, level, _ in seen] == [
        (start, stop, level) for start, stop in ((0, 4096), (4096, 5000)) for level in range(3)
    ]
    grid = np.rint(vectors[:50].astype(np.float64) * 2**22 / BOOK.scale).astype(np.int64)
    centroids = np.rint(BOOK.levels[0].astype(np.float64) * 2**22 / BOOK.scale).astype(np.int64)
    whole = np.square(grid[:, None] - centroids).sum(axis=2)  # integers
    assert np.array_equal(whole.astype(np.float64) / 2**44, seen[0][2][:50])


def test_reconstruction_adds_the_levels_up() -> None:
    vectors = topics(50)
    codes, distances, _ = encode(BOOK, vectors)
    sums = reconstruct(BOOK, codes)
    assert sums.shape == (50, 3, 16) and sums.dtype == np.float32
    assert np.array_equal(sums[:, 0], BOOK.levels[0][codes[:, 0]])
    assert np.allclose(np.linalg.norm(vectors[:, None] - sums, axis=2), distances, atol=1e-5)


@pytest.mark.parametrize("bad", [-1, 12])
def test_unknown_codes_are_refused(bad: int) -> None:
    with pytest.raises(ValueError, match="1 codes of level 0 are not from 0 to 11"):
        reconstruct(BOOK, np.array([[bad, 0, 0], [1, 0, 0]], np.int16))
    with pytest.raises(ValueError, match=r"\(1, 2\), expected \[n, 3\]"):
        reconstruct(BOOK, np.zeros((1, 2), np.int16))


@pytest.mark.parametrize("n", [2, 5, 100, 5000])
def test_equal_vectors_give_one_centroid_and_nothing_left(n: int) -> None:
    vectors = np.repeat(topics(1), n, axis=0)
    book = fit(vectors)
    assert [len(level) for level in book.levels] == [1, 1, 1]
    assert [counts.tolist() for counts in book.occupancy] == [[n]] * 3
    assert book.explained == (0.0, 0.0, 0.0) and book.residual_norms[2] == 0.0
    assert not encode(book, vectors).distances.any()


def test_few_distinct_vectors_give_as_many_centroids_and_no_noise_below() -> None:
    vectors = np.repeat(topics(3, seed=8), [4000, 700, 300], axis=0)
    book = fit(vectors)
    assert [len(level) for level in book.levels] == [3, 1, 1]
    assert sorted(book.occupancy[0].tolist()) == [300, 700, 4000]
    assert np.isclose(book.explained[0], 1.0) and book.residual_norms == (0.0, 0.0, 0.0)


def test_one_row_and_no_row() -> None:
    one = fit(topics(1))
    assert [len(level) for level in one.levels] == [1, 1, 1]
    assert not any(active.any() for active in one.active)  # a single row makes no attribute
    assert not encode(one, topics(1)).distances.any()
    none = fit(np.zeros((0, 16), np.float32))
    assert [level.tolist() for level in none.levels] == [[[0.0] * 16]] * 3
    assert not any(active.any() for active in none.active) and none.rows == 0
    assert none.explained == none.residual_norms == (0.0, 0.0, 0.0)
    assert np.allclose(encode(none, topics(4)).residual_norms, 1.0)
    assert encode(BOOK, np.zeros((0, 16), np.float32)).codes.shape == (0, 3)


def test_fewer_rows_than_centroids() -> None:
    book = fit(topics(7), (96, 24, 12), points_per_centroid=1)
    assert len(book.levels[0]) == 7 and all(np.isfinite(level).all() for level in book.levels)
    assert sum(book.occupancy[0]) == 7


def test_zero_vectors_are_vectors_like_others() -> None:
    book = fit(np.zeros((40, 8), np.float32))
    assert book.scale == 1.0 and not book.levels[0].any() and book.occupancy[0].tolist() == [40]
    mixed = np.concatenate([np.zeros((64, 16), np.float32), topics(64)])
    assert np.isfinite(fit(mixed).residual_norms).all()


def test_singletons_and_empty_centroids_are_not_active() -> None:
    book = Codebook((np.zeros((4, 2), np.float32),), (np.array([0, 1, 2, 50]),), 1.0)
    assert book.active[0].tolist() == [False, False, True, True]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_vectors_that_are_not_finite_are_counted(value: float) -> None:
    vectors = topics(5000)
    vectors[[3, 4500], 2] = value
    for call in (lambda: fit(vectors), lambda: encode(BOOK, vectors)):
        with pytest.raises(ValueError, match="2 of 5000 vectors are not finite"):
            call()


def test_bad_arguments_are_named() -> None:
    for sizes in ((), (0,), (12, 40_000)):
        with pytest.raises(ValueError, match="codebook sizes"):
            fit(topics(10), sizes)
    with pytest.raises(ValueError, match="points_per_centroid 0"):
        fit(topics(10), points_per_centroid=0)
    with pytest.raises(ValueError, match=r"shape \(3, 8\), expected \[n, 16\]"):
        encode(BOOK, np.zeros((3, 8), np.float32))
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        fit(np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="norm 1e\\+38"):
        fit(np.array([[1e38]], np.float32))


@given(st.lists(st.text("0123456789abcdef", min_size=4, max_size=8), unique=True, max_size=50), st.integers(0, 60))
def test_a_sample_is_of_the_least_ids_in_any_order(ids: list[str], limit: int) -> None:
    assert [ids[at] for at in sample_rows(ids, limit)] == sorted(ids)[:limit]
    chunked = pa.chunked_array([ids[:3], ids[3:]], pa.string())
    assert sample_rows(chunked, limit).tolist() == sample_rows(ids, limit).tolist()


def test_the_sample_grows_with_memory_to_its_bound() -> None:
    assert sample_limit(384, 1024, 10**6) > 200_000
    assert sample_limit(384, 2048, 10**9) == pytest.approx(2 * sample_limit(384, 1024, 10**9), rel=0.01)
    assert sample_limit(384, 1024, 1000) == 1000
    assert sample_limit(384, 0, 1000) == 1
