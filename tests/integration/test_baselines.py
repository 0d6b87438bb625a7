"""The baselines on one index, one after the other: what is shared is kept to the byte, and each answers."""

from pathlib import Path

import pytest

from corpusmill.store.commit import current
from corpusmill.store.manifest import Manifest
from corpusmill.store.objects import open_store
from tests.integration.conftest import APPLE, OTHERS, Ran, corpusmill, write_corpus

pytestmark = pytest.mark.integration

QUESTION = "When did the Golden Gate Bridge in San Francisco open?"


class Index:
    def __init__(self, folder: Path) -> None:
        self.source = write_corpus(folder / "docs", APPLE | OTHERS)
        self.uri = str(folder / "index")
        self._cache = folder / "cache"

    def run(self, *arguments: str) -> Ran:
        return corpusmill(*arguments, cache=self._cache, CORPUSMILL__EMBEDDER__BACKEND="hash")

    def add(self, *methods: str) -> Manifest:
        named = [part for method in methods for part in ("--method", method)]
        ran = self.run("index", str(self.source), "--to", self.uri, "--json", *named)
        assert ran.code == 0 and ran.json["calls"] == 0, ran.err
        found = current(open_store(self.uri))
        assert found is not None
        return found

    def ask(self, *more: str) -> dict:
        return self.run("query", self.uri, QUESTION, "--json", *more).json


def test_methods_are_added_to_an_index_and_share_what_they_can(tmp_path: Path) -> None:
    index = Index(tmp_path)
    first = index.add("bm25")
    assert [method.name for method in first.methods] == ["bm25"]
    assert {file.step for file in first.index_files} == {"chunk_bm25"}
    assert {table.name for table in first.tables} == {"documents", "texts", "chunks"}
    found = index.ask()
    assert (found["method"], found["mode"]) == ("bm25", "lexical") and "1937" in found["answer"]

    second = index.add("dense", "dense-rerank")
    assert {method.name for method in second.methods} == {"bm25", "dense", "dense-rerank"}
    kept = {(f.step, f.name): f.file for f in second.index_files if f.step == "chunk_bm25"}
    assert kept == {(f.step, f.name): f.file for f in first.index_files}
    assert [a for a in second.artifacts if a.step == "chunks"] == [a for a in first.artifacts if a.step == "chunks"]
    assert set(second.table("chunk_vectors").methods) == {"dense", "dense-rerank"}

    for method in ("bm25", "dense", "dense-rerank"):
        found = index.ask("--method", method)
        assert found["method"] == method and {item["kind"] for item in found["evidence"]} == {"passage"}
    reranked = index.ask("--method", "dense-rerank", "--mode", "hybrid")
    assert reranked["evidence"][0]["sources"][0]["uri"].endswith("notes/two/readme.md") and "1937" in reranked["answer"]

    kept_to = index.ask("--method", "bm25", "--document", "fruit/*", "--document", "*one/readme.md")
    uris = {source["uri"] for item in kept_to["evidence"] for source in item["sources"]}
    assert uris and all("/fruit/" in uri or uri.endswith("one/readme.md") for uri in uris)
    refused = index.run("query", index.uri, QUESTION, "--document", "no/such*")
    assert refused.code == 2 and "no document matches 'no/such*'" in refused.err
