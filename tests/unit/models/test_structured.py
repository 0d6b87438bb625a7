import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.models.json_schema import strict_schema
from corpusmill.models.structured import json_candidates, read_output
from tests.shared import shared_data
from tests.unit.models.tasks import Names, Question, make_task

TASK = make_task()
INPUTS = Question(text="x")


def read(text):
    return read_output(text, TASK, INPUTS)


@pytest.mark.parametrize(
    "text",
    [
        '{"items": [{"name": "A", "year": 1}]}',
        'Here you are:\n```json\n{"items": [{"name": "A", "year": 1}]}\n```\nAnything else?',
        '<think>{"items": 3} no...</think> {"items": [{"name": "A", "year": 1}]}',
        '\ufeff{"items": [{"name": "A", "year": 1, "note": "extra"}], "more": true}',
        'The format is {"items": [...]}: {"items": [{"name": "A", "year": 1}]}',
    ],
)
def test_the_object_is_found_in_what_stands_around_it(text):
    value, wrong = read(text)
    assert wrong == "" and value.items[0].name == "A"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"items": [{"name": 7}]}', "items.0.name"),
        ('{"items": [{"name": "A", "year": "1990"}]}', "items.0.year"),
        ('{"items": [{"name": "A", "year": NaN}]}', "no JSON object"),
        ('{"items": null}', "items"),
        ("__import__('os').system('true')", "no JSON object"),
        ('{"items": ' * 5000, "no JSON object"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "no JSON object"),
        ('{"items": [{"name": "A", "year": ' + "9" * 5000 + "}]}", ""),
    ],
)
def test_what_is_wrong_is_said(text, told):
    value, wrong = read(text)
    assert value is None and wrong and told in wrong


def test_half_a_surrogate_pair_is_replaced():
    value, _ = read('{"items": [{"name": "A\\ud83d"}]}')
    assert value.items[0].name == "A\ufffd"
    value.model_dump_json().encode("utf-8")


@given(st.text())
def test_no_text_breaks_the_reader(text):
    for candidate in json_candidates(text):
        assert isinstance(candidate, dict)
    read(text)


@given(
    st.lists(st.builds(lambda n, y: {"name": n, "year": y}, st.text(max_size=20), st.none() | st.integers(0, 3000))),
    st.text(alphabet="abc \n`"),
    st.text(alphabet="xyz {\n`"),
)
def test_any_valid_answer_comes_back_whatever_surrounds_it(items, before, after):
    value, wrong = read(before + json.dumps({"items": items}) + after)
    assert wrong == ""
    clean = [item["name"].encode("utf-8", "replace").decode() for item in items]
    assert [item.name.encode("utf-8", "replace").decode() for item in value.items] == clean


def test_the_schema_is_closed_and_names_every_property():
    schema = strict_schema(Names)
    assert schema["additionalProperties"] is False and schema["required"] == ["items"]
    assert schema["$defs"]["Item"]["additionalProperties"] is False


def test_recorded_outputs_of_another_format_give_a_clean_refusal():
    """Delimiter-separated outputs of real models: never a crash, never a value made of them."""
    seen = 0
    for path in sorted(shared_data("replay").glob("*.jsonl")):
        for line in path.open(encoding="utf-8"):
            row = json.loads(line)
            for text in [v for k, v in row.items() if isinstance(v, str) and k != "chunk_text"]:
                value, wrong = read(text)
                assert value is None and wrong
                seen += 1
    assert seen > 200


def test_openie_rows_of_wrong_arity_are_refused_or_read():
    """Rows of a real model's triples, each given as an answer: triples of three strings are read, others refused."""
    from pydantic import BaseModel

    from corpusmill.models.contracts import Prompt, Task

    class Triples(BaseModel):
        triples: tuple[tuple[str, str, str], ...]

    task = Task(
        "openie", "extract", Prompt("p", 1, "s", "u"), Question, Triples, lambda i: {}, lambda i: Triples(triples=())
    )
    refused = wrong_rows = 0
    path = shared_data("musique_train100") / "openie_gpt-3.5-turbo-1106.jsonl"
    for line in path.open(encoding="utf-8"):
        row = json.loads(line)
        value, _ = read_output(json.dumps({"triples": row["triples"]}), task, INPUTS)
        sound = all(len(t) == 3 and all(isinstance(p, str) for p in t) for t in row["triples"])
        wrong_rows += not sound
        refused += value is None
        assert (value is not None) == sound
    assert refused == wrong_rows > 50
