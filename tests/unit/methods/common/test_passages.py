"""Index builds by identity, and search over passages within a scope."""

import asyncio

import numpy as np
import pytest

from benchmarks.inprocess import Document, MemorySnapshot, index
from corpusmill.hashing import hash_text
from corpusmill.methods.common.passages import PassageSearch
from corpusmill.methods.protocol import Scope
from corpusmill.models.factory import RunModels, build_models
from corpusmill.models.metered import Meter
from corpusmill.planning import resolved_plan
from corpusmill.settings import EmbedderSettings, RunSettings, Settings
from corpusmill.steps import BuildStep
from tests.unit.by_name import by_name


def test_the_seed_is_part_of_a_vector_index_and_of_nothing_else() -> None:
    plans = [
        resolved_plan(Settings(embedder=EmbedderSettings(backend="hash"), run=RunSettings(seed=seed)))
        for seed in (1, 2, 1)
    ]
    assert plans[0].fingerprints == plans[2].fingerprints
    changed = {name for name, own in plans[0].fingerprints.items() if plans[1].fingerprints[name] != own}
    vector_steps = {s.name for s in plans[0].of_kind(BuildStep) if "vectors.faiss" in getattr(s, "files", ())}
    assert changed == vector_steps and "chunk_index" in changed


SETTINGS = Settings(embedder=EmbedderSettings(backend="hash"))
DOCUMENTS = [Document(f"d{i}", f"Title {i}", f"The farmer of village {i} grows wheat and sells it.") for i in range(40)]


@pytest.fixture(scope="module")
def models() -> RunModels:
    return build_models(SETTINGS, meter=Meter())


@pytest.fixture(scope="module")
def snapshot(models: RunModels, tmp_path_factory: pytest.TempPathFactory) -> MemorySnapshot:
    return asyncio.run(index(DOCUMENTS, SETTINGS, models, tmp_path_factory.mktemp("index"), by_name))


@pytest.mark.parametrize("size", [1, 3, 12, 40])
def test_every_search_keeps_to_the_scope_and_is_filled(snapshot: MemorySnapshot, models: RunModels, size: int) -> None:
    search = PassageSearch(snapshot)
    scope = Scope(frozenset(hash_text(document.text) for document in DOCUMENTS[-size:]))
    question = "Which farmer grows wheat?"
    vector: np.ndarray = asyncio.run(models.embedder.embed([question], "query"))[0]
    for found in (
        search.bm25(question, 10, scope),
        search.dense(vector, 10, scope),
        search.hybrid(question, vector, 10, scope),
    ):
        assert len(found) == min(10, size)
        assert {passage.text_hash for passage in found} <= scope.texts
    inside = search.scores(question, vector, scope=scope)
    assert len(inside) == size and search.scores(question, None, scope=scope).keys() == inside.keys()


def test_a_scope_of_everything_changes_nothing(snapshot: MemorySnapshot, models: RunModels) -> None:
    search = PassageSearch(snapshot)
    scope = Scope(frozenset(hash_text(document.text) for document in DOCUMENTS))
    vector = asyncio.run(models.embedder.embed(["wheat of village 7"], "query"))[0]
    for each in (None, scope):
        search.allowed(each)
    assert search.hybrid("wheat of village 7", vector, 9, scope) == search.hybrid("wheat of village 7", vector, 9)
