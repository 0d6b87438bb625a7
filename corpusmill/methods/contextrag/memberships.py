"""The fuzzy context: how far each chunk belongs to each attribute (ContextRAG, arXiv 2605.19735, section 3.2).

Fuzzy c-means with exponent 2, level by level: u(m) = 1 / sum_k (d_m / d_k)^2, d the distance of the chunk's residual at
the level to the active centroid m. Values are whole numbers of 1/10,000, so that sums of them are exact.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from corpusmill.methods.contextrag.quantiser import Codebook, squared_distances

ONE = 10_000  # the value of full membership
NONE = -1  # the centroid of an empty place
Form = Literal["relative", "raw"]


class LevelMemberships(NamedTuple):
    """centroid: int16 [n, width], value: int32 [n, width] in 1/10,000; greatest first, ties by the lower centroid.

    Empty places have centroid -1 and value 0.
    """

    centroid: np.ndarray
    value: np.ndarray


@dataclass(frozen=True)
class Spread:
    """Quantiles of the values that are not 0, as fractions of 1; all 0 where there are none."""

    values: int
    least: float
    p05: float
    p25: float
    median: float
    p75: float
    p95: float
    greatest: float


def memberships(
    codebook: Codebook, vectors: np.ndarray, form: Form = "relative", keep: int = 3
) -> tuple[LevelMemberships, ...]:
    """The memberships of float32 [n, d], one entry a level. A row's result depends on that row alone.

    relative: each row divided by its greatest value, the `keep` greatest kept (width `keep`). In many dimensions the
    plain values are all close to 1/k, and a product of Lukasiewicz logic with any of them is 0. raw: the plain values,
    all that round to 1/10,000 or more (width k). Raises ValueError on keep < 1, another form, and as `encode` does.
    """
    if form not in ("relative", "raw"):
        raise ValueError(f"membership form {form!r}, choose from: relative, raw")
    if keep < 1:
        raise ValueError(f"keep {keep}: at least 1 membership a level must be kept")
    active = [np.flatnonzero(mask) for mask in codebook.active]
    out = []
    for centroids in codebook.levels:
        shape = (len(vectors), keep if form == "relative" else len(centroids))
        out.append(LevelMemberships(np.full(shape, NONE, np.int16), np.zeros(shape, np.int32)))
    for at, level, squared in squared_distances(codebook, vectors):
        if not len(active[level]):
            continue
        values = _to_least(squared[:, active[level]])
        if form == "raw":
            values /= values.sum(axis=1, keepdims=True)
        rounded = np.rint(values * ONE).astype(np.int32)
        centroid, value = out[level]
        order = np.argsort(-rounded, axis=1, kind="stable")[:, : value.shape[1]]
        value[at, : order.shape[1]] = np.take_along_axis(rounded, order, axis=1)
        centroid[at, : order.shape[1]] = active[level][order]
    for centroid, value in out:
        centroid[value == 0] = NONE
    return tuple(out)


def spread(values: np.ndarray) -> Spread:
    """The spread of memberships given in 1/10,000; of two neighbours a quantile is the lower."""
    held = values[values > 0]
    if not len(held):
        return Spread(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    quantiles = np.percentile(held, (0, 5, 25, 50, 75, 95, 100), method="lower")
    return Spread(len(held), *(float(quantile) / ONE for quantile in quantiles))


def _to_least(squared: np.ndarray) -> np.ndarray:
    """float64 [n, k]: the least squared distance over each; u is this divided by its row's sum.

    Where the least is 0, the centroids at distance 0 have 1 and all others 0.
    """
    least = squared.min(axis=1, keepdims=True)
    ratio: np.ndarray = np.where(squared == least, 1.0, least / np.where(squared == 0.0, 1.0, squared))
    return ratio
