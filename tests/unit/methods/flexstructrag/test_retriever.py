import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.inprocess import Document, MemorySnapshot, index
from corpusmill.errors import UsageError
from corpusmill.methods.common.passages import PassageSearch
from corpusmill.methods.common.ranking import passages_of
from corpusmill.methods.flexstructrag.calibration import CALIBRATED, UNKNOWN, calibrate, thresholds
from corpusmill.methods.flexstructrag.checks import problems
from corpusmill.methods.flexstructrag.diffusion import EntityGraph
from corpusmill.methods.flexstructrag.lookup import ById, StructureLookup
from corpusmill.methods.flexstructrag.retriever import FlexRetriever
from corpusmill.methods.protocol import Evidence, Source
from corpusmill.models.factory import RunModels, build_models
from corpusmill.models.metered import Meter
from corpusmill.retrieval.fusion import fuse, scaled
from corpusmill.settings import EmbedderSettings, Settings
from corpusmill.spans import Span
from tests.unit.by_name import by_name

DOCUMENTS = [
    Document("jobs", "Steve Jobs", "Steve Jobs founded Apple Inc. in Cupertino. Steve Jobs was born in San Francisco."),
    Document("sf", "Harbour", "San Francisco has a harbour. Ferries leave the harbour of San Francisco for Sausalito."),
    *(
        Document(f"other{i}", f"Other {i}", f"Village {i} grows wheat. Farmer {i} lives in Village {i}.")
        for i in range(12)
    ),
]
SETTINGS = Settings(embedder=EmbedderSettings(backend="hash"))


@pytest.fixture(scope="module")
def models() -> RunModels:
    return build_models(SETTINGS, meter=Meter())


@pytest.fixture(scope="module")
def snapshot(models: RunModels, tmp_path_factory: pytest.TempPathFactory) -> MemorySnapshot:
    return asyncio.run(index(DOCUMENTS, SETTINGS, models, tmp_path_factory.mktemp("index"), by_name))


@pytest.fixture(scope="module")
def retriever(snapshot: MemorySnapshot, models: RunModels) -> FlexRetriever:
    return FlexRetriever(SETTINGS, snapshot, models)


def test_thresholds_limits_and_order(retriever: FlexRetriever) -> None:
    found = asyncio.run(retriever.find("Where was Steve Jobs born?", "hybrid"))
    assert found.names == ("Steve Jobs",)
    assert 0 < len(found.hyperedges) <= retriever.settings.n_hyperedges
    scores = [score for _, _, score in found.hyperedges]
    assert scores == sorted(scores, reverse=True) and min(scores) > retriever.tau_hyperedge


def test_an_unknown_mode_names_the_choices(retriever: FlexRetriever) -> None:
    with pytest.raises(UsageError, match="hypergraph, graph, hybrid"):
        asyncio.run(retriever.retrieve("Where?", "all"))


def test_entity_sources_are_its_statements(retriever: FlexRetriever, snapshot: MemorySnapshot) -> None:
    evidence = asyncio.run(retriever.retrieve("Where was Steve Jobs born?", "hybrid")).evidence
    entity = next(piece for piece in evidence if piece.kind == "entity")
    assert entity.sources
    assert all("Jobs" in s.span.of(snapshot.text(s.text_hash)) for s in entity.sources)


def test_aliases_count_only_where_no_name_matches(snapshot: MemorySnapshot, models: RunModels) -> None:
    names = snapshot.tables["entity_names"]
    jobs, harbour = (StructureLookup(snapshot).named(form, alias=False)[0] for form in ("steve jobs", "san francisco"))
    rows = [
        {"entity_id": harbour, "normal": "steve jobs", "alias": True},
        {"entity_id": harbour, "normal": "frisco", "alias": True},
    ]
    tables = {**snapshot.tables, "entity_names": pa.concat_tables([names, pa.Table.from_pylist(rows, names.schema)])}
    other = FlexRetriever(SETTINGS, replace(snapshot, tables=tables), models)
    assert other.match(["Steve Jobs"], ()) == (jobs,)
    assert other.match(["Frisco", "nobody"], ()) == (harbour,)


def test_the_walk_reaches_a_passage_that_shares_an_entity(retriever: FlexRetriever) -> None:
    table = retriever.passages.table
    snapshot_text = {row: retriever.passages.passage(row, 0.0) for row in range(table.num_rows)}
    harbour = next(r for r, p in snapshot_text.items() if "harbour" in p.span.of(retriever._snapshot.text(p.text_hash)))
    found = asyncio.run(retriever.find("Where was Steve Jobs born?", "hybrid"))
    born = [(unit, score) for _, unit, score in found.hyperedges]
    ranked = retriever.graph.rank(born, (), {})
    assert harbour in ranked  # named in no seed, reached through San Francisco
    assert sum(ranked.values()) <= 1.0 + 1e-9
    unrelated = set(range(table.num_rows)) - {harbour} - {max(ranked, key=lambda row: ranked[row])}
    assert all(ranked.get(row, 0.0) < ranked[harbour] for row in unrelated)


def test_the_walk_passes_between_entities_of_one_name_that_the_merge_kept_apart(
    retriever: FlexRetriever, snapshot: MemorySnapshot, models: RunModels
) -> None:
    """The merge joins entities whose texts are alike; a walk that only ranks goes by their name as well."""
    members = snapshot.tables["entity_members"]
    own = [f"{row['entity_id']} {row['text_hash']}" for row in members.to_pylist()]
    apart = members.set_column(members.schema.get_field_index("entity_id"), "entity_id", pa.array(own, pa.string()))
    split = FlexRetriever(SETTINGS, replace(snapshot, tables={**snapshot.tables, "entity_members": apart}), models)
    found = asyncio.run(retriever.find("Where was Steve Jobs born?", "hybrid"))
    born = [(unit, score) for _, unit, score in found.hyperedges]
    assert len(set(own)) > len(set(members.column("entity_id").to_pylist()))
    assert split.graph.rank(born, (), {}) == pytest.approx(retriever.graph.rank(born, (), {}))


def test_a_walk_with_nothing_to_start_from_is_empty(retriever: FlexRetriever) -> None:
    assert retriever.graph.rank((), (), {}) == {}
    assert retriever.graph.rank((), ("no such entity",), {}) == {}
    alone = retriever.graph.rank((), (), {0: 1.0})
    assert max(alone, key=lambda row: alone[row]) == 0


def test_the_graph_of_an_empty_index(models: RunModels, tmp_path: Path) -> None:
    nothing = asyncio.run(index([Document("a", "a", "")], SETTINGS, models, tmp_path, by_name))
    assert EntityGraph(nothing, {}).rank((), (), {}) == {}


def test_units_become_passages_by_their_sources(snapshot: MemorySnapshot) -> None:
    search = PassageSearch(snapshot)
    first, second = search.passage(0, 0.0), search.passage(1, 0.0)
    units = [
        Evidence("hyperedge", "h1", 0.5, "", (Source(second.text_hash, Span(0, 5)),)),
        Evidence(
            "hyperedge", "h2", 0.6, "", (Source(first.text_hash, Span(0, 5)), Source(second.text_hash, Span(0, 5)))
        ),
    ]
    assert passages_of(units, search) == [1, 0]  # 0.5 + 0.3 against 0.3
    given_first = Evidence("passage", first.chunk_id, 0.1, "", ())
    assert passages_of([*units, given_first], search) == [0, 1]


def test_titles_are_searchable(snapshot: MemorySnapshot) -> None:
    best = PassageSearch(snapshot).bm25("Other 3", 1)[0]
    assert "Village 3" in best.span.of(snapshot.text(best.text_hash))


@given(st.dictionaries(st.integers(0, 20), st.floats(-1, 1)), st.dictionaries(st.integers(0, 20), st.floats(0, 30)))
def test_fused_scores_lie_in_the_unit_interval(dense: dict[int, float], lexical: dict[int, float]) -> None:
    fused = fuse(dense, lexical)
    assert fused.keys() == dense.keys() | lexical.keys()
    assert all(-1e-9 <= score <= 1 + 1e-9 for score in fused.values())
    if not dense:
        assert fused == scaled(lexical)


@given(st.lists(st.text(max_size=3), max_size=30), st.text(max_size=3))
def test_rows_by_id(values: list[str], asked: str) -> None:
    table = pa.table({"id": pa.array(values, pa.string()), "row": pa.array(range(len(values)), pa.int64())})
    found = [row["row"] for row in ById(table, "id").rows(asked)]
    assert found == [i for i, value in enumerate(values) if value == asked]


def test_a_sound_snapshot_has_no_problems(snapshot: MemorySnapshot) -> None:
    assert problems(snapshot) == []


def _without(name: str, row: int) -> Callable[[dict[str, pa.Table]], None]:
    def drop(tables: dict[str, pa.Table]) -> None:
        table = tables[name]
        tables[name] = pa.concat_tables([table.slice(0, row), table.slice(row + 1)])

    return drop


def _long_span(tables: dict[str, pa.Table]) -> None:
    rows = tables["statements"].to_pylist()
    rows[0]["end"] = 1_000_000
    tables["statements"] = pa.Table.from_pylist(rows, tables["statements"].schema)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_without("entities", 0), "does not exist"),
        (_without("local_entities", 0), "is no local entity"),
        (_without("entity_members", 0), "belongs to no canonical entity"),
        (_without("statement_vectors", 0), "has no vector"),
        (_without("statements", 0), "a vector without a row"),
        (_without("chunks", 0), "its chunk"),
        (_long_span, "is not inside"),
    ],
)
def test_damage_is_found(snapshot: MemorySnapshot, damage: Callable[[dict[str, pa.Table]], None], said: str) -> None:
    tables = dict(snapshot.tables)
    damage(tables)
    assert any(said in problem for problem in problems(replace(snapshot, tables=tables, _texts={})))


def test_known_and_unknown_embedders() -> None:
    assert thresholds("minilm") == CALIBRATED["minilm"] and thresholds("minilm").calibrated
    assert thresholds("openai/some-model") == UNKNOWN and not UNKNOWN.calibrated


def test_calibration_measures_an_index(models: RunModels, tmp_path: Path) -> None:
    names = ["Anna", "Bruno", "Carla", "Dario", "Elena", "Fabio"]
    verbs = ["visited", "painted", "founded", "defended", "left", "praised"]
    documents = [
        Document(f"{i}{j}", "", f"{name} {verb} Lake{i}x{j} near Mount{j}y{i}. {name} wrote Book{i}z{j}.")
        for i, name in enumerate(names)
        for j, verb in enumerate(verbs)
    ]
    snapshot = asyncio.run(index(documents, SETTINGS, models, tmp_path, by_name))
    found = asyncio.run(calibrate(snapshot, models.embedder, sample=200, seed=1))
    assert found == asyncio.run(calibrate(snapshot, models.embedder, sample=200, seed=1))
    assert all(-1 <= tau <= 1 for tau in found[:3])
    vectors = np.stack(snapshot.tables["statement_vectors"].column("vector").to_numpy(zero_copy_only=False))
    cosines = (vectors @ vectors.T)[np.triu_indices(len(vectors), 1)]
    assert found.tau_hyperedge >= np.quantile(cosines, 0.9)


def test_calibration_refuses_too_little(snapshot: MemorySnapshot, models: RunModels) -> None:
    with pytest.raises(UsageError, match="at least 50 rows"):
        asyncio.run(calibrate(snapshot, models.embedder))
