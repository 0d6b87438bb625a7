"""Retrieval over a small index in memory: modes, calls, scopes, scalings, and questions of any kind."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.inprocess import Document, MemorySnapshot, index
from corpusmill.errors import UsageError
from corpusmill.methods.contextrag.retriever import ContextRetriever
from corpusmill.methods.contextrag.settings import ContextSettings
from corpusmill.methods.contextrag.tables import PROBES, TOPICS
from corpusmill.methods.protocol import Scope
from corpusmill.models.contracts import Generation, Usage
from corpusmill.models.factory import build_models
from corpusmill.models.metered import Meter
from corpusmill.settings import EmbedderSettings, RunSettings, Settings
from corpusmill.steps import CorpusStep

SUBJECTS = {
    "rivers": "river water bridge flood valley boat",
    "music": "song album guitar concert singer record",
    "stars": "star planet orbit telescope galaxy moon",
}
OWN = ContextSettings(levels=(6, 3), points_per_centroid=8, summaries=3, pool=20, candidates=20)
BASE = Settings(embedder=EmbedderSettings(backend="hash"), run=RunSettings(methods=("contextrag",)))
SETTINGS = BASE.model_copy(update={"methods": BASE.methods.model_copy(update={"contextrag": OWN})})
QUESTION = "Which guitar song is on the album?"


def documents() -> list[Document]:
    found = []
    for number in range(90):
        subject = sorted(SUBJECTS)[number % 3]
        words = SUBJECTS[subject].split()
        said = " ".join(words[(number // 3 + i) % 6] for i in range(4))
        found.append(Document(f"{subject}/{number}", f"{subject} {number}", f"The {said} of place {number} is known."))
    return found


def topics(step: CorpusStep, tables: Mapping[str, pa.Table], settings: Settings) -> dict[str, pa.Table]:
    """What the step's SQL does, in Python."""
    text = {row["text_hash"]: row["text"] for row in tables["texts"].to_pylist()}
    chunk = {row["chunk_id"]: row for row in tables["chunks"].to_pylist()}
    clusters: dict[int, list[dict[str, object]]] = {}
    for row in tables["context_memberships"].to_pylist():
        clusters.setdefault(row["codes"][0], []).append(row)
    rows: list[dict[str, object]] = []
    largest = sorted((topic for topic in clusters if len(clusters[topic]) > 1), key=lambda t: (-len(clusters[t]), t))
    for topic in largest[: step.settings.summaries]:
        nearest = sorted(clusters[topic], key=lambda row: (row["distances_e4"][0], row["chunk_id"]))[:24]
        for place, row in enumerate(nearest, 1):
            own = chunk[row["chunk_id"]]
            said = text[own["text_hash"]][own["start"] : own["end"]]
            member = {name: own[name] for name in ("text_hash", "chunk_id", "start", "end")}
            rows.append({"topic": topic, "place": place, "members": len(clusters[topic]), "text": said} | member)
    probes: list[dict[str, object]] = [
        {"chunk_id": key, "text": text[own["text_hash"]][own["start"] : own["end"]]}
        for key, own in sorted(chunk.items())[: step.settings.probes]
    ]
    return {TOPICS.name: TOPICS.table(rows), PROBES.name: PROBES.table(probes)}


class Counting:
    """The rules behind models that count: what a language model would have been asked."""

    def __init__(self, settings: Settings) -> None:
        self._inner = build_models(settings, meter=Meter())
        self.asked: list[str] = []

    def language_model(self, role):
        inner, asked = self._inner.language_model(role), self.asked

        class Model:
            fingerprint = inner.fingerprint

            async def generate(self, task, inputs, *, affinity=None):
                asked.append(task.name)
                return Generation(task.rule(inputs), Usage(calls=1))

        return Model()

    @property
    def embedder(self):
        return self._inner.embedder

    @property
    def reranker(self):
        return self._inner.reranker

    async def cluster(self, call, *args):
        return call(*args)


@pytest.fixture(scope="module")
def models() -> Counting:
    return Counting(SETTINGS)


@pytest.fixture(scope="module")
def snapshot(models: Counting, tmp_path_factory: pytest.TempPathFactory) -> MemorySnapshot:
    made = asyncio.run(index(documents(), SETTINGS, models, tmp_path_factory.mktemp("index"), topics))
    assert models.asked == ["summarise_topic"] * made.tables["context_summaries"].num_rows
    assert 1 <= len(models.asked) <= OWN.summaries
    return made


def retriever(
    snapshot: MemorySnapshot, models: object, settings: Settings = SETTINGS, **own: object
) -> ContextRetriever:
    changed = settings.method("contextrag").model_copy(update=own)
    methods = settings.methods.model_copy(update={"contextrag": changed})
    return ContextRetriever(settings.model_copy(update={"methods": methods}), snapshot, models)


def ask(own: ContextRetriever, question: str = QUESTION, mode: str = "fast", scope: Scope | None = None):
    return asyncio.run(own.retrieve(question, mode, scope))


def paths(snapshot: MemorySnapshot, piece) -> set[str]:
    return {str(row["path"]) for source in piece.sources for row in snapshot.documents_of(source.text_hash)}


def test_passages_of_the_subject_come_first(snapshot, models):
    found = ask(retriever(snapshot, models)).evidence
    passages = [piece for piece in found if piece.kind == "passage"]
    assert len(passages) == OWN.top
    assert all(path.startswith("music/") for piece in passages[:3] for path in paths(snapshot, piece))
    assert [piece.score for piece in found] == sorted((piece.score for piece in found), reverse=True)


def test_units_of_structure_take_no_passages_place_unless_told_to(snapshot, models):
    apart = ask(retriever(snapshot, models, bridge_boost=50.0)).evidence
    plain = ask(retriever(snapshot, models, bridge_boost=0.01, summary_boost=0.01)).evidence
    shared = ask(retriever(snapshot, models, bridge_boost=50.0, slots="shared")).evidence
    passages = [[piece.id for piece in found if piece.kind == "passage"] for found in (apart, plain, shared)]
    assert passages[0] == passages[1] and len(apart) > OWN.top
    assert len(shared) == OWN.top and len(passages[2]) < OWN.top


def test_the_fast_mode_asks_no_model(snapshot, models):
    models.asked.clear()
    assert ask(retriever(snapshot, models)).calls == 0 and models.asked == []


def test_a_question_makes_few_calls_and_says_how_many(snapshot, models):
    models.asked.clear()
    found = ask(retriever(snapshot, models, reformulations="always"), mode="hybrid")
    assert models.asked == ["expand"] and found.calls == 1
    assert found.calls + 1 <= 5  # with that of the answer


def test_rules_do_not_reword_a_question_unless_told_to(snapshot, models):
    models.asked.clear()
    assert ask(retriever(snapshot, models), mode="hybrid").calls == 0 and models.asked == []
    assert ask(retriever(snapshot, models, reformulations="never"), mode="hybrid").calls == 0


def test_structure_alone_has_summaries_and_bridges(snapshot, models):
    kinds = {piece.kind for piece in ask(retriever(snapshot, models), mode="structure").evidence}
    assert kinds & {"summary", "concept"}


def test_boosts_move_summaries_and_bridges(snapshot, models):
    question = snapshot.tables["context_summaries"].column("text")[0].as_py()

    def place(kind: str, **own: object) -> int:
        found = ask(retriever(snapshot, models, top=40, pool=40, **own), question).evidence
        return min((at for at, piece in enumerate(found) if piece.kind == kind), default=99)

    assert place("concept", bridge_boost=50.0) == 0 < place("concept", bridge_boost=0.01)
    assert place("summary", summary_boost=50.0) == 0 < place("summary", summary_boost=0.01)


def test_a_bridge_is_told_by_its_strongest_chunks(snapshot, models):
    found = ask(retriever(snapshot, models, bridge_boost=50.0)).evidence
    concept = next(piece for piece in found if piece.kind == "concept")
    assert 1 <= len(concept.sources) <= 3
    for line, source in zip(concept.text.splitlines(), concept.sources, strict=True):
        assert source.span.of(snapshot.text(source.text_hash)).startswith(line)


@pytest.mark.parametrize("mode", ["hybrid", "fast", "structure"])
def test_a_scope_holds_for_passages_summaries_and_bridges(snapshot, models, mode):
    allowed = frozenset(
        row["text_hash"] for row in snapshot.tables["documents"].to_pylist() if row["path"].startswith("stars/")
    )
    found = ask(retriever(snapshot, models, bridge_boost=3.0), mode=mode, scope=Scope(allowed)).evidence
    assert found
    for piece in found:
        assert piece.sources and all(source.text_hash in allowed for source in piece.sources)
        for line in piece.text.splitlines():
            assert any(line in snapshot.text(text_hash) for text_hash in allowed) or piece.kind == "summary"


def test_a_scope_of_one_document_finds_it(snapshot, models):
    row = snapshot.tables["documents"].to_pylist()[0]
    found = ask(retriever(snapshot, models), scope=Scope(frozenset([row["text_hash"]]))).evidence
    assert {source.text_hash for piece in found for source in piece.sources} == {row["text_hash"]}


def test_the_papers_scaling_leaves_cosines_as_they_are(snapshot, models):
    ours, papers = (retriever(snapshot, models, scaling=form) for form in ("minmax", "paper"))
    vector = asyncio.run(models.embedder.embed([QUESTION], "query"))[0]
    for own, spans_all in ((ours, True), (papers, False)):
        scores = own.scorer._scaled(own.scorer.raw(QUESTION, vector))
        passages = own.scorer.raw(QUESTION, vector).passages
        assert (scores[0].min(), scores[0].max()) == (0.0, 1.0)
        assert bool(np.ptp(scores[1][:passages]) == 1.0) is spans_all


def test_a_script_the_embedder_does_not_know_is_found_by_words(snapshot, models):
    own = retriever(snapshot, models, SETTINGS.model_copy(update={"embedder": EmbedderSettings(backend="minilm")}))
    found = asyncio.run(own._vectors(["北京在哪里？", "Where is Beijing?"]))
    assert found[0] is None and found[1] is not None
    assert own.scorer.rank("guitar", None)


def test_a_very_long_question_and_one_of_no_words(snapshot, models):
    assert ask(retriever(snapshot, models), "guitar song " * 9_000).evidence
    assert isinstance(ask(retriever(snapshot, models), "?!").evidence, tuple)


def test_an_unknown_mode_names_the_choices(snapshot, models):
    with pytest.raises(UsageError, match="hybrid, fast, structure"):
        ask(retriever(snapshot, models), mode="all")


def test_an_index_without_chunks_finds_nothing(models, tmp_path: Path):
    made = asyncio.run(index([Document("a", "A", "")], SETTINGS, models, tmp_path, topics))
    for mode in ("hybrid", "fast", "structure"):
        assert ask(retriever(made, models), mode=mode).evidence == ()


def test_one_document_is_found(models, tmp_path: Path):
    made = asyncio.run(index(documents()[:1], SETTINGS, models, tmp_path, topics))
    assert ask(retriever(made, models), "What is the song of the album?").evidence


def test_answers_come_from_a_reranked_order_where_a_reranker_is_set(snapshot, models):
    class Reversed:
        def calls(self, passages: int) -> int:
            return 1

        async def rerank(self, question, passages):
            return np.arange(len(passages), dtype=np.float32)

    class WithReranker:
        embedder = models.embedder
        reranker = Reversed()
        language_model = models.language_model

    plain = ask(retriever(snapshot, models, rerank=False, slots="shared"), mode="hybrid").evidence
    found = ask(retriever(snapshot, WithReranker(), top=20, slots="shared"), mode="hybrid")
    assert found.calls == 1
    full = ask(retriever(snapshot, models, rerank=False, top=20, slots="shared"), mode="hybrid").evidence
    assert [piece.id for piece in found.evidence] == [piece.id for piece in reversed(full)]
    assert [piece.id for piece in full[: OWN.top]] == [piece.id for piece in plain]
