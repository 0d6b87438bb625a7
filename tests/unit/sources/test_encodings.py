"""Decoding: marks, wide encodings, guessing, broken bytes, binary data."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.sources.encodings import decode, normalised
from corpusmill.sources.outcomes import ConversionRefused

MIXED = "Plain words, café, Ελληνικά, हिन्दी, 中文, עברית.\nSecond line with some more plain words.\n"


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"]
)
def test_unicode_encodings_with_and_without_marks(encoding):
    text = ("Some plain English words, and café.\n" if not encoding.startswith("utf-8") else MIXED) * 5
    assert decode(text.encode(encoding)).text == text


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1251", "Это довольно длинный русский текст, чтобы можно было угадать кодировку. " * 5),
        ("gb18030", "这是一段足够长的中文文本，用来猜测它的编码方式。" * 10),
        ("shift_jis", "これは文字コードを推測するための十分に長い日本語の文章です。" * 10),
        ("cp1252", "Voilà une phrase assez longue, déjà prête, où l'on devine l'encodage à cœur joie. " * 5),
    ],
)
def test_other_encodings_are_guessed(encoding, text):
    assert decode(text.encode(encoding)).text == text


def test_nuls_are_removed_and_said():
    found = decode(b"a line of text with one \x00 in the middle of it, and enough plain words around it to be a text")
    assert "\x00" not in found.text
    assert found.note == "1 NUL characters removed"


@pytest.mark.parametrize("raw", [bytes(range(256)) * 20, b"\x7fELF\x02\x01\x01" + b"\x00" * 200 + bytes(range(40)) * 9])
def test_binary_data_is_refused(raw):
    with pytest.raises(ConversionRefused):
        decode(raw)


def test_a_cut_character_loses_itself_only():
    raw = ("naïve café " * 50).encode()[:-2]
    found = decode(raw)
    assert found.text.startswith("naïve café") and found.text.endswith("\ufffd")
    assert found.note is not None and "utf-8" in found.note


def test_newlines_become_one_kind():
    assert normalised("a\r\nb\rc\n") == ("a\nb\nc\n", None)


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=200))
def test_utf8_round_trip(text):
    assert decode(b"\xef\xbb\xbf" + text.encode()).text == text


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_give_a_storable_text_or_a_refusal(raw):
    try:
        text = decode(raw).text
    except ConversionRefused:
        return
    assert "\x00" not in text and "\r" not in text
    text.encode("utf-8")
