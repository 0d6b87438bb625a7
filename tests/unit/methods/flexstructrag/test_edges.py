from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from corpusmill.errors import ModelOutputError
from corpusmill.methods.flexstructrag.edges import STATEMENTS_PER_CALL, AnchorSettings, relate_anchors
from corpusmill.methods.flexstructrag.tasks import RelateInput
from corpusmill.names import normal_form
from corpusmill.steps import StepOutput
from tests.unit.methods.flexstructrag.scripted import ScriptedModel, run, statements_of

FACTS = [(f"Ada met Bob{n} in Oslo.", ["Ada", f"Bob{n}", "Oslo"]) for n in range(5)] + [("Rome is old.", ["Rome"])]


def relation(source: str, target: str, text: str = "they met", support: int = 1) -> dict[str, object]:
    return {"source": source, "target": target, "text": text, "support": support}


def relate(items: list[tuple[str, list[str]]], answer: object, tau_e: int = 3) -> tuple[StepOutput, ScriptedModel]:
    text, tables = statements_of(items)
    model = ScriptedModel(answer if callable(answer) else lambda *_: {"relations": answer})
    return run(relate_anchors, AnchorSettings(tau_e=tau_e), text, tables, model), model


def test_anchors_are_the_entities_above_tau_e_and_see_their_neighbours_and_quotes() -> None:
    _, model = relate(FACTS, [])
    sent = [inputs for _, inputs, _ in model.calls]
    assert [inputs.anchor for inputs in sent] == ["Ada", "Oslo"]
    assert [s.text for s in sent[0].statements] == [text for text, _ in FACTS[:5]]
    assert sent[0].statements[2].quote == "Ada met Bob2 in Oslo."
    assert set(sent[0].names) == {"Ada", "Oslo", *(f"Bob{n}" for n in range(5))}


def test_only_relations_between_two_distinct_entities_of_the_document_are_kept() -> None:
    out, _ = relate(
        FACTS,
        [
            relation("ADA", "bob1!", support=2),
            relation("Ada", "ada"),
            relation("Ada", "Stranger"),
            relation("Ada", "Rome", "visited", support=9),
            relation("Ada", "Rome", "visited", support=0),
            relation("Ada", "Rome", "—"),
            relation("Oslo", "Rome", "visited"),
        ],
    )
    rows = out.tables["edges"].to_pylist()
    assert [(r["ordinal"], r["source_name"], r["target_name"]) for r in rows] == [
        (0, "Ada", "Bob1"),
        (1, "Oslo", "Rome"),
    ]
    stats = out.tables["edge_stats"].to_pylist()[0]
    assert (stats["anchors"], stats["relations"]) == (2, 14)
    assert (stats["dropped_ends"], stats["dropped_support"], stats["repeated_relations"]) == (4, 6, 2)


def test_an_edge_carries_the_span_of_its_supporting_statement() -> None:
    text, tables = statements_of(FACTS)
    model = ScriptedModel(lambda *_: {"relations": [relation("Ada", "Bob2", support=3)]})
    out = run(relate_anchors, AnchorSettings(tau_e=3), text, tables, model)
    (row,) = out.tables["edges"].to_pylist()
    support = tables["statements"].to_pylist()[2]
    assert row["hyperedge_id"] == support["hyperedge_id"]
    assert text.text[row["start"] : row["end"]] == "Ada met Bob2 in Oslo."


def test_a_hub_takes_several_calls_and_support_counts_within_a_call() -> None:
    count = STATEMENTS_PER_CALL + 3
    facts = [(f"Ada knows B{n}.", ["Ada", f"B{n}"]) for n in range(count)]
    out, model = relate(facts, lambda task, i: {"relations": [relation("Ada", i.statements[0].entities[1])]})
    assert [len(i.statements) for _, i, _ in model.calls] == [STATEMENTS_PER_CALL, 3]
    rows = out.tables["edges"].to_pylist()
    assert [row["target_name"] for row in rows] == ["B0", f"B{STATEMENTS_PER_CALL}"]
    assert rows[1]["start"] > rows[0]["end"]
    assert out.tables["edge_stats"].to_pylist()[0]["anchors"] == 1


def test_a_failed_call_is_told_and_the_other_anchors_stand() -> None:
    def answer(task: str, inputs: BaseModel) -> object:
        assert isinstance(inputs, RelateInput)
        return ModelOutputError("nonsense") if inputs.anchor == "Ada" else {"relations": [relation("Oslo", "Bob1")]}

    out, _ = relate(FACTS, answer)
    assert out.failures == ("relations of anchor 'Ada': nonsense",)
    assert out.tables["edges"].num_rows == 1 and out.tables["edge_stats"].num_rows == 1
    out, _ = relate(FACTS, lambda *_: ModelOutputError("nonsense"))
    assert len(out.failures) == 2 and out.tables["edge_stats"].num_rows == 0


def test_without_anchors_no_call_and_no_edges() -> None:
    out, model = relate(FACTS, [], tau_e=9)
    assert model.calls == [] and out.tables["edges"].num_rows == 0 and not out.failures


NAMES = st.sampled_from(["Ada", "ADA", "Oslo", "oslo.", "Bob1", "Nobody", "", "—"])
RELATIONS = st.lists(
    st.builds(relation, NAMES, NAMES, st.sampled_from(["met", "Met!", "knows", "", " "]), st.integers(-1, 7)),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(RELATIONS)
def test_whatever_the_model_gives_the_edges_are_sound(relations: list[dict[str, object]]) -> None:
    out, model = relate(FACTS, relations)
    rows = out.tables["edges"].to_pylist()
    known = {normal_form(name) for _, names in FACTS for name in names}
    for row in rows:
        assert row["source"] != row["target"] and {row["source"], row["target"]} <= known
    keys = [(row["source"], row["target"], normal_form(row["text"])) for row in rows]
    assert len(set(keys)) == len(keys) == len({row["edge_id"] for row in rows})
    assert [row["ordinal"] for row in rows] == list(range(len(rows)))
    stats = out.tables["edge_stats"].to_pylist()[0]
    dropped = stats["dropped_ends"] + stats["dropped_support"] + stats["repeated_relations"]
    assert stats["relations"] == len(relations) * len(model.calls) == dropped + len(rows)
