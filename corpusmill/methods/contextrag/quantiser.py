"""Residual k-means of chunk vectors (ContextRAG, arXiv 2605.19735, section 3.4, equations 10 to 12).

Level l+1 is fitted on what is left of a vector once the nearest centroids of the levels up to l are taken off it.

Exact arithmetic: vectors are divided by the codebook's `scale`, a power of two no less than the greatest norm it was
fitted on, and rounded to multiples of 2^-22 (2.4e-7). Products and sums of such numbers fit a float64 without loss, so
that a code or a distance is the same whatever the batch, the thread count and the BLAS; rows of a norm over some ten
times `scale` are merely rounded. `fit` is equal for equal rows in equal order on one kind of machine: it leans on
FAISS, whose single-precision sums are ordered by one thread (on a GPU not even that is promised).
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.retrieval.vectors import one_thread

LEVEL_SIZES = (96, 24, 12)
POINTS_PER_CENTROID = 32
MIN_OCCUPANCY = 2  # a singleton's membership of 1 in its own centroid says nothing
_STEPS = 2.0**22
_BLOCK = 4096
_GROUP = 8  # rows behind a centroid of the second start
_MAX_SIZE = 2**15 - 1  # codes are int16
_MAX_NORM = 2.0**100


@dataclass(frozen=True, eq=False)
class Codebook:
    """Centroids, and how they were trained: one entry a level in each tuple.

    levels: float32 [k, d], the centroids; occupancy: int64 [k], the training rows of each; scale: see the module.
    sizes: the k asked for; explained: the share of the rows' total variance that the level takes away; residual_norms:
    the mean norm that it leaves of a training row; rows: how many were trained on. These four do not matter to
    encoding, and are empty where only the centroids are known.
    """

    levels: tuple[np.ndarray, ...]
    occupancy: tuple[np.ndarray, ...]
    scale: float
    sizes: tuple[int, ...] = ()
    explained: tuple[float, ...] = ()
    residual_norms: tuple[float, ...] = ()
    rows: int = 0

    @property
    def dim(self) -> int:
        return int(self.levels[0].shape[1])

    @property
    def active(self) -> tuple[np.ndarray, ...]:
        """bool [k] a level: the centroids that are attributes, having at least two training rows."""
        return tuple(counts >= MIN_OCCUPANCY for counts in self.occupancy)

    @property
    def digest(self) -> str:
        """The content id of all that memberships depend on: centroids, which of them are active, scale."""
        digest = hashlib.blake2b(digest_size=16, person=b"codebook")
        digest.update(f"{self.dim} {self.scale.hex()}".encode())
        for level, active in zip(self.levels, self.active, strict=True):
            digest.update(len(level).to_bytes(8, "little"))
            digest.update(np.ascontiguousarray(level, "<f4").tobytes())
            digest.update(active.tobytes())
        return digest.hexdigest()


class Encoding(NamedTuple):
    """codes: int16 [n, L], the nearest centroid on each level's residual; distances: float64 [n, L], how far it is, and
    so the norm of what the level leaves; residual_norms: float64 [n], of what the last one leaves. The mean of these
    against the codebook's last is the drift.
    """

    codes: np.ndarray
    distances: np.ndarray
    residual_norms: np.ndarray


def fit(
    vectors: np.ndarray,
    sizes: Sequence[int] = LEVEL_SIZES,
    points_per_centroid: int = POINTS_PER_CENTROID,
    seed: int = 0,
    iterations: int = 25,
) -> Codebook:
    """The codebook of float32 [n, d]. A level has min(size, n // points_per_centroid) centroids, at least one.

    Nor has it more than there are distinct residuals: equal vectors give one centroid. No rows give one zero centroid
    a level, which is not active. Raises ValueError on vectors that are no matrix or not finite, on sizes out of 1 to
    32,767, and on points_per_centroid or iterations below 1.
    """
    if not sizes or not all(1 <= size <= _MAX_SIZE for size in sizes):
        raise ValueError(f"codebook sizes {tuple(sizes)}: one or more, each from 1 to {_MAX_SIZE}")
    if points_per_centroid < 1 or iterations < 1:
        raise ValueError(
            f"points_per_centroid {points_per_centroid} and iterations {iterations}: each must be at least 1"
        )
    _check(vectors)
    n = len(vectors)
    scale = _scale_of(vectors)
    residual = np.empty(vectors.shape, np.float32)  # multiples of 2^-22 of norm 1: exact in single precision
    for at in _blocks(n):
        residual[at] = _on_grid(vectors[at], scale)
    total = left = _variance(residual)
    levels, occupancy, explained, norms = [], [], [], []
    for size in sizes:
        centroids = _centroids(residual, min(size, max(1, n // points_per_centroid)), seed, iterations)
        counts, squares, norm = _subtract(residual, centroids)
        levels.append((centroids * scale).astype(np.float32))
        occupancy.append(counts)
        explained.append((left - squares) / total if total else 0.0)
        norms.append(norm * scale)
        left = squares
    return Codebook(tuple(levels), tuple(occupancy), scale, tuple(sizes), tuple(explained), tuple(norms), n)


def encode(codebook: Codebook, vectors: np.ndarray) -> Encoding:
    """The codes of float32 [n, d], ties to the lowest centroid; a row's result depends on that row alone.

    Raises ValueError on vectors that are not finite or of another dimension.
    """
    n, depth = len(vectors), len(codebook.levels)
    codes = np.empty((n, depth), np.int16)
    distances = np.empty((n, depth), np.float64)
    for at, level, squared in squared_distances(codebook, vectors):
        codes[at, level] = chosen = squared.argmin(axis=1)
        distances[at, level] = np.sqrt(np.take_along_axis(squared, chosen[:, None], 1)[:, 0]) * codebook.scale
    return Encoding(codes, distances, distances[:, -1])


def squared_distances(codebook: Codebook, vectors: np.ndarray) -> Iterator[tuple[slice, int, np.ndarray]]:
    """(rows, level, float64 [rows, k]): each row's residual at the level against all its centroids, in scale^2.

    Blocks of rows, and within a block the levels in order. Raises ValueError as `encode` does.
    """
    _check(vectors, codebook.dim)
    levels = [level.astype(np.float64) / codebook.scale for level in codebook.levels]
    for at in _blocks(len(vectors)):
        rows = _on_grid(vectors[at], codebook.scale)
        for number, centroids in enumerate(levels):
            squared = _squared(rows, centroids)
            yield at, number, squared
            rows -= centroids[squared.argmin(axis=1)]


def reconstruct(codebook: Codebook, codes: np.ndarray) -> np.ndarray:
    """float32 [n, L, d]: the sum of the codes' centroids down to each level. Raises ValueError on an unknown code."""
    if codes.ndim != 2 or codes.shape[1] != len(codebook.levels):
        raise ValueError(f"codes of shape {codes.shape}, expected [n, {len(codebook.levels)}]")
    out = np.empty((*codes.shape, codebook.dim), np.float32)
    for number, centroids in enumerate(codebook.levels):
        column = codes[:, number]
        if bad := int(((column < 0) | (column >= len(centroids))).sum()):
            raise ValueError(f"{bad} codes of level {number} are not from 0 to {len(centroids) - 1}")
        out[:, number] = centroids[column]
        if number:
            out[:, number] += out[:, number - 1]
    return out


def sample_rows(chunk_ids: Sequence[str] | pa.Array | pa.ChunkedArray, limit: int) -> np.ndarray:
    """int64 [min(n, limit)]: the places of the least ids, in the order of the ids.

    Ids are content hashes, so this is a uniform sample, the same however the rows are ordered or divided.
    """
    ids = chunk_ids if isinstance(chunk_ids, pa.Array | pa.ChunkedArray) else pa.array(chunk_ids, pa.string())
    return pc.array_sort_indices(ids).to_numpy()[:limit].astype(np.int64)


def sample_limit(dim: int, memory_mb: int, train_max: int) -> int:
    """How many training rows `memory_mb` allows: the rows, their residuals, and a copy on the way to the fit."""
    return max(1, min(train_max, memory_mb * 2**20 // (3 * 4 * dim + 64)))


def _check(vectors: np.ndarray, dim: int | None = None) -> None:
    if vectors.ndim != 2 or not vectors.shape[1] or (dim is not None and vectors.shape[1] != dim):
        raise ValueError(f"vectors of shape {vectors.shape}, expected [n, {dim or 'd'}]")
    bad = sum(int((~np.isfinite(vectors[at]).all(axis=1)).sum()) for at in _blocks(len(vectors)))
    if bad:
        raise ValueError(f"{bad} of {len(vectors)} vectors are not finite")


def _blocks(n: int) -> Iterator[slice]:
    return (slice(at, min(at + _BLOCK, n)) for at in range(0, n, _BLOCK))


def _scale_of(vectors: np.ndarray) -> float:
    """The least power of two above every norm, 1 where all rows are zero."""
    norm = max(
        (float(np.linalg.norm(vectors[at].astype(np.float64), axis=1).max()) for at in _blocks(len(vectors))),
        default=0.0,
    )
    if norm > _MAX_NORM:
        raise ValueError(f"a vector has the norm {norm:.3g}, the most is {_MAX_NORM:.3g}")
    return math.ldexp(1.0, max(math.frexp(norm)[1], -100)) if norm else 1.0


def _on_grid(vectors: np.ndarray, scale: float) -> np.ndarray:
    """float64, divided by `scale` and rounded to multiples of 2^-22; no negative zeros."""
    grid: np.ndarray = np.rint(vectors.astype(np.float64) * (_STEPS / scale)) / _STEPS + 0.0
    return grid


def _squared(rows: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """float64 [n, k] of squared distances, exact on the grid; the clip is for rows far outside it."""
    squared = rows @ (-2.0 * centroids.T)
    squared += np.einsum("ij,ij->i", rows, rows)[:, None]
    squared += np.einsum("ij,ij->i", centroids, centroids)
    return np.maximum(squared, 0.0, out=squared)


def _distinct(rows: np.ndarray, most: int) -> np.ndarray:
    """The first `most` distinct rows; reads no further than it must."""
    seen: dict[bytes, int] = {}
    for at, row in enumerate(rows):
        seen.setdefault(row.tobytes(), at)
        if len(seen) >= most:
            break
    distinct: np.ndarray = rows[list(seen.values())]
    return distinct


def _variance(rows: np.ndarray) -> float:
    """The sum of squared distances to the mean row."""
    if not len(rows):
        return 0.0
    mean = sum(rows[at].sum(axis=0, dtype=np.float64) for at in _blocks(len(rows))) / len(rows)
    return float(sum(np.square(rows[at] - mean).sum() for at in _blocks(len(rows))))


def _centroids(rows: np.ndarray, k: int, seed: int, iterations: int) -> np.ndarray:
    """float64 [<= k, d] on the grid: the rows themselves where no more than k are distinct, else k-means."""
    if not len(rows):
        return np.zeros((1, rows.shape[1]))
    distinct = _distinct(rows, k + 1)
    if len(distinct) <= k:
        return distinct.astype(np.float64)
    return _means(rows, np.zeros((1, rows.shape[1])) if k == 1 else _kmeans(rows, k, seed, iterations))


def _kmeans(rows: np.ndarray, k: int, seed: int, iterations: int) -> np.ndarray:
    """float64 [k, d] on the grid, by FAISS's k-means, on a GPU where it has one: the better of two starts.

    That is the one with fewer centroids lost as attributes, and of equals the one with the lesser objective.

    One starts from k rows, which is good where there are clusters. Residuals in many dimensions have hardly any: there
    the row of the least norm is nearest to nearly all others and takes them, and the other centroids stay singletons.
    The means of a few rows are about as near to all, so the second starts from those.
    """
    import faiss

    order = np.random.default_rng(seed).permutation(len(rows))
    found = []
    with one_thread():
        for drawn in sorted({1, min(_GROUP, len(rows) // k)}):
            kmeans = faiss.Kmeans(
                rows.shape[1],
                k,
                niter=iterations,
                seed=seed,
                gpu=faiss.get_num_gpus() > 0,
                min_points_per_centroid=1,
                max_points_per_centroid=len(rows),  # all rows given are used: the sample is the caller's
            )
            start = rows[np.sort(order[: k * drawn].reshape(k, drawn), axis=1)].mean(axis=1)
            objective = float(kmeans.train(rows, init_centroids=start))
            counts = np.bincount(kmeans.assign(rows)[1], minlength=k)
            lost = int((counts < MIN_OCCUPANCY).sum())
            found.append((lost, objective, drawn, np.asarray(kmeans.centroids)))
    return _on_grid(min(found, key=lambda start: start[:3])[3], 1.0)


def _means(rows: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """One more step of k-means, with exact sums: single precision leaves noise on rows that are all alike."""
    sums, counts = np.zeros_like(centroids), np.zeros(len(centroids), np.int64)
    for at in _blocks(len(rows)):
        block = rows[at].astype(np.float64)
        member = _squared(block, centroids).argmin(axis=1)[:, None] == np.arange(len(centroids))
        sums += member.T.astype(np.float64) @ block
        counts += member.sum(axis=0)
    means = _on_grid(sums / np.maximum(counts, 1)[:, None], 1.0)
    return np.where(counts[:, None] > 0, means, centroids)


def _subtract(residual: np.ndarray, centroids: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Takes each row's nearest centroid off it, in place: (rows of each, sum of squared norms left, mean norm left)."""
    counts, squares, norms = np.zeros(len(centroids), np.int64), 0.0, 0.0
    for at in _blocks(len(residual)):
        rows = residual[at].astype(np.float64)
        squared = _squared(rows, centroids)
        codes = squared.argmin(axis=1)
        counts += np.bincount(codes, minlength=len(centroids))
        least = squared.min(axis=1)
        squares += float(least.sum())
        norms += float(np.sqrt(least).sum())
        residual[at] = rows - centroids[codes]
    return counts, squares, norms / max(1, len(residual))
