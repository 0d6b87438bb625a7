"""What rerankers bring: recall of gold passages in the first 5, before and after the best 25 are put in another order.

    python benchmarks/rerank.py [--sets musique_train100 xquad_en] [--questions 200] [--config FILE] [--json]

Rows, each over the candidates of two searches (`dense`: cosine; `hybrid`: cosine and BM25 mixed as shipped, words alone
in a script that the embedder does not know):

    as searched       no reranker
    words             the share of the question's words that a passage holds, alone
    embedded          the shipped default: words, late interaction and cosine, and kinship with the best passage
    mean              the same without kinship
    late interaction  MaxSim of MiniLM's token vectors, alone
    configured        the reranker of --config's section `rerank` (a cross-encoder, an endpoint, a language model)

`best` is what a perfect order of the 25 would give. `gain` is the mean difference to the candidates as searched, with
the 95 % interval of a paired bootstrap over questions (10,000 samples, seeded). `ms` is the wait for one
question and `CPU ms` what all threads spend on it, nothing of it kept from earlier ones; with --keep the embedded
reranker keeps passages that it has encoded (64 MB of them), as a service that answers many questions does.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.inprocess import MemorySnapshot, index
from benchmarks.retrieval import CachedEmbedder, DataSet, load
from corpusmill.methods.common.passages import Passage, PassageSearch
from corpusmill.models.contracts import Reranker
from corpusmill.models.embedders import build_embedder
from corpusmill.models.embedders.common import knows_script
from corpusmill.models.factory import RunModels, build_models
from corpusmill.models.metered import Meter
from corpusmill.models.rerank.embedded import EmbeddedReranker
from corpusmill.models.rerank.lexical import coverage
from corpusmill.retrieval.tasks import shorten
from corpusmill.settings import RunSettings, Settings
from corpusmill.settings_sources import load_settings

SETS = ("musique_train100", "2wiki101", "xquad_en", "xquad_zh")
TOP = 5
CANDIDATES = 25
SAMPLES = 10_000
TIMED = ("words", "embedded", "configured")
Score = Callable[[str, Sequence[str]], Awaitable[np.ndarray]]


@dataclass(frozen=True)
class Row:
    candidates: str
    row: str
    recall: float
    gain: float
    low: float
    high: float
    milliseconds: float | None
    cpu_milliseconds: float | None


class Rows:
    """The scores of each row. The embedded rows share one encoding of a question's passages, which `embedded`, the
    first of them, makes anew and is timed with."""

    def __init__(self, configured: Reranker | None, keep: bool) -> None:
        self._keep = keep
        self._configured = configured
        self._embedded = EmbeddedReranker()

    def all(self) -> dict[str, Score]:
        rows: dict[str, Score] = {
            "as searched": self.as_searched,
            "words": self.words,
            "embedded": self._embedded.rerank,
            "mean": self.mean,
            "late interaction": self.late,
        }
        return rows if self._configured is None else {**rows, "configured": self._configured.rerank}

    async def as_searched(self, question: str, passages: Sequence[str]) -> np.ndarray:
        return -np.arange(len(passages), dtype=np.float32)

    async def words(self, question: str, passages: Sequence[str]) -> np.ndarray:
        return coverage(question, passages)

    async def mean(self, question: str, passages: Sequence[str]) -> np.ndarray:
        return (await self._embedded.parts(question, passages)).mean()

    async def late(self, question: str, passages: Sequence[str]) -> np.ndarray:
        parts = await self._embedded.parts(question, passages)
        return parts.words if parts.late is None else parts.late

    def forget(self) -> None:
        """Encoded passages are not kept from one question to the next, unless asked for."""
        if not self._keep:
            self._embedded.forget()


async def searched(
    data: DataSet, search: PassageSearch, models: RunModels, backend: str
) -> dict[str, list[list[Passage]]]:
    """The candidates of each question, by search."""
    found: dict[str, list[list[Passage]]] = {"dense": [], "hybrid": []}
    for _, question in data.questions:
        short = shorten(question)
        vector = (await models.embedder.embed([short], "query"))[0]
        known = vector if knows_script(short, backend) else None
        found["dense"].append(search.dense(vector, CANDIDATES))
        found["hybrid"].append(search.hybrid(short, known, CANDIDATES))
    return found


def bootstrap(differences: np.ndarray) -> tuple[float, float]:
    """The 95 % interval of the mean, by resampling."""
    random = np.random.default_rng(0)
    picks = random.integers(0, len(differences), (SAMPLES, len(differences)))
    low, high = np.quantile(differences[picks].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


async def measure(data: DataSet, snapshot: MemorySnapshot, models: RunModels, backend: str, rows: Rows) -> list[Row]:
    paths: dict[str, set[str]] = defaultdict(set)
    for row in snapshot.table("documents", ["text_hash", "path"]).to_pylist():
        paths[row["text_hash"]].add(row["path"])

    def recall(found: Sequence[Passage], gold: set[str]) -> float:
        return len({path for passage in found for path in paths[passage.text_hash]} & gold) / len(gold)

    out: list[Row] = []
    for candidates, lists in (await searched(data, PassageSearch(snapshot), models, backend)).items():
        recalls: dict[str, list[float]] = defaultdict(list)
        seconds: dict[str, float] = defaultdict(float)
        cpu: dict[str, float] = defaultdict(float)
        for (question_id, question), found in zip(data.questions, lists, strict=True):
            texts = [passage.span.of(snapshot.text(passage.text_hash)) for passage in found]
            rows.forget()
            for name, score in rows.all().items():
                started, used = time.perf_counter(), time.process_time()
                scores = await score(shorten(question), texts)
                seconds[name] += time.perf_counter() - started
                cpu[name] += time.process_time() - used
                best = [found[place] for place in np.argsort(-scores, kind="stable")[:TOP]]
                recalls[name].append(recall(best, data.gold[question_id]))
            recalls["best"].append(recall(found, data.gold[question_id]))
        base = np.array(recalls["as searched"])
        for name, values in recalls.items():
            own = np.array(values)
            low, high = bootstrap(own - base)
            timed = [1000 * spent[name] / len(own) if name in TIMED else None for spent in (seconds, cpu)]
            out.append(Row(candidates, name, float(own.mean()), float((own - base).mean()), low, high, *timed))
    return out


async def run(
    name: str, questions: int | None, configured: Settings | None, scratch: Path, keep: bool
) -> dict[str, object]:
    data = load(name, questions)
    settings = Settings(run=RunSettings(methods=("dense",)))
    embedder = CachedEmbedder(build_embedder(settings.embedder), scratch / "embeddings.sqlite")
    models = build_models(settings, meter=Meter(), embedder=embedder)
    other = build_models(configured, meter=Meter()) if configured is not None else None
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        snapshot = await index(data.documents, settings, models, Path(folder), no_corpus_step)
        rows = Rows(None if other is None else other.reranker, keep)
        for score in rows.all().values():  # models are loaded before anything is timed
            await score("warm up", ["a passage", "another"])
        measured = await measure(data, snapshot, models, settings.embedder.backend, rows)
    await models.aclose()
    await embedder.aclose()
    if other is not None:
        await other.aclose()
    return {"set": name, "questions": len(data.questions), "rows": [asdict(row) for row in measured]}


def no_corpus_step(step: object, tables: object, settings: object) -> dict[str, object]:  # type: ignore[misc]
    raise AssertionError("the method dense has no corpus step")


def show(result: Mapping[str, object]) -> None:
    print(f"\n{result['set']}: {result['questions']} questions, the best {CANDIDATES} reranked")
    print(f"  {'':26} recall@{TOP}   gain   95 % interval        ms    CPU ms")
    for row in list(result["rows"]):  # type: ignore[call-overload]
        interval = f"[{row['low']:+.3f}, {row['high']:+.3f}]" if row["row"] not in ("as searched", "best") else ""
        timed = row["milliseconds"] is not None
        milliseconds = f"{row['milliseconds']:9.1f} {row['cpu_milliseconds']:9.1f}" if timed else ""
        label = f"{row['candidates']}, {row['row']}"
        print(f"  {label:26} {row['recall']:8.3f} {row['gain']:+7.3f} {interval:>17} {milliseconds}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", default=SETS, choices=(*SETS, "xquad_hi"))
    parser.add_argument("--questions", type=int, default=None)
    parser.add_argument("--config", default=None, help="a configuration whose section `rerank` is measured too")
    parser.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()) / "corpusmill-benchmarks")
    parser.add_argument("--keep", action="store_true", help="keep encoded passages between questions")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    arguments.scratch.mkdir(parents=True, exist_ok=True)
    configured = load_settings(arguments.config).settings if arguments.config else None
    results = []
    for name in arguments.sets:
        results.append(asyncio.run(run(name, arguments.questions, configured, arguments.scratch, arguments.keep)))
        if not arguments.json:
            show(results[-1])
    if arguments.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
