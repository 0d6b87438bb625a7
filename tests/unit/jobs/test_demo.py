"""The demo's corpus: deterministic, in bounds, and it holds the answers to its questions."""

from pathlib import Path

import pytest
from corpusmill_jobs import demo

MODEL = {
    "operations": {
        "PutThing": {
            "name": "PutThing",
            "http": {"method": "PUT", "requestUri": "/{Bucket}"},
            "input": {"shape": "In"},
            "errors": [{"shape": "NoSuchThing"}],
            "documentation": "<p>Stores a <b>thing</b> of yours.</p><note><ul><li><p>It may take a while.</p></li></ul>"
            "</note><p>For more information, see <a>Things</a> in the <i>Guide</i>. Then it is there.</p>",
        }
    },
    "shapes": {
        "In": {
            "type": "structure",
            "required": ["Name"],
            "members": {
                "Size": {"shape": "Size", "documentation": "<p>How large the thing is.</p>"},
                "Name": {"shape": "Name", "documentation": "<p>What the thing is called.</p>"},
            },
        },
        "Size": {"type": "integer", "min": 1, "max": 10},
        "Name": {"type": "string", "enum": ["a", "b"]},
        "NoSuchThing": {"type": "structure", "members": {}, "documentation": "<p>There is no such thing.</p>"},
    },
}


def test_one_operation_as_markdown() -> None:
    ((name, text),) = list(demo.documents(MODEL))
    assert name == "PutThing"
    assert text == (
        "# PutThing\n\nPutThing: Stores a thing of yours.\n\n- It may take a while.\n\nThen it is there.\n\n"
        "PutThing is called by HTTP PUT /{Bucket}.\n\n## Parameters\n\n"
        "- Name (required, string, one of a, b): What the thing is called.\n"
        "- Size (optional, integer, at least 1, at most 10): How large the thing is.\n\n"
        "## Errors\n\n- NoSuchThing: There is no such thing.\n"
    )


def test_limits_cut_parameters_and_repeated_passages() -> None:
    ((_, text),) = list(demo.documents(MODEL, demo.Limits(parameters=1)))
    assert "- Name" in text and "- Size" not in text
    ((_, text),) = list(demo.documents(MODEL, demo.Limits(repeats=0)))
    assert "PutThing is an operation of Amazon S3." in text and "Parameters" not in text


def test_the_corpus_is_small_and_answers_its_questions(tmp_path: Path) -> None:
    count = demo.write_corpus(tmp_path)
    texts = {path.name: path.read_text("utf-8") for path in sorted(tmp_path.glob("*.md"))}
    assert count == len(texts) >= 90
    assert sum(len(text.split()) for text in texts.values()) < 40_000
    assert not any("<" + tag in text for text in texts.values() for tag in ("p>", "code>", "b>", "li>"))
    for question in demo.QUESTIONS:
        assert question.answer in texts[f"{question.operation}.md"], question


def test_writing_again_touches_nothing_and_removes_what_is_gone(tmp_path: Path) -> None:
    demo.write_corpus(tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.md")}
    (tmp_path / "Gone.md").write_text("an operation of another version")
    demo.write_corpus(tmp_path)
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("*.md")} == before


def test_questions_are_printed_one_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.main(["--questions"]) == 0
    assert capsys.readouterr().out.splitlines() == [question.text for question in demo.QUESTIONS]
