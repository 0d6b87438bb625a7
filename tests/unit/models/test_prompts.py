from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import corpusmill
from corpusmill.models.prompts import load_prompt, parse_prompt, render_prompt

FILE = "---\nname: p\nversion: 2\n---\n# System\nDo it for $$5.\n# User\nText: $text\n"


def test_a_prompt_file_is_read_and_filled():
    prompt = parse_prompt(FILE, "p", "here")
    assert (prompt.name, prompt.version) == ("p", 2)
    assert render_prompt(prompt, {"text": "it costs $text and ${text} $"}) == (
        "Do it for $5.",
        "Text: it costs $text and ${text} $",
    )


@given(st.text())
def test_any_document_text_arrives_as_it_is(text):
    assert render_prompt(parse_prompt(FILE, "p", "here"), {"text": text})[1] == f"Text: {text}"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (FILE.replace("# User", "User"), "# User"),
        (FILE.replace("name: p", "name: q"), "names the prompt 'q'"),
        (FILE.replace("version: 2", "version: two"), "whole number"),
        (FILE.replace("version: 2", "version: 2\nmodel: x"), "exactly"),
        (FILE.replace("$text", "$ text"), "lone"),
        (FILE.replace("Do it", "Do $it"), r"\$it"),
    ],
)
def test_a_file_of_another_form_is_refused_with_its_place(text, told):
    with pytest.raises(ValueError, match=told) as error:
        parse_prompt(text, "p", "some/place.md")
    assert "some/place.md" in str(error.value)


def test_a_slot_without_value_and_a_missing_file_are_named():
    with pytest.raises(ValueError, match=r"\$text"):
        render_prompt(parse_prompt(FILE, "p", "here"), {"other": "x"})
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load_prompt("corpusmill.models", "nowhere")


def test_every_shipped_prompt_is_well_formed():
    root = Path(corpusmill.__file__).parent
    shipped = sorted(root.rglob("prompts/*.md"))
    assert shipped
    for path in shipped:
        package = ".".join(("corpusmill", *path.parent.parent.relative_to(root).parts))
        assert load_prompt(package, path.stem).system
