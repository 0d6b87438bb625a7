"""Sentence boundaries of many scripts, and offsets that always hold."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.segmentation.sentences import sentences
from corpusmill.spans import Span

TEXTS = st.one_of(
    st.text(max_size=400),
    st.lists(
        st.sampled_from(
            ["Hm. ", "他来了。", "क्या? ", "a ", "\n", "\n\n", "- x\n", "| a |\n", "“", "สวัสดี ", "1. ", "é"]
        ),
        max_size=400,
    ).map("".join),
)


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_sentences_are_disjoint_ordered_trimmed_and_cover_all_that_is_not_blank(text):
    at = 0
    for span in sentences(text):
        assert at <= span.start < span.end <= len(text)
        assert not text[at : span.start].strip()
        assert span.of(text) == span.of(text).strip()
        at = span.end
    assert not text[at:].strip()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('Dr. Smith left the U.S. yesterday. He paid $3.50. "Really?" she asked.', 3),
        ("他来了。真的吗？是的！好。", 4),
        ("これは文です。終わり。", 2),
        ("यह एक वाक्य है। यह दूसरा है। ठीक?", 3),
        ("هل أنت بخير؟ نعم. شكرا", 3),
        ("ይህ ነው። እሺ።", 2),
        ("Это т. е. пример. А вот второй.", 2),
        ("The quick brown fox\njumps over the dog. It was\nhappy.", 2),
        ("# Head\nText here\n- a\n- b c\n\n| x. Y | z |\n| p | q |", 6),
        ("😀 Yes! No 😀.", 2),
    ],
)
def test_number_of_sentences(text, expected):
    found = [span.of(text) for span in sentences(text)]
    assert len(found) == expected, found


def test_a_long_run_of_thai_is_divided_at_spaces():
    text = "นี่คือประโยคที่ยาวพอสมควรสำหรับการทดสอบ " * 20
    spans = sentences(text)
    assert len(spans) > 5
    assert max(span.end - span.start for span in spans) < 200


def test_within_restricts_the_search():
    text = "One. Two. Three."
    assert [span.of(text) for span in sentences(text, Span(5, 9))] == ["Two."]


def test_a_sentence_longer_than_a_window_stays_whole():
    text = "First one. Then " + "word " * 3000 + "end. Next one."
    assert [span.of(text)[-4:] for span in sentences(text)] == ["one.", "end.", "one."]


def test_a_megabyte_without_punctuation_is_one_sentence_and_quick():
    begun = time.perf_counter()
    assert len(sentences("word " * 100_000)) == 1
    assert time.perf_counter() - begun < 10
