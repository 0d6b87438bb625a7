"""What is said of an entity, without its name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.methods.flexstructrag.masking import without_name


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("Apple sells fruit. APPLE grows.", "Apple", "it sells fruit. it grows."),
        ("Applesauce is made of apple.", "Apple", "Applesauce is made of it."),
        ("Steve\n Jobs founded it.", "Steve Jobs", "it founded it."),
        ("北京是首都。北京大学", "北京", "it是首都。it大学"),
        ("x-amz-acl (C++) is a header", "C++", "x-amz-acl (it) is a header"),
        ("nothing", "", "nothing"),
    ],
)
def test_a_name_is_replaced_where_it_stands_as_a_word(text: str, name: str, expected: str) -> None:
    assert without_name(text, name) == expected


@given(st.text(max_size=60), st.text(max_size=8))
def test_any_text_and_name_are_taken(text: str, name: str) -> None:
    assert isinstance(without_name(text, name), str)
    if not name.split():
        assert without_name(text, name) == text
