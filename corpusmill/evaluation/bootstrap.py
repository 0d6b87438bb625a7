"""Means and quantiles over questions with bootstrap intervals, and differences of two methods on equal questions.

Questions are resampled by one seed, so that all figures over equally many questions see the same resamples, and a
difference resamples both methods' values of a question together. Intervals are percentile intervals: they stay defined
where all values are equal.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from corpusmill.frozen import Frozen

CONFIDENCE = 0.95
RESAMPLES = 2000
_BATCH = 200  # resamples in memory at once
Statistic = Callable[..., Any]  # (values, axis) -> one number less of dimensions


class Figure(Frozen):
    """A figure over questions with its interval; None: fewer than two questions tell nothing about it."""

    value: float
    low: float | None
    high: float | None

    @property
    def excludes_zero(self) -> bool:
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def mean(values: Any, axis: int = -1) -> Any:
    return np.mean(values, axis=axis)


def quantile(q: float) -> Statistic:
    """The q-quantile, interpolated linearly."""
    return partial(_quantile, q)


def _quantile(q: float, values: Any, axis: int = -1) -> Any:
    return np.quantile(values, q, axis=axis)


def figure(values: np.ndarray, statistic: Statistic = mean, seed: int = 0) -> Figure:
    """`statistic` of float [questions] with its interval. Raises ValueError on no questions."""
    values = _checked(values)
    return _figure((values,), statistic, seed)


def difference(ours: np.ndarray, theirs: np.ndarray, statistic: Statistic = mean, seed: int = 0) -> Figure:
    """`statistic` of `ours` less that of `theirs`, float [questions] each, row i being one question."""
    ours, theirs = _checked(ours), _checked(theirs)
    if ours.shape != theirs.shape:
        raise ValueError(f"a paired difference needs equal questions, got {len(ours)} and {len(theirs)}")

    def less(first: Any, second: Any, axis: int = -1) -> Any:
        return statistic(first, axis=axis) - statistic(second, axis=axis)

    return _figure((ours, theirs), less, seed)


def _figure(samples: tuple[np.ndarray, ...], statistic: Statistic, seed: int) -> Figure:
    value = float(statistic(*samples, axis=-1))
    if len(samples[0]) < 2:
        return Figure(value=value, low=None, high=None)
    from scipy.stats import bootstrap

    found = bootstrap(
        samples,
        statistic,
        paired=True,
        vectorized=True,
        n_resamples=RESAMPLES,
        batch=_BATCH,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    return Figure(value=value, low=float(found.confidence_interval.low), high=float(found.confidence_interval.high))


def _checked(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values, dtype=float)
    if values.ndim != 1 or not len(values):
        raise ValueError(f"a figure needs one value for each of some questions, got shape {values.shape}")
    return values
