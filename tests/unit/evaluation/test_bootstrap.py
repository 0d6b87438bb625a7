import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.evaluation.bootstrap import difference, figure, quantile

VALUES = st.lists(st.floats(-1e3, 1e3, width=32), min_size=2, max_size=12)


@given(VALUES, st.integers(0, 3))
def test_the_interval_holds_within_the_values_and_repeats(values: list[float], seed: int) -> None:
    sample = np.array(values)
    found = figure(sample, seed=seed)
    assert found == figure(sample, seed=seed)
    assert found.value == pytest.approx(sample.mean())
    assert found.low is not None and found.high is not None
    assert sample.min() - 1e-6 <= found.low <= found.high <= sample.max() + 1e-6


@given(VALUES)
def test_a_system_does_not_differ_from_itself(values: list[float]) -> None:
    sample = np.array(values)
    found = difference(sample, sample, quantile(0.9))
    assert (found.value, found.low, found.high) == (0, 0, 0) and not found.excludes_zero


def test_pairing_sees_what_unpaired_intervals_hide() -> None:
    rng = np.random.default_rng(0)
    base = rng.normal(size=200)
    better = base + 0.05 + rng.normal(scale=0.02, size=200)
    own, theirs = figure(better), figure(base)
    assert own.low is not None and theirs.high is not None and own.low < theirs.high  # they overlap
    found = difference(better, base)
    assert found.excludes_zero and found.value == pytest.approx(0.05, abs=0.01)
    assert difference(base, better).high == pytest.approx(-(found.low or 0))


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for seed in range(100):
        found = figure((rng.random(60) < 0.6).astype(float), seed=seed)
        covered += found.low is not None and found.high is not None and found.low <= 0.6 <= found.high
    assert 86 <= covered <= 100


def test_the_normal_approximation_agrees() -> None:
    sample = np.random.default_rng(2).normal(size=500)
    found = figure(sample)
    half = 1.96 * sample.std() / np.sqrt(500)
    assert found.low == pytest.approx(sample.mean() - half, abs=0.015)
    assert found.high == pytest.approx(sample.mean() + half, abs=0.015)


def test_one_question_has_no_interval_and_none_is_refused() -> None:
    assert figure(np.array([0.5])).model_dump() == {"value": 0.5, "low": None, "high": None}
    with pytest.raises(ValueError, match="shape"):
        figure(np.array([]))
    with pytest.raises(ValueError, match="got 2 and 3"):
        difference(np.zeros(2), np.zeros(3))
