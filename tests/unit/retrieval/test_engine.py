import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.inprocess import Document, MemorySnapshot, index
from corpusmill.errors import EmbedderMismatchError, UsageError
from corpusmill.models.factory import RunModels, build_models
from corpusmill.models.metered import Meter
from corpusmill.retrieval.answering import UNANSWERABLE
from corpusmill.retrieval.engine import QueryEngine, QueryResult
from corpusmill.settings import EmbedderSettings, QuerySettings, Settings
from tests.unit.by_name import by_name

BRIDGE = "San Francisco lies in California. The Golden Gate Bridge spans the strait at San Francisco."
DOCUMENTS = [
    Document("apple", "Apple", "Apple is a fruit. The apple tree was domesticated in Kazakhstan."),
    Document(
        "company",
        "Apple Inc.",
        "Apple Inc. was founded by Steve Jobs in Cupertino. Steve Jobs was born in San Francisco. Steve Jobs led Pixar.",
    ),
    Document("sf", "San Francisco", BRIDGE),
    Document("copy", "A copy", BRIDGE),
    Document("hindi", "गंगा", "गंगा नदी हिमालय से निकलती है। वाराणसी गंगा के तट पर बसा है।"),
    Document("empty", "Nothing", ""),
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


def ask(engine: QueryEngine, question: str, mode: str | None = None) -> QueryResult:
    return asyncio.run(engine.query(question, mode=mode))


def test_every_citation_is_the_stored_text(engine: QueryEngine) -> None:
    texts = {document.path: document.text for document in DOCUMENTS}
    result = ask(engine, "In which city was Steve Jobs born?")
    assert any("born in San Francisco" in citation.quote for citation in result.citations)
    for citation in result.citations:
        assert texts[citation.uri.removeprefix("memory:")][citation.start : citation.end] == citation.quote


def test_the_json_shape(engine: QueryEngine) -> None:
    whole = ask(engine, "What spans the strait at San Francisco?").to_json()
    assert list(whole) == ["answer", "citations", "evidence", "method", "mode", "snapshot", "tokens", "seconds"]
    citations, evidence = whole["citations"], whole["evidence"]
    assert isinstance(citations, tuple) and isinstance(evidence, tuple)
    assert set(citations[0]) == {"doc_id", "uri", "title", "start", "end", "quote", "score"}
    assert set(evidence[0]) == {"kind", "id", "score", "text", "sources"}
    assert isinstance(whole["tokens"], int) and isinstance(whole["seconds"], float)


def test_a_text_of_two_documents_is_cited_for_both(engine: QueryEngine) -> None:
    result = ask(engine, "What spans the strait at San Francisco?")
    assert {"memory:sf", "memory:copy"} <= {citation.uri for citation in result.citations}


def test_what_the_documents_do_not_say_is_said_to_be_so(engine: QueryEngine) -> None:
    result = ask(engine, "Who composed the opera Aida?")
    assert result.answer == UNANSWERABLE and result.citations == () and not result.answerable


@pytest.mark.parametrize(
    ("mode", "kinds"),
    [
        ("hypergraph", {"entity", "hyperedge", "cluster", "passage"}),
        ("graph", {"entity", "edge", "passage"}),
        ("hybrid", {"entity", "hyperedge", "edge", "cluster", "passage"}),
    ],
)
def test_modes_return_their_kinds(engine: QueryEngine, mode: str, kinds: set[str]) -> None:
    found = asyncio.run(engine.retrieve("Where was Steve Jobs born?", mode=mode))
    assert {item.kind for item in found.evidence} <= kinds
    assert any(item.kind == "entity" and "Steve Jobs" in item.text for item in found.evidence)
    assert found.answer == "" and found.citations == ()


def test_without_filling_only_the_structure_speaks(snapshot: MemorySnapshot, models: RunModels) -> None:
    settings = SETTINGS.model_copy(update={"query": QuerySettings(fill=False)})
    found = asyncio.run(QueryEngine(snapshot, settings, models).retrieve("Where was Steve Jobs born?"))
    assert found.evidence and "passage" not in {item.kind for item in found.evidence}


def test_another_script_is_found_by_its_words(engine: QueryEngine) -> None:
    found = asyncio.run(engine.retrieve("वाराणसी किस नदी के तट पर है?"))
    assert any("वाराणसी" in item.text for item in found.evidence)


@pytest.mark.parametrize("question", ["", "  \n"])
def test_an_empty_question_is_refused(engine: QueryEngine, question: str) -> None:
    with pytest.raises(UsageError, match="empty"):
        ask(engine, question)


def test_unknown_modes_and_methods_name_the_choices(engine: QueryEngine) -> None:
    with pytest.raises(UsageError, match="hypergraph, graph, hybrid"):
        ask(engine, "Where?", mode="tree")
    with pytest.raises(UsageError, match="flexstructrag"):
        asyncio.run(engine.query("Where?", method="none-such"))


def test_a_question_of_a_hundred_thousand_characters(engine: QueryEngine) -> None:
    question = "Tell me about everything. " * 4_000 + "In which city was Steve Jobs born?"
    assert len(question) > 100_000
    assert any("Steve Jobs" in citation.quote for citation in ask(engine, question).citations)


def test_another_embedder_is_refused_naming_both(snapshot: MemorySnapshot) -> None:
    other = Settings(embedder=EmbedderSettings(backend="hash", dim=64))
    models = build_models(other, meter=Meter())
    with pytest.raises(EmbedderMismatchError) as refused:
        QueryEngine(snapshot, other, models)
    told = str(refused.value)
    assert snapshot.source.embedder[:12] in told and models.embedder.fingerprint[:12] in told
    assert "the configured embedder is hash " in told


def test_an_empty_index_answers_that_it_does_not_know(models: RunModels, tmp_path: Path) -> None:
    nothing = asyncio.run(index([Document("a", "a", "")], SETTINGS, models, tmp_path, by_name))
    assert ask(QueryEngine(nothing, SETTINGS, models), "Where?").answer == UNANSWERABLE


def test_neither_spark_nor_ray_is_imported() -> None:
    code = (
        "import sys, corpusmill.retrieval.engine, corpusmill.methods.flexstructrag.retriever\n"
        "bad = [m for m in ('pyspark', 'ray', 'torch', 'vllm') if m in sys.modules]\n"
        "sys.exit(', '.join(bad) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
