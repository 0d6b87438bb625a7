from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from corpusmill.errors import ModelOutputError
from corpusmill.methods.flexstructrag.hypergraph import (
    PARTS_PER_CALL,
    STATEMENTS_PER_CALL,
    SummarySettings,
    clean_aliases,
    entity_texts,
    local_entities,
)
from corpusmill.methods.flexstructrag.tasks import MergeSummaryInput, SummariseInput
from corpusmill.names import display_name, normal_form
from tests.unit.methods.flexstructrag.scripted import ScriptedModel, run, statements_of


def summary(task: str, inputs: BaseModel) -> object:
    if isinstance(inputs, SummariseInput):
        return {"summary": f"{len(inputs.statements)} of {inputs.name}", "aliases": ["Big Hub", "hub", "BIG HUB", "?"]}
    assert isinstance(inputs, MergeSummaryInput)
    return {"summary": " + ".join(inputs.parts)}


def rows_of(out: object) -> dict[str, dict[str, object]]:
    return {row["normal"]: row for row in out.tables["local_entities"].to_pylist()}  # type: ignore[attr-defined]


MENTIONS = st.lists(
    st.lists(st.sampled_from(["Rome", "ROME", "Rome!", "Paris", "罗马"]), min_size=1, max_size=4), max_size=9
)


@given(MENTIONS)
def test_entities_are_joined_by_normal_form_before_degrees_are_counted(names: list[list[str]]) -> None:
    mentions = [[(name, normal_form(name)) for name in dict.fromkeys(row)] for row in names]
    entities = local_entities(mentions)
    assert [e.normal for e in entities] == sorted({normal for row in mentions for _, normal in row})
    for entity in entities:
        assert list(entity.incident) == [i for i, row in enumerate(mentions) if entity.normal in {n for _, n in row}]
        forms = Counter(name for row in mentions for name, normal in row if normal == entity.normal)
        assert entity.name == display_name(dict(forms))


def test_above_tau_s_a_summary_with_aliases_else_the_joined_texts() -> None:
    text, tables = statements_of([(f"Hub does thing {n}.", ["Hub", f"Part{n // 3}"]) for n in range(9)])
    model = ScriptedModel(summary)
    rows = rows_of(run(entity_texts, SummarySettings(tau_s=3), text, tables, model))
    assert [inputs.name for _, inputs, _ in model.calls] == ["Hub"]
    assert rows["hub"]["summarised"] and rows["hub"]["text"] == "9 of Hub" and rows["hub"]["degree"] == 9
    assert rows["hub"]["aliases"] == ["Big Hub"]
    assert not rows["part1"]["summarised"] and rows["part1"]["aliases"] == []
    assert rows["part1"]["text"] == "Hub does thing 3.\nHub does thing 4.\nHub does thing 5."


def test_tau_s_itself_is_not_above() -> None:
    text, tables = statements_of([(f"Fact {n}.", ["Hub"]) for n in range(4)])
    model = ScriptedModel(summary)
    run(entity_texts, SummarySettings(tau_s=4), text, tables, model)
    assert model.calls == []


def test_a_failed_summary_is_told_and_the_texts_stand() -> None:
    text, tables = statements_of([(f"Fact {n}.", ["Hub"]) for n in range(4)])
    out = run(
        entity_texts, SummarySettings(tau_s=1), text, tables, ScriptedModel(lambda *_: ModelOutputError("cut off"))
    )
    assert out.failures == ("summary of entity 'Hub': cut off",)
    row = rows_of(out)["hub"]
    assert not row["summarised"] and row["text"] == "Fact 0.\nFact 1.\nFact 2.\nFact 3."


def test_a_hub_is_summarised_part_by_part() -> None:
    count = STATEMENTS_PER_CALL * (PARTS_PER_CALL + 1) + 1
    text, tables = statements_of([(f"Fact {n}.", ["Hub"]) for n in range(count)])
    model = ScriptedModel(summary)
    row = rows_of(run(entity_texts, SummarySettings(tau_s=9), text, tables, model))["hub"]
    parts = [inputs for _, inputs, _ in model.calls if isinstance(inputs, SummariseInput)]
    joins = [inputs for _, inputs, _ in model.calls if isinstance(inputs, MergeSummaryInput)]
    assert max(len(p.statements) for p in parts) == STATEMENTS_PER_CALL and len(parts) == PARTS_PER_CALL + 2
    assert max(len(j.parts) for j in joins) <= PARTS_PER_CALL
    assert str(row["text"]).count("64 of Hub") == PARTS_PER_CALL + 1 and str(row["text"]).endswith("1 of Hub")
    assert row["aliases"] == ["Big Hub"]


@given(st.lists(st.text(max_size=15), max_size=6), st.sampled_from(["hub", "rome"]))
def test_aliases_are_distinct_and_never_the_name_itself(aliases: list[str], normal: str) -> None:
    kept = [normal_form(alias) for alias in clean_aliases([*aliases, normal.upper()], normal)]
    assert normal not in kept and "" not in kept and len(set(kept)) == len(kept)


def test_no_statements_no_entities() -> None:
    text, tables = statements_of([])
    assert rows_of(run(entity_texts, SummarySettings(tau_s=9), text, tables, ScriptedModel(summary))) == {}
