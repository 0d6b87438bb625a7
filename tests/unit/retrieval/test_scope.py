import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.inprocess import Document, MemorySnapshot, index
from corpusmill.errors import UsageError
from corpusmill.hashing import hash_text
from corpusmill.methods.protocol import Evidence, Retrieval, Scope, Source
from corpusmill.models.factory import RunModels, build_models
from corpusmill.models.metered import Meter
from corpusmill.retrieval.engine import QueryEngine
from corpusmill.retrieval.scope import ScopedSnapshot, refuse_outside, resolve_scope
from corpusmill.settings import EmbedderSettings, Settings
from corpusmill.spans import Span
from tests.unit.by_name import by_name

SHARED = "The Golden Gate Bridge spans the strait at San Francisco."
DOCUMENTS = [
    Document("notes/jobs.md", "Jobs", "Steve Jobs was born in San Francisco. Steve Jobs led Pixar."),
    Document("notes/secret.md", "Secret", "Steve Jobs secretly owned a zeppelin. Steve Jobs hid the zeppelin in Reno."),
    Document("public/bridge.txt", "Bridge", SHARED),
    Document("private/copy.txt", "Private copy", SHARED),
    Document("odd[1].txt", "Odd", "An odd name for a file about Steve Jobs."),
    Document("blank.txt", "Blank", ""),
]
SETTINGS = Settings(embedder=EmbedderSettings(backend="hash"))


@pytest.fixture(scope="module")
def models() -> RunModels:
    return build_models(SETTINGS, meter=Meter())


@pytest.fixture(scope="module")
def snapshot(models: RunModels, tmp_path_factory: pytest.TempPathFactory) -> MemorySnapshot:
    return asyncio.run(index(DOCUMENTS, SETTINGS, models, tmp_path_factory.mktemp("index"), by_name))


@pytest.fixture(scope="module")
def engine(snapshot: MemorySnapshot, models: RunModels) -> QueryEngine:
    return QueryEngine(snapshot, SETTINGS, models)


def paths(snapshot: MemorySnapshot, *patterns: str) -> set[str]:
    chosen = resolve_scope(snapshot, patterns).documents
    assert chosen is not None
    return {row["path"] for row in snapshot.table("documents").to_pylist() if row["doc_id"] in chosen}


def test_ids_paths_uris_and_globs(snapshot: MemorySnapshot) -> None:
    doc_id = next(r["doc_id"] for r in snapshot.table("documents").to_pylist() if r["path"] == "notes/jobs.md")
    assert paths(snapshot, doc_id) == paths(snapshot, "notes/jobs.md") == {"notes/jobs.md"}
    assert paths(snapshot, "memory:notes/*") == paths(snapshot, "notes/*") == {"notes/jobs.md", "notes/secret.md"}
    assert paths(snapshot, "*.txt", doc_id) == {d.path for d in DOCUMENTS} - {"notes/secret.md"}
    assert paths(snapshot, "odd[1].txt") == {"odd[1].txt"}  # a name before a pattern
    assert paths(snapshot, "*/[bc]*") == {"public/bridge.txt", "private/copy.txt"}


def test_a_scope_holds_texts(snapshot: MemorySnapshot) -> None:
    scope = resolve_scope(snapshot, ["public/*"])
    assert scope.texts == {hash_text(SHARED)} and scope.asked == ("public/*",)
    assert hash_text(SHARED) in scope and hash_text("") not in scope


@pytest.mark.parametrize("pattern", ["nothing/*", "NOTES/jobs.md", "jobs", ""])
def test_what_matches_nothing_is_named(snapshot: MemorySnapshot, engine: QueryEngine, pattern: str) -> None:
    with pytest.raises(UsageError, match=f"no document matches {pattern!r}".replace("*", r"\*")):
        asyncio.run(engine.query("Where?", documents=["notes/*", pattern]))


def test_documents_without_a_text_are_told(snapshot: MemorySnapshot) -> None:
    table = snapshot.table("documents")
    nulled = [{**row, "text_hash": None} if row["path"] == "blank.txt" else row for row in table.to_pylist()]
    other = replace(snapshot, tables={**snapshot.tables, "documents": type(table).from_pylist(nulled, table.schema)})
    with pytest.raises(UsageError, match=r"1 documents that match 'blank\.txt' have no text"):
        resolve_scope(other, ["blank.txt"])
    assert resolve_scope(other, ["*"]).texts == {hash_text(d.text) for d in DOCUMENTS if d.text}


@pytest.mark.parametrize("mode", ["hypergraph", "graph", "hybrid"])
def test_nothing_outside_the_documents_is_returned(engine: QueryEngine, mode: str) -> None:
    question = "What did Steve Jobs own, and where was he born?"
    everywhere = asyncio.run(engine.retrieve(question, mode=mode))
    assert any("zeppelin" in item.text for item in everywhere.evidence)
    found = asyncio.run(engine.retrieve(question, mode=mode, documents=["notes/jobs.md"]))
    assert {item.kind for item in found.evidence} & {"entity", "passage"}
    for item in found.evidence:
        assert item.sources and {source.uri for source in item.sources} == {"memory:notes/jobs.md"}
        assert "zeppelin" not in item.text


def test_an_entity_speaks_only_from_the_documents(engine: QueryEngine) -> None:
    found = asyncio.run(engine.retrieve("Who is Steve Jobs?", documents=["notes/jobs.md"]))
    entity = next(item for item in found.evidence if item.kind == "entity")
    assert "Steve Jobs" in entity.text and "Pixar" in entity.text
    whole = asyncio.run(engine.retrieve("Who is Steve Jobs?", documents=["*"]))
    merged = next(item for item in whole.evidence if item.kind == "entity")
    assert merged.id == entity.id and "zeppelin" in merged.text


def test_a_name_that_only_others_say_finds_no_entity(engine: QueryEngine) -> None:
    found = asyncio.run(engine.retrieve("Where is Reno?", documents=["notes/jobs.md", "public/*"]))
    assert not any("Reno" in item.text for item in found.evidence)


def test_a_shared_text_is_told_for_the_asked_document_alone(engine: QueryEngine) -> None:
    result = asyncio.run(engine.query("What spans the strait at San Francisco?", documents=["public/*"]))
    assert {citation.uri for citation in result.citations} == {"memory:public/bridge.txt"}
    assert {source.title for item in result.evidence for source in item.sources} == {"Bridge"}


def test_another_script_keeps_to_the_documents(engine: QueryEngine) -> None:
    found = asyncio.run(engine.retrieve("史蒂夫 Jobs 加州 旧金山 出生", documents=["public/*"]))
    assert all(source.uri == "memory:public/bridge.txt" for item in found.evidence for source in item.sources)


def test_a_method_that_leaves_the_scope_is_refused(engine: QueryEngine, snapshot: MemorySnapshot) -> None:
    scope = Scope(frozenset({hash_text(SHARED)}), ("public/*",))
    inside = Evidence("passage", "p", 1.0, "", (Source(hash_text(SHARED), Span(0, 3)),))
    outside = Evidence("passage", "q", 1.0, "", (*inside.sources, Source(hash_text(""), Span(0, 0))))
    refuse_outside([inside], scope, "m")
    with pytest.raises(RuntimeError, match="'m' returned passage q with the text"):
        refuse_outside([inside, outside], scope, "m")
    with pytest.raises(RuntimeError, match="no text of the scope"):
        refuse_outside([replace(inside, sources=())], scope, "m")


def test_the_engine_checks_what_a_method_returns(snapshot: MemorySnapshot, models: RunModels) -> None:
    class Leaky:
        modes, default_mode = ("all",), "all"

        async def retrieve(self, question: str, mode: str, scope: Scope | None = None) -> Retrieval:
            return Retrieval((Evidence("passage", "q", 1.0, "x", (Source(hash_text(""), Span(0, 0)),)),))

    engine = QueryEngine(snapshot, SETTINGS, models)
    engine._retrievers["flexstructrag"] = Leaky()
    assert asyncio.run(engine.retrieve("Where?")).evidence
    with pytest.raises(RuntimeError, match="outside the scope"):
        asyncio.run(engine.retrieve("Where?", documents=["public/*"]))


def test_a_scoped_snapshot_keeps_other_texts_back(snapshot: MemorySnapshot, tmp_path: Path) -> None:
    scoped = ScopedSnapshot(snapshot, resolve_scope(snapshot, ["public/*"]))
    assert scoped.text(hash_text(SHARED)) == SHARED
    assert [row["path"] for row in scoped.documents_of(hash_text(SHARED))] == ["public/bridge.txt"]
    with pytest.raises(KeyError, match="outside the scope"):
        scoped.text(hash_text(DOCUMENTS[1].text))
