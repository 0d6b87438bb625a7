from math import floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.methods.flexstructrag.windows import prefix, window_start

WINDOWS = st.integers(1, 12).flatmap(lambda g: st.tuples(st.just(g), st.integers(0, g - 1)))


@pytest.mark.parametrize(
    ("g_max", "g_overlap", "starts"),
    [
        (3, 1, [1, 1, 1, 3, 3, 5, 5, 7, 7]),
        (3, 2, [1, 1, 1, 2, 3, 4, 5]),
        (3, 0, [1, 1, 1, 4, 4, 4, 7]),
        (1, 0, [1, 2, 3, 4]),
    ],
)
def test_starts_of_worked_examples(g_max: int, g_overlap: int, starts: list[int]) -> None:
    assert [window_start(i, g_max, g_overlap) for i in range(1, len(starts) + 1)] == starts


@given(WINDOWS, st.integers(1, 500))
def test_start_is_the_papers_formula(window: tuple[int, int], i: int) -> None:
    g_max, g_overlap = window
    step = g_max - g_overlap
    assert window_start(i, g_max, g_overlap) == max(1, floor((i - 1 - g_overlap) / step) * step + 1)


@given(WINDOWS, st.integers(1, 500))
def test_prefix_is_bounded_and_ends_before_its_chunk(window: tuple[int, int], i: int) -> None:
    g_max, g_overlap = window
    chunks = prefix(i, g_max, g_overlap)
    assert len(chunks) <= g_max - 1
    assert list(chunks) == list(range(i - len(chunks), i))
    assert i == 1 or len(chunks) >= min(g_overlap, i - 1)


@given(WINDOWS)
def test_first_chunk_has_no_prefix_and_starts_never_go_back(window: tuple[int, int]) -> None:
    assert list(prefix(1, *window)) == []
    starts = [window_start(i, *window) for i in range(1, 60)]
    assert starts == sorted(starts)


@pytest.mark.parametrize(("i", "g_max", "g_overlap"), [(0, 3, 1), (1, 3, 3), (1, 3, -1), (1, 0, 0)])
def test_impossible_windows_are_refused(i: int, g_max: int, g_overlap: int) -> None:
    with pytest.raises(ValueError, match="got"):
        window_start(i, g_max, g_overlap)
