"""bm25, dense and dense-rerank: what they return, and what several methods on one index share."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from benchmarks.inprocess import Document, MemorySnapshot, index
from corpusmill.errors import UsageError
from corpusmill.methods.bm25.settings import Bm25Settings
from corpusmill.methods.dense_rerank.settings import DenseRerankSettings
from corpusmill.methods.registry import attribute, get_method, method_names
from corpusmill.models.contracts import EmbedKind
from corpusmill.models.factory import RunModels, build_models
from corpusmill.models.metered import Meter
from corpusmill.planning import resolved_plan
from corpusmill.retrieval.engine import QueryEngine
from corpusmill.settings import EmbedderSettings, QuerySettings, RunSettings, Settings
from tests.unit.by_name import by_name

BASELINES = ("bm25", "dense", "dense-rerank")
DOCUMENTS = [
    Document(f"d{i}", f"Village {i}", f"The farmer of village {i} grows {crop} and sells it in town.")
    for i, crop in enumerate(["wheat", "rye", "barley", "oats", "hops", "flax"] * 7)
]
QUESTION = "Which farmer grows hops in village 10?"


class LengthReranker:
    """Prefers short passages; counts what it was given."""

    fingerprint = "length"

    def __init__(self) -> None:
        self.seen: list[int] = []

    def calls(self, passages: int) -> int:
        return 2

    async def rerank(self, question: str, passages: Sequence[str]) -> np.ndarray:
        self.seen.append(len(passages))
        return np.array([-len(passage) for passage in passages], np.float32)

    async def aclose(self) -> None: ...


class NoEmbedder:
    """Fails where anything is embedded."""

    fingerprint, dim = "none", 8

    async def embed(self, texts: Sequence[str], kind: EmbedKind) -> np.ndarray:
        raise AssertionError("nothing may be embedded")

    async def aclose(self) -> None: ...


def settings_of(*methods: str) -> Settings:
    return Settings(embedder=EmbedderSettings(backend="hash"), run=RunSettings(methods=methods))


@pytest.fixture(scope="module")
def reranker() -> LengthReranker:
    return LengthReranker()


@pytest.fixture(scope="module")
def models(reranker: LengthReranker) -> RunModels:
    return build_models(settings_of(*BASELINES), meter=Meter(), reranker=reranker)


@pytest.fixture(scope="module")
def snapshot(models: RunModels, tmp_path_factory: pytest.TempPathFactory) -> MemorySnapshot:
    where = tmp_path_factory.mktemp("index")
    return asyncio.run(index(DOCUMENTS, settings_of(*BASELINES), models, where, by_name))


@pytest.fixture(scope="module")
def engine(snapshot: MemorySnapshot, models: RunModels) -> QueryEngine:
    return QueryEngine(snapshot, settings_of(*BASELINES), models)


@pytest.mark.parametrize("method", BASELINES)
def test_every_mode_returns_passages_best_first(engine: QueryEngine, method: str) -> None:
    _, retriever = engine.retriever(method)
    assert retriever.modes == get_method(method).modes and retriever.default_mode in retriever.modes
    for mode in retriever.modes:
        found = asyncio.run(retriever.retrieve(QUESTION, mode))
        assert len(found.evidence) == 12 and {piece.kind for piece in found.evidence} == {"passage"}
        scores = [piece.score for piece in found.evidence]
        assert scores == sorted(scores, reverse=True)
        if method != "dense-rerank":
            assert "village 10 grows hops" in found.evidence[0].text and found.calls == 0


def test_the_best_candidates_are_reranked_and_their_calls_counted(
    engine: QueryEngine, reranker: LengthReranker
) -> None:
    before = len(reranker.seen)
    _, retriever = engine.retriever("dense-rerank")
    found = asyncio.run(retriever.retrieve(QUESTION, "dense"))
    assert reranker.seen[before:] == [25] and found.calls == 2
    lengths = [len(piece.text) for piece in found.evidence]
    assert lengths == sorted(lengths) and [-piece.score for piece in found.evidence] == lengths
    plain = asyncio.run(engine.retriever("dense")[1].retrieve(QUESTION, "dense")).evidence
    order = {piece.id: place for place, piece in enumerate(plain)}
    ties = [order[piece.id] for piece in found.evidence if piece.id in order and len(piece.text) == lengths[0]]
    assert ties == sorted(ties)  # equal scores keep the order of the search


@pytest.mark.parametrize("method", BASELINES)
def test_a_scope_is_kept_to(engine: QueryEngine, method: str) -> None:
    found = asyncio.run(engine.retrieve(QUESTION, method, documents=["d1", "d2", "d3?"]))
    uris = {source.uri for item in found.evidence for source in item.sources}
    assert uris == {f"memory:d{i}" for i in (1, 2, *range(30, 40))}


def test_unknown_modes_name_the_choices(engine: QueryEngine) -> None:
    for method, mode, choices in (("bm25", "dense", "lexical"), ("dense-rerank", "lexical", "dense, hybrid")):
        with pytest.raises(UsageError, match=f"of method {method}; choices: {choices}"):
            asyncio.run(engine.retrieve("Where?", method, mode))
        with pytest.raises(UsageError, match=f"of method {method}; choices: {choices}"):
            asyncio.run(engine.retriever(method)[1].retrieve("Where?", mode))


def test_a_hyphen_is_an_underscore_in_settings() -> None:
    assert attribute("dense-rerank") == "dense_rerank"
    settings = Settings.model_validate({"methods": {"dense_rerank": {"candidates": 40}}})
    own = settings.method("dense-rerank")
    assert isinstance(own, DenseRerankSettings) and own.candidates == 40
    assert set(BASELINES) <= set(method_names())
    with pytest.raises(ValidationError, match="must not exceed candidates"):
        DenseRerankSettings(candidates=5, passages=6)


def test_bm25_embeds_nothing_and_opens_no_vectors(tmp_path: Path) -> None:
    settings = settings_of("bm25")
    models = build_models(settings, meter=Meter(), embedder=NoEmbedder())
    made = asyncio.run(index(DOCUMENTS, settings, models, tmp_path, by_name))
    assert {step.name for step in resolved_plan(settings).steps} == {"chunks", "chunk_bm25"}
    assert {path.name for path in tmp_path.iterdir()} == {"chunk_bm25"}
    found = asyncio.run(QueryEngine(made, settings, models).query(QUESTION))
    assert found.method == "bm25" and found.mode == "lexical" and "hops" in found.answer


def test_the_index_decides_the_method_unless_told(snapshot: MemorySnapshot, models: RunModels) -> None:
    settings = settings_of(*BASELINES)
    assert QueryEngine(snapshot, settings, models).retriever()[0] == "bm25"  # the first of the index
    chosen = settings.model_copy(update={"query": QuerySettings(method="dense")})
    engine = QueryEngine(snapshot, chosen, models)
    assert engine.retriever()[0] == "dense" and engine.retriever("bm25")[0] == "bm25"
    with pytest.raises(UsageError, match="no method 'flexstructrag'; it has: bm25, dense, dense-rerank"):
        engine.retriever("flexstructrag")


def test_methods_share_equal_steps_and_adding_one_changes_no_other() -> None:
    alone = {name: resolved_plan(settings_of(name)) for name in (*BASELINES, "flexstructrag")}
    together = resolved_plan(settings_of("flexstructrag", *BASELINES))
    names = [step.name for step in together.steps]
    assert len(names) == len(set(names))
    assert set(names) == {step.name for plan in alone.values() for step in plan.steps}
    for plan in alone.values():
        assert {name: together.fingerprints[name] for name in plan.fingerprints} == dict(plan.fingerprints)
    shared = {"chunks", "chunk_vectors", "chunk_bm25", "chunk_index"}
    assert set(alone["dense"].fingerprints) == set(alone["dense-rerank"].fingerprints) == shared
    assert shared < set(alone["flexstructrag"].fingerprints)


def test_an_empty_question_needs_no_reranker(models: RunModels, tmp_path: Path, reranker: LengthReranker) -> None:
    settings = settings_of("dense-rerank")
    nothing = asyncio.run(index([Document("a", "a", "")], settings, models, tmp_path, by_name))
    before = len(reranker.seen)
    assert asyncio.run(QueryEngine(nothing, settings, models).retrieve("Where?")).evidence == ()
    assert len(reranker.seen) == before


def test_settings_refuse_what_they_do_not_know() -> None:
    with pytest.raises(ValidationError):
        Bm25Settings.model_validate({"candidates": 3})
