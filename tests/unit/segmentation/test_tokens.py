"""Counting rules of the tokenizers."""

import re
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.segmentation.tokens import _ASCII_WORDS, _WORDS, MAX_TOKEN, get_tokenizer

WORDS = get_tokenizer("words")


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Hello, world!", 4),
        ("他来了。", 4),
        ("スーパー", 4),
        ("हिन्दी भाषा", 2),
        ("สวัสดี", 4),
        ("cafe\u0301 naïve", 2),
        ("한국어 문장", 2),
        ("日本abc漢", 4),
        ("", 0),
        ("x" * 70, 3),
    ],
)
def test_words(text, count):
    assert WORDS.count(text) == count


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=200))
def test_tokens_cover_exactly_what_is_not_white_space_and_are_short(text):
    covered = "".join(found.group() for found in _WORDS.finditer(text))
    assert covered.replace("\x1c", "") == "".join(text.split()).replace("\x1c", "")
    assert all(len(found.group()) <= MAX_TOKEN for found in _WORDS.finditer(text))


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(max_codepoint=127), max_size=200))
def test_the_ascii_rule_is_the_general_rule(text):
    assert _ASCII_WORDS.findall(text) == _WORDS.findall(text)


def test_white_space_is_what_python_calls_so():
    points = "".join(map(chr, range(sys.maxunicode + 1)))
    differing = [ch for ch in set(re.sub(r"\S", "", points)) | set(_WORDS.sub("", points)) if not ch.isspace()]
    assert differing == []


def test_wordpiece_counts_without_padding_or_truncation():
    tokenizer = get_tokenizer("wordpiece")
    assert tokenizer.count("hello world") == 2
    assert tokenizer.count("hello world " * 10_000) == 20_000
    assert list(tokenizer.starts("hello  world")) == [0, 7]
    assert tokenizer.count("x" * 3200) == 100


def test_fingerprints_differ():
    assert WORDS.fingerprint != get_tokenizer("wordpiece").fingerprint
