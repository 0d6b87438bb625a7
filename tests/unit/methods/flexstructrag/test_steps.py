"""The plan of the document steps, and all of them together on real documents in several scripts."""

import asyncio
import json
import pickle

import pyarrow as pa
import pytest

from corpusmill.hashing import hash_text
from corpusmill.methods.common.chunks import chunk_step
from corpusmill.methods.common.vectors import chunk_vector_step
from corpusmill.methods.flexstructrag.settings import FlexSettings
from corpusmill.methods.flexstructrag.steps import document_steps
from corpusmill.models.contracts import ROLES
from corpusmill.models.embedded import EmbeddedModel
from corpusmill.names import normal_form
from corpusmill.schemas import CHUNKS
from corpusmill.settings import Settings
from corpusmill.steps import DocumentStep, ModelFingerprints, ResolvedPlan, StepContext, Text, TextContext, resolve
from tests.shared import shared_data
from tests.unit.methods.flexstructrag.scripted import models

DIM = 256
PRINTS = ModelFingerprints(roles=dict.fromkeys(ROLES, "m"), embedder="e")


def plan(dim: int = DIM, prints: ModelFingerprints = PRINTS, **own: object) -> ResolvedPlan:
    settings = Settings.model_validate({"methods": {"flexstructrag": FlexSettings.model_validate(own)}})
    return resolve((chunk_step(settings), chunk_vector_step(dim), *document_steps(settings, dim)), prints)


def changed(**own: object) -> set[str]:
    before, after = plan().fingerprints, plan(**own).fingerprints
    return {name for name in before if before[name] != after[name]}


EVERYTHING = {"extract", "hypergraph", "edges", "statement_vectors", "edge_vectors", "entity_vectors", "clusters"}


@pytest.mark.parametrize(
    ("own", "steps"),
    [
        ({"g_overlap": 1}, EVERYTHING),
        ({"tau_s": 5}, {"hypergraph", "entity_vectors"}),
        ({"tau_e": 5}, {"edges", "edge_vectors"}),
        ({"alpha": 0.2}, {"clusters"}),
        ({"min_cluster_size": 3}, {"clusters"}),
        ({"tau_merge": 0.5, "n_edges": 9, "mode": "graph"}, set()),
    ],
)
def test_a_setting_changes_only_what_depends_on_it(own: dict[str, object], steps: set[str]) -> None:
    assert changed(**own) == steps


def test_another_embedder_keeps_the_extraction() -> None:
    other = plan(prints=ModelFingerprints(roles=PRINTS.roles, embedder="other")).fingerprints
    kept = {name for name, value in plan().fingerprints.items() if other[name] == value}
    assert kept == {"chunks", "extract", "hypergraph", "edges"}


def test_another_summariser_keeps_the_extraction() -> None:
    other = plan(prints=ModelFingerprints(roles={**PRINTS.roles, "summarise": "x"}, embedder="e")).fingerprints
    assert {n for n, v in plan().fingerprints.items() if other[n] != v} == {"hypergraph", "entity_vectors"}


def test_steps_travel_between_processes() -> None:
    steps = document_steps(Settings(), DIM)
    again = pickle.loads(pickle.dumps(steps))  # noqa: S301
    assert [step.name for step in again] == [step.name for step in steps]


def build(text: str) -> dict[str, pa.Table]:
    """All document steps with the embedded model and the hashing embedder; no part may fail."""
    made = plan(tau_s=2, tau_e=1)
    whole = Text(hash_text(text), text)
    chunker = made.steps[0]
    tables = dict(chunker.run(whole, {}, TextContext(chunker.settings, made.fingerprints["chunks"])))  # type: ignore[union-attr,call-arg,arg-type]

    async def go() -> None:
        run_models = models(EmbeddedModel())
        for step in made.steps[1:]:
            assert isinstance(step, DocumentStep)
            context = StepContext(step.settings, made.fingerprints[step.name], run_models)
            out = await step.run(whole, {name: tables[name] for name in step.inputs}, context)
            assert not out.failures
            for spec in step.outputs:
                assert out.tables[spec.name].schema.equals(spec.schema)
                tables[spec.name] = out.tables[spec.name]

    asyncio.run(go())
    return tables


def check(text: str, tables: dict[str, pa.Table]) -> None:
    """Every reference leads to a row, every span to the text of its chunk."""
    rows = {name: table.to_pylist() for name, table in tables.items()}
    chunks = {c["chunk_id"]: c for c in rows["chunks"]}
    statements = {s["hyperedge_id"]: s for s in rows["statements"]}
    entities = {e["normal"]: e for e in rows["local_entities"]}
    for s in statements.values():
        chunk = chunks[s["chunk_id"]]
        assert chunk["start"] <= s["start"] < s["end"] <= chunk["end"]
        assert all(e["normal"] == normal_form(e["name"]) and e["normal"] in entities for e in s["entities"])
    for normal, entity in entities.items():
        assert entity["degree"] == sum(normal in {e["normal"] for e in s["entities"]} for s in statements.values())
        assert entity["summarised"] == (entity["degree"] > 2) and entity["text"].strip()
    for edge in rows["edges"]:
        support = statements[edge["hyperedge_id"]]
        assert (edge["start"], edge["end"]) == (support["start"], support["end"])
        assert edge["source"] != edge["target"] and {edge["source"], edge["target"]} <= set(entities)
    for cluster in rows["clusters"]:
        covered = {p for s in cluster["spans"] for p in range(s["start"], s["end"])}
        members = [statements[m] for m in cluster["members"]]
        assert covered == {p for m in members for p in range(m["start"], m["end"])}
        assert [m["ordinal"] for m in members] == sorted(m["ordinal"] for m in members) and len(members) >= 2
    for name, units in (("statement_vectors", statements), ("edge_vectors", {e["edge_id"] for e in rows["edges"]})):
        assert {row["unit_id"] for row in rows[name]} == set(units)
    assert {row["unit_id"] for row in rows["entity_vectors"]} == {e["local_id"] for e in entities.values()}
    assert {row["unit_id"] for row in rows["chunk_vectors"]} == set(chunks)


@pytest.mark.parametrize("name", ["xquad_en", "xquad_zh", "xquad_hi"])
def test_real_documents_in_several_scripts(name: str) -> None:
    lines = (shared_data(name) / "corpus.jsonl").read_text().splitlines()[:20]
    text = "\n\n".join(json.loads(line)["text"] for line in lines)
    tables = build(text)
    check(text, tables)
    assert tables["chunks"].num_rows > 2
    assert tables["statements"].num_rows > 40 and tables["local_entities"].num_rows > 40
    assert tables["edges"].num_rows > 10 and tables["clusters"].num_rows > 3
    again = build(text)
    assert all(again[n].equals(t) for n, t in tables.items() if "vectors" not in n)


@pytest.mark.parametrize("text", ["", "   \n\n ", "word", "Hello.", "1234", "?!", "\u200f\u0000 \ufeff"])
def test_texts_that_say_nothing_are_a_success(text: str) -> None:
    tables = build(text)
    check(text, tables)
    assert tables["chunks"].schema.equals(CHUNKS.schema)
