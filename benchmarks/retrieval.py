"""Recall of gold passages by BM25, by dense vectors, and by FlexStructRAG, on every shared set.

    python benchmarks/retrieval.py [--sets musique_train100 xquad_zh] [--questions 200] [--scratch DIR] [--tune]

All rows share chunks, embedder and passages (title and text of a passage are one document). MuSiQue is built on a
recorded extraction (OpenIE triples of a real model), the other sets on the embedded rules. Rows:

    bm25, dense       the two baselines, by the shipped indices
    fused             0.6 dense + 0.4 BM25, each min-max scaled
    <mode>            the method as shipped: passages ranked by the walk over the structure, words and vectors joining
    paper             hybrid mode, passages ranked as fused, the structure's units beside them
    own, units        no BM25, no dense: a unit (entity, hyperedge, edge, cluster) gives its score in equal parts to the
                      passages that its first 8 sources touch; a passage sums up its parts
    own, walk         no BM25, no dense: the walk from the entities of the best statements and of the question alone

`recall` is the mean share of a question's gold passages in the first 5, `all` the share of questions with all of them
there, `tokens` the context that the generator would read (settings.query.context_tokens at most). --scratch keeps
embeddings between runs: the second one takes minutes. --tune asks whether the walk's parameters, which were chosen on
MuSiQue and part of 2Wiki, do as well on questions that did not choose them (benchmarks/walk.py).
"""

import argparse
import asyncio
import csv
import json
import os
import sqlite3
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import walk
from benchmarks.inprocess import Document, MemorySnapshot, index, spark_corpus
from corpusmill.hashing import hash_text
from corpusmill.methods.common.ranking import passages_of
from corpusmill.methods.flexstructrag.replay import ReplayModel
from corpusmill.methods.flexstructrag.retriever import FlexRetriever
from corpusmill.models.contracts import Embedder, EmbedKind
from corpusmill.models.embedders import build_embedder
from corpusmill.models.embedders.common import knows_script
from corpusmill.models.factory import RunModels, build_models
from corpusmill.models.metered import Meter
from corpusmill.retrieval.context import assemble
from corpusmill.settings import EmbedderSettings, QuerySettings, Settings, SparkSettings

SETS = ("musique_train100", "2wiki101", "xquad_en", "xquad_zh", "xquad_hi")
RECORDED = {"musique_train100": "openie_gpt-3.5-turbo-1106.jsonl"}
TOP = 5
Rank = Callable[[str], Awaitable[tuple[list[int], int]]]  # question -> (rows of passages, tokens of context)


@dataclass(frozen=True)
class DataSet:
    name: str
    documents: list[Document]
    questions: list[tuple[str, str]]
    gold: dict[str, set[str]]


@dataclass(frozen=True)
class Score:
    row: str
    recall: float
    all_gold: float
    tokens: float
    milliseconds: float


class CachedEmbedder:
    """An embedder whose vectors are kept in a file, by its fingerprint, kind and text."""

    def __init__(self, inner: Embedder, path: Path) -> None:
        self._inner = inner
        self._file = sqlite3.connect(path)
        self._file.execute("create table if not exists vectors (key text primary key, vector blob) without rowid")

    @property
    def fingerprint(self) -> str:
        return self._inner.fingerprint

    @property
    def dim(self) -> int:
        return self._inner.dim

    async def embed(self, texts: Sequence[str], kind: EmbedKind) -> np.ndarray:
        keys = [hash_text(f"{self.fingerprint}\n{kind}\n{text}") for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if self._read(key) is None}
        if missing:
            made = await self._inner.embed(list(missing.values()), kind)
            rows = [(key, vector.tobytes()) for key, vector in zip(missing, made, strict=True)]
            self._file.executemany("insert or ignore into vectors values (?, ?)", rows)
            self._file.commit()
        found = [self._read(key) for key in keys]
        out = [np.frombuffer(raw, np.float32) for raw in found if raw is not None]
        return np.stack(out) if out else np.zeros((0, self.dim), np.float32)

    async def aclose(self) -> None:
        await self._inner.aclose()
        self._file.close()

    def _read(self, key: str) -> bytes | None:
        row = self._file.execute("select vector from vectors where key = ?", (key,)).fetchone()
        return None if row is None else row[0]


def shared_root() -> Path:
    default = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
    return Path(os.environ.get("CORPUSMILL_SHARED", default))


def load(name: str, questions: int | None) -> DataSet:
    folder = shared_root() / name
    corpus = [json.loads(line) for line in (folder / "corpus.jsonl").open(encoding="utf-8")]
    asked = [json.loads(line) for line in (folder / "queries.jsonl").open(encoding="utf-8")]
    gold: dict[str, set[str]] = defaultdict(set)
    with (folder / "qrels.tsv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines, delimiter="\t"):
            gold[row["query-id"]].add(row["corpus-id"])
    documents = []
    for passage in corpus:
        title = (passage.get("title") or "").replace("_", " ")
        documents.append(Document(passage["_id"], title, f"{title}\n{passage['text']}".strip()))
    pairs = [(question["_id"], question["text"]) for question in asked if question["_id"] in gold]
    return DataSet(name, documents, pairs[:questions], gold)


def settings_for(embedder: str, **query: object) -> Settings:
    return Settings(
        embedder=EmbedderSettings(backend=embedder),
        query=QuerySettings(**query),
        spark=SparkSettings(master="local[2]", partitions=4),
    )


def models_for(data: DataSet, settings: Settings, scratch: Path) -> RunModels:
    embedder = CachedEmbedder(build_embedder(settings.embedder), scratch / "embeddings.sqlite")
    replay = None
    if data.name in RECORDED:
        folder = shared_root() / data.name
        replay = ReplayModel(folder / RECORDED[data.name], folder / "corpus.jsonl")
    return build_models(settings, meter=Meter(), embedder=embedder, language_model=replay)


async def measure(data: DataSet, row: str, rank: Rank, documents_of: Sequence[set[str]]) -> Score:
    """`documents_of[i]`: ids of the documents that have passage row i."""
    recalls, tokens = [], []
    started = time.perf_counter()
    for question_id, question in data.questions:
        rows, used = await rank(question)
        gold = data.gold[question_id]
        found = set().union(*(documents_of[r] for r in rows[:TOP])) & gold
        recalls.append(len(found) / len(gold))
        tokens.append(used)
    seconds = time.perf_counter() - started
    whole = np.array(recalls)
    return Score(
        row, float(whole.mean()), float((whole == 1).mean()), float(np.mean(tokens)), 1000 * seconds / len(recalls)
    )


class Rows:
    """The ranked passages of each row of the table."""

    def __init__(self, snapshot: MemorySnapshot, settings: Settings, models: RunModels) -> None:
        self.snapshot, self.settings, self.models = snapshot, settings, models
        self.shipped = self._retriever()
        self.paper = self._retriever(passage_ranking="fused")
        self.search = self.shipped.passages
        rows = snapshot.table("documents", ["text_hash", "path"]).to_pylist()
        paths: dict[str, set[str]] = defaultdict(set)
        for row in rows:
            paths[row["text_hash"]].add(row["path"])
        self.documents_of = [paths[h] for h in self.search.table.column("text_hash").to_pylist()]

    def _retriever(self, **changed: object) -> FlexRetriever:
        own = self.settings.method("flexstructrag").model_copy(update=changed)
        every: Any = self.settings.methods
        methods = every.model_copy(update={"flexstructrag": own})
        settings = self.settings.model_copy(update={"methods": methods})
        return FlexRetriever(settings, self.snapshot, self.models)

    async def vector(self, question: str) -> np.ndarray:
        return (await self.models.embedder.embed([question], "query"))[0]

    async def bm25(self, question: str) -> tuple[list[int], int]:
        return [p.row for p in self.search.bm25(question, TOP)], 0

    async def dense(self, question: str) -> tuple[list[int], int]:
        return [p.row for p in self.search.dense(await self.vector(question), TOP)], 0

    async def fused(self, question: str) -> tuple[list[int], int]:
        known = knows_script(question, self.settings.embedder.backend)
        return [p.row for p in self.search.hybrid(question, await self.vector(question) if known else None, TOP)], 0

    def method(self, retriever: FlexRetriever, mode: str) -> Rank:
        async def rank(question: str) -> tuple[list[int], int]:
            evidence = (await retriever.retrieve(question, mode)).evidence
            tokens = assemble(evidence, self.settings.query.context_tokens, self.snapshot).tokens
            return passages_of(evidence, self.search), tokens

        return rank

    def units(self, mode: str) -> Rank:
        async def rank(question: str) -> tuple[list[int], int]:
            found = await self.shipped.find(question, mode)
            evidence = self.shipped.structure(found, mode)
            tokens = assemble(evidence, self.settings.query.context_tokens, self.snapshot).tokens
            return passages_of(evidence, self.search), tokens

        return rank

    async def walk(self, question: str) -> tuple[list[int], int]:
        found = await self.shipped.find(question, "hybrid")
        seeds = [(unit, score) for _, unit, score in found.nearest]
        shares = self.shipped.graph.rank(seeds, found.entities, {})
        return sorted(shares, key=lambda row: (-shares[row], row)), 0

    def all(self) -> dict[str, Rank]:
        return {
            "bm25": self.bm25,
            "dense": self.dense,
            "fused": self.fused,
            "hypergraph": self.method(self.shipped, "hypergraph"),
            "graph": self.method(self.shipped, "graph"),
            "hybrid": self.method(self.shipped, "hybrid"),
            "paper": self.method(self.paper, "hybrid"),
            "own, units": self.units("hybrid"),
            "own, walk": self.walk,
        }


async def run(
    name: str, questions: int | None, embedder: str, scratch: Path, tuned: dict[str, walk.Recalls] | None
) -> dict[str, object]:
    """The figures of one set; `tuned` (None: not wanted) takes its recalls under other parameters of the walk."""
    data = load(name, questions)
    settings = settings_for(embedder)
    models = models_for(data, settings, scratch)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        snapshot = await index(data.documents, settings, models, Path(folder), spark_corpus)
        built = time.perf_counter() - started
        rows = Rows(snapshot, settings, models)
        scores = [await measure(data, row, rank, rows.documents_of) for row, rank in rows.all().items()]
        if tuned is not None:
            tuned[name] = await walk.recalls(rows, data, TOP)
    await models.aclose()
    counts = {
        table: snapshot.tables[table].num_rows for table in ("chunks", "statements", "edges", "clusters", "entities")
    }
    return {
        "set": name,
        "questions": len(data.questions),
        "extraction": "recorded OpenIE" if name in RECORDED else "embedded rules",
        "embedder": embedder,
        "build_seconds": round(built, 1),
        "counts": counts,
        "scores": [score.__dict__ for score in scores],
    }


def show(result: dict[str, object]) -> None:
    counts = ", ".join(f"{n} {name}" for name, n in dict(result["counts"]).items())  # type: ignore[call-overload]
    print(f"\n{result['set']}: {result['questions']} questions; {result['extraction']}, {result['embedder']}; {counts}")
    print(f"  {'':12} recall@{TOP}   all@{TOP}  tokens   ms/question")
    for score in list(result["scores"]):  # type: ignore[call-overload]
        tokens = f"{score['tokens']:7.0f}" if score["tokens"] else "      -"
        print(
            f"  {score['row']:12} {score['recall']:8.3f} {score['all_gold']:7.3f} {tokens} {score['milliseconds']:9.1f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--questions", type=int, default=None)
    parser.add_argument("--embedder", default="minilm", choices=("minilm", "hash"))
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()) / "corpusmill-benchmarks")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    arguments.scratch.mkdir(parents=True, exist_ok=True)
    results = []
    tuned: dict[str, walk.Recalls] | None = {} if arguments.tune else None
    for name in arguments.sets:
        own = run(name, arguments.questions, arguments.embedder, arguments.scratch, tuned)
        results.append(asyncio.run(own))
        if not arguments.json:
            show(results[-1])
            sys.stdout.flush()
    if arguments.json:
        print(json.dumps(results, indent=2))
    elif tuned:
        walk.show(tuned)


if __name__ == "__main__":
    main()
