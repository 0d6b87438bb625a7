"""Fixed windows: nothing lost, fixed steps, bounded sizes, for every script."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.segmentation.sliding import windows
from corpusmill.segmentation.tokens import get_tokenizer
from corpusmill.settings import ChunkSettings

WORDS = get_tokenizer("words")
texts = st.text(alphabet="ab1 \n.,北京é\u0301-", max_size=200)
bounds = st.integers(1, 12).flatmap(lambda size: st.tuples(st.just(size), st.integers(0, size - 1)))


@given(texts, bounds)
def test_every_token_is_in_a_window_and_windows_step_evenly(text, sizes):
    size, overlap = sizes
    found = windows(text, WORDS, size, overlap)
    starts = list(WORDS.starts(text))
    firsts = [starts.index(piece.span.start) for piece in found]
    assert firsts == list(range(0, len(firsts) * (size - overlap), size - overlap))
    covered = {at for piece in found for at in range(piece.span.start, piece.span.end)}
    assert all(start in covered for start in starts)
    for piece in found:
        own = piece.span.of(text)
        assert own == own.strip() and 1 <= piece.tokens <= size
        assert piece.tokens == sum(piece.span.start <= start < piece.span.end for start in starts)
    assert all(piece.tokens == size for piece in found[:-1])


@given(texts, bounds)
def test_the_last_window_has_a_token_of_its_own(text, sizes):
    found = windows(text, WORDS, *sizes)
    if len(found) > 1:
        assert found[-1].span.end > found[-2].span.end


def test_an_overlap_that_is_no_step_is_refused():
    with pytest.raises(ValueError, match="0 <= overlap < size, got 5 and 5"):
        windows("a b c", WORDS, 5, 5)


def test_settings_refuse_an_overlap_that_would_do_nothing():
    assert ChunkSettings(form="windows", ct_max=600, overlap=60).overlap == 60
    with pytest.raises(ValueError, match="belongs to the form windows"):
        ChunkSettings(overlap=60)
    with pytest.raises(ValueError, match="must be less than ct_max"):
        ChunkSettings(form="windows", overlap=600)
