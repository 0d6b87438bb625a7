import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from corpusmill.errors import BudgetReachedError, ModelOutputError, ModelUnavailableError
from corpusmill.methods.flexstructrag.extraction import (
    MAX_NAME_CHARS,
    Chunk,
    Grounder,
    WindowSettings,
    clean_entities,
    extract,
)
from corpusmill.methods.flexstructrag.tasks import ExtractedItem, ExtractInput
from corpusmill.names import normal_form
from corpusmill.spans import Span
from corpusmill.steps import StepContext
from tests.unit.methods.flexstructrag.scripted import ScriptedModel, models, run, text_of

SETTINGS = WindowSettings(g_max=3, g_overlap=1)
PARTS = [f"Chapter {n} is about Person{n} and the town of Place{n}." for n in range(1, 8)]


def item(statement: str, quote: str, *entities: str) -> dict[str, object]:
    return {"statement": statement, "quote": quote, "entities": list(entities)}


def echo(task: str, inputs: BaseModel) -> object:
    assert isinstance(inputs, ExtractInput)
    words = inputs.chunk.split()
    return {"items": [item(inputs.chunk, inputs.chunk, words[4], words[-1]), item("again", inputs.chunk, words[4])]}


def test_windows_go_out_in_order_with_their_prefixes() -> None:
    text, tables = text_of(PARTS)
    model = ScriptedModel(echo)
    run(extract, SETTINGS, text, tables, model)
    sent = [inputs for _, inputs, _ in model.calls]
    assert [inputs.chunk for inputs in sent] == PARTS
    assert [len(inputs.prefix) for inputs in sent] == [0, 1, 2, 1, 2, 1, 2]
    assert list(sent[4].prefix) == PARTS[2:4]
    assert {affinity for _, _, affinity in model.calls} == {text.text_hash}


def test_statements_are_in_extraction_order_whatever_ends_first() -> None:
    text, tables = text_of(PARTS)
    out = run(extract, SETTINGS, text, tables, ScriptedModel(echo))
    rows = out.tables["statements"].to_pylist()
    assert not out.failures
    assert [row["ordinal"] for row in rows] == list(range(14))
    assert [row["text"] for row in rows[::2]] == PARTS
    for row in rows:
        chunk = next(c for c in tables["chunks"].to_pylist() if c["chunk_id"] == row["chunk_id"])
        assert chunk["start"] <= row["start"] < row["end"] <= chunk["end"]
        assert text.text[row["start"] : row["end"]] in PARTS
    assert len({row["hyperedge_id"] for row in rows}) == len(rows)


def test_a_failed_window_makes_the_text_partial_and_keeps_the_others() -> None:
    text, tables = text_of(PARTS)

    def answer(task: str, inputs: BaseModel) -> object:
        return ModelOutputError("not JSON") if "Person3" in inputs.chunk else echo(task, inputs)  # type: ignore[attr-defined]

    out = run(extract, SETTINGS, text, tables, ScriptedModel(answer))
    rows = out.tables["statements"].to_pylist()
    assert len(out.failures) == 1 and "chunk 3 of 7" in out.failures[0] and "not JSON" in out.failures[0]
    assert [row["ordinal"] for row in rows] == list(range(12))
    stats = out.tables["extraction_stats"].to_pylist()[0]
    assert (stats["windows"], stats["failed_windows"], stats["items"]) == (7, 1, 12)


def test_nonsense_for_every_window_leaves_no_rows_at_all() -> None:
    text, tables = text_of(PARTS)
    out = run(extract, SETTINGS, text, tables, ScriptedModel(lambda *_: ModelOutputError("nonsense")))
    assert len(out.failures) == 7
    assert all(table.num_rows == 0 for table in out.tables.values())


@pytest.mark.parametrize("error", [ModelUnavailableError("503"), BudgetReachedError("spent")])
def test_what_is_not_the_texts_fault_is_raised(error: Exception) -> None:
    text, tables = text_of(PARTS)
    with pytest.raises(type(error)):
        run(extract, SETTINGS, text, tables, ScriptedModel(lambda *_: error))


def test_after_an_error_no_call_is_left_running() -> None:
    text, tables = text_of(PARTS * 30)

    async def go() -> int:
        model = ScriptedModel(lambda task, i: ModelUnavailableError("down") if "Person5" in i.chunk else echo(task, i))  # type: ignore[attr-defined]
        with pytest.raises(ModelUnavailableError):
            await extract(text, tables, StepContext(SETTINGS, "", models(model)))
        before = len(model.calls)
        await asyncio.sleep(0.05)
        return len(model.calls) - before

    assert asyncio.run(go()) == 0


def test_an_empty_text_is_a_success() -> None:
    text, tables = text_of([])
    out = run(extract, SETTINGS, text, tables, ScriptedModel(echo))
    assert not out.failures and out.tables["statements"].num_rows == 0
    assert out.tables["extraction_stats"].to_pylist()[0]["windows"] == 0


def grounded(chunk_text: str, *items: dict[str, object], before: str = "Prefix with Ann and Bob. ") -> Grounder:
    grounder = Grounder(before + chunk_text)
    chunk = Chunk("c", Span(len(before), len(before) + len(chunk_text)))
    grounder.add(chunk, [ExtractedItem.model_validate(i) for i in items])
    return grounder


def test_changed_quotes_are_aligned_and_foreign_ones_dropped_and_counted() -> None:
    source = "Marie Curie discovered polonium in 1898, together with Pierre Curie."
    made = grounded(
        source,
        item("a", "Marie Curie discoverd polonium in 1898", "Marie Curie"),
        item("b", "Prefix with Ann and Bob.", "Ann"),  # stands before the chunk
        item("c", "Something that was never written anywhere", "X"),
        item("d", "", "X"),
    )
    kept = list(made.statements.values())
    assert [s.text for s in kept] == ["a"]
    assert kept[0].ref.of(made.text) == "Marie Curie discovered polonium in 1898"
    assert (made.counts.items, made.counts.dropped_quotes) == (4, 3)


def test_repeated_items_are_kept_once_and_items_without_entities_dropped() -> None:
    source = "Rome is a city."
    made = grounded(
        source,
        item("Rome is  a city.", source, "Rome", "ROME", "city"),
        item("Rome is a city.", source, "Rome"),
        item("Rome is old.", source, "...", ""),
        item("  ", source, "Rome"),
    )
    (kept,) = made.statements.values()
    assert kept.entities == (("Rome", "rome"), ("city", "city"))
    counts = made.counts
    assert (counts.repeated_items, counts.dropped_items, counts.dropped_entities) == (1, 2, 2)


NAMES = st.lists(st.text(max_size=12) | st.sampled_from(["Rome", "rome", "ROME!", "罗马", "x" * 201, "—"]), max_size=8)


@given(NAMES, st.text(max_size=40))
def test_clean_entities(names: list[str], statement: str) -> None:
    kept, dropped = clean_entities(names, statement)
    normals = [normal for _, normal in kept]
    assert len(set(normals)) == len(normals)
    assert all(normal and normal == normal_form(name) and len(name) <= MAX_NAME_CHARS for name, normal in kept)
    assert dropped + len(kept) <= len(names)
    assert set(normals) == {
        normal_form(n) for n in names if normal_form(n) and max(len(normal_form(n)), len(" ".join(n.split()))) <= 200
    }


def test_entities_come_in_order_of_mention() -> None:
    kept, _ = clean_entities(["Berlin", "Nobody", "Ada"], "Ada moved to Berlin.")
    assert [name for name, _ in kept] == ["Ada", "Berlin", "Nobody"]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(min_size=1, max_size=30), min_size=1, max_size=4), st.data())
def test_any_statement_that_is_kept_is_grounded_in_its_chunk(parts: list[str], data: st.DataObject) -> None:
    text, tables = text_of(parts)
    quotes = st.sampled_from(parts) | st.text(max_size=30)

    def answer(task: str, inputs: BaseModel) -> object:
        return {"items": [item("s", data.draw(quotes), "name") for _ in range(3)]}

    out = run(extract, SETTINGS, text, tables, ScriptedModel(answer))
    spans = {c["chunk_id"]: (c["start"], c["end"]) for c in tables["chunks"].to_pylist()}
    rows = out.tables["statements"].to_pylist()
    for row in rows:
        start, end = spans[row["chunk_id"]]
        assert start <= row["start"] < row["end"] <= end
    assert [row["ordinal"] for row in rows] == list(range(len(rows)))
    stats = out.tables["extraction_stats"].to_pylist()[0]
    assert stats["items"] == 3 * len(parts) == len(rows) + stats["dropped_quotes"] + stats["repeated_items"]
