"""How the merge of entities grows with their number, on a standalone Spark cluster of two workers on this machine.

    python benchmarks/merge_scale.py [--members 10000 100000 1000000] [--pair-bound N] [--json FILE]

Members are local entities of documents, ten a document. Their names follow a power law (the k-th name is drawn with
weight 1/k, as words of a language are), so that the largest hub grows with the corpus; every member has a text and a
vector of its own, and a name has one meaning for each 500 of its members. Segments are written as the builders write
them; the census and the merge run as in a run, by an application of its own for each size.

Printed for each size: the parts of the merge by time, bytes shuffled and written between the executors, the largest hub
with the longest task among those that compare its members, peak memory of the driver (its Python and its JVM), of the
largest worker; then the exponent of growth between sizes. With a --pair-bound below the number of pairs, components go
through GraphFrames, where Spark resolves its coordinates.
"""

import argparse
import json
import math
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.hubs import Watch
from corpusmill.hashing import content_id, hash_text
from corpusmill.methods.flexstructrag.tables import LOCAL_ENTITIES
from corpusmill.planning import TEXT_FINGERPRINT, resolved_plan
from corpusmill.run import RunSpec
from corpusmill.schemas import DOCUMENTS, TEXTS
from corpusmill.settings import Settings, SparkSettings
from corpusmill.steps import DocumentStep, TextStep
from corpusmill.store.draft import Draft
from corpusmill.store.layout import data_key
from corpusmill.store.manifest import TableEntry
from corpusmill.store.objects import ObjectStore, open_store
from corpusmill.store.segments import TextArtifact, write_segment
from corpusmill.store.tables import write_table_file
from tests.integration.spark_cluster import SECRET, spark_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZES = (10_000, 100_000, 1_000_000)
PER_DOCUMENT = 10
PER_MEANING = 500
DIM = 384
NOISE = 0.7  # cosines of about 0.67 within a meaning
PER_SEGMENT = 2_000  # texts
SEED = 7
AIM = 1.1


@dataclass(frozen=True)
class Corpus:
    """For each document the places of its names; names are numbered by falling weight."""

    names: np.ndarray  # int64 [documents, PER_DOCUMENT], distinct within a row
    counts: np.ndarray  # int64 [names]: members of each

    @property
    def hub(self) -> int:
        return int(self.counts.max())


def corpus(members: int) -> Corpus:
    rng = np.random.default_rng(SEED)
    documents, vocabulary = members // PER_DOCUMENT, max(100, members // 4)
    weights = 1.0 / np.arange(1, vocabulary + 1)
    edges = np.cumsum(weights / weights.sum())
    names = np.searchsorted(edges, rng.random((documents, PER_DOCUMENT)))
    for _ in range(1000):
        names.sort(axis=1)
        again = np.zeros(names.shape, dtype=bool)
        again[:, 1:] = names[:, 1:] == names[:, :-1]
        if not again.any():
            break
        names[again] = np.searchsorted(edges, rng.random(int(again.sum())))
    return Corpus(names, np.bincount(names.ravel(), minlength=vocabulary))


def write_store(folder: Path, made: Corpus, settings: Settings) -> tuple[RunSpec, Draft]:
    """Documents, and segments of all steps before the merge; other tables than the merge's are empty."""
    store, draft, plan = open_store(str(folder)), Draft(), resolved_plan(settings)
    hashes = [hash_text(f"text {k}") for k in range(len(made.names))]
    _write_documents(store, draft, hashes)
    vectors = plan.spec("entity_vectors")
    for start in range(0, len(hashes), PER_SEGMENT):
        mine = hashes[start : start + PER_SEGMENT]
        tables = dict(_entities(made, start, mine, vectors.schema))
        texts = {h: {TEXTS.name: TEXTS.table([{"text_hash": h, "text": "x"}])} for h in mine}
        segment = write_segment(
            store, TEXTS.name, TEXT_FINGERPRINT, (TEXTS,), [TextArtifact(h, t) for h, t in texts.items()]
        )
        draft.add_segments(TEXTS.name, TEXT_FINGERPRINT, (TEXTS.name,), [segment])
        for step in plan.steps:
            if isinstance(step, TextStep | DocumentStep):
                names = tuple(spec.name for spec in step.outputs)
                made_of = [TextArtifact(h, {n: t for n, t in tables[h].items() if n in names}) for h in mine]
                segment = write_segment(store, step.name, plan.fingerprints[step.name], step.outputs, made_of)
                draft.add_segments(step.name, plan.fingerprints[step.name], names, [segment])
    return RunSpec(run="r", index=str(folder), source=None, source_id="s", settings=settings), draft


def _entities(
    made: Corpus, start: int, hashes: list[str], vector_schema: pa.Schema
) -> Iterator[tuple[str, dict[str, pa.Table]]]:
    """`local_entities` and `entity_vectors` of each text of a segment."""
    names = made.names[start : start + len(hashes)]
    rng = np.random.default_rng((SEED, start))
    flat = names.ravel()
    meanings = rng.integers(1 << 30, size=len(flat)) % np.maximum(1, made.counts[flat] // PER_MEANING)
    vectors = np.stack([_centre(int(n), int(m)) for n, m in zip(flat, meanings, strict=True)])
    vectors += NOISE * rng.normal(size=vectors.shape).astype(np.float32) / np.sqrt(DIM).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = {
        "text_hash": [h for h in hashes for _ in range(PER_DOCUMENT)],
        "local_id": [
            content_id("local_entity", hashes[k // PER_DOCUMENT], f"name {n}") for k, n in enumerate(flat.tolist())
        ],
        "normal": [f"name {n}" for n in flat.tolist()],
        "name": [f"Name {n}" for n in flat.tolist()],
        "degree": [1] * len(flat),
        "text": [f"It is {start * PER_DOCUMENT + k}." for k in range(len(flat))],
        "summarised": [False] * len(flat),
        "aliases": [[]] * len(flat),
    }
    entities = pa.table({f.name: pa.array(rows[f.name], f.type) for f in LOCAL_ENTITIES.schema})
    entities = entities.cast(LOCAL_ENTITIES.schema)
    values = pa.array(vectors.ravel(), pa.float32())
    inputs = pa.array([hash_text(text) for text in rows["text"]], pa.string())
    table = pa.table(
        [
            entities.column("text_hash"),
            entities.column("local_id"),
            inputs,
            pa.FixedSizeListArray.from_arrays(values, DIM).cast(vector_schema.field("vector").type),
        ],
        names=["text_hash", "unit_id", "input_hash", "vector"],
    ).cast(vector_schema)
    for place, text in enumerate(hashes):
        at = place * PER_DOCUMENT
        yield (
            text,
            {"local_entities": entities.slice(at, PER_DOCUMENT), "entity_vectors": table.slice(at, PER_DOCUMENT)},
        )


@lru_cache(maxsize=50_000)
def _centre(name: int, meaning: int) -> np.ndarray:
    centre = np.random.default_rng((SEED, name, meaning)).normal(size=DIM).astype(np.float32)
    found: np.ndarray = centre / np.linalg.norm(centre)
    return found


def _write_documents(store: ObjectStore, draft: Draft, hashes: list[str]) -> None:
    rows: list[dict[str, object]] = [
        {
            "doc_id": content_id("doc", text),
            "source_id": "s",
            "path": f"{k}.txt",
            "uri": f"file:///{k}.txt",
            "version": "1",
            "converter": "c",
            "text_hash": text,
            "chars": 1,
            "metadata": "{}",
            "metadata_hash": "m",
            "labels": [],
            "outcome": "indexed",
            "attempts": 1,
        }
        for k, text in enumerate(hashes)
    ]
    for start in range(0, len(rows), 50_000):
        table = DOCUMENTS.table(rows[start : start + 50_000])
        file, digest = write_table_file(store, data_key("r", "documents"), table, DOCUMENTS.schema)
        known = next((entry for entry in draft.tables if entry.name == DOCUMENTS.name), None)
        files = (*known.files, file) if known is not None else (file,)
        draft.put_table(
            TableEntry(
                name=DOCUMENTS.name,
                step="ingest",
                fingerprint="",
                methods=("flexstructrag",),
                key=DOCUMENTS.key,
                rows=digest.rows + (known.rows if known is not None else 0),
                digest=digest.hex,
                files=files,
            )
        )


class DriverWatch(Watch):
    """Driver: this process and the JVM that it started for its session; the workers' children are the executors."""

    def __init__(self, workers: list[int], cluster: list[int]) -> None:
        super().__init__()
        self._workers = [psutil.Process(pid) for pid in workers]
        mine = [process for process in psutil.Process().children() if process.pid not in cluster]
        self._jvms = [process for process in mine if _name(process) == "java"]
        self.executor = 0.0

    def _watch(self) -> None:
        own = psutil.Process()
        while not self._stop.wait(0.25):
            self.driver = max(self.driver, (own.memory_info().rss - self._before) / 2**20)
            self.jvm = max([self.jvm, *(process.memory_info().rss / 2**20 for process in self._jvms)])
            for name, size in _sizes(self._workers):
                if name == "java":
                    self.executor = max(self.executor, size)
                else:
                    self.worker = max(self.worker, size)


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return ""


def _sizes(of: list[psutil.Process]) -> Iterator[tuple[str, float]]:
    for parent in of:
        for process in parent.children(recursive=True):
            try:
                yield process.name(), process.memory_info().rss / 2**20
            except psutil.Error:
                continue  # it ended between the two looks


@dataclass
class Part:
    seconds: float = 0.0  # of its jobs, one after the other
    shuffled: int = 0  # bytes written for other tasks
    longest: float = 0.0  # seconds of its longest task


def parts(spark: "SparkSession") -> dict[str, Part]:
    """What Spark says of its jobs, by their description."""
    context = spark.sparkContext
    context._jsc.sc().listenerBus().waitUntilEmpty(30_000)
    store = context._jsc.sc().statusStore()
    found: dict[str, Part] = defaultdict(Part)
    jobs = store.jobsList(None)
    for job in (jobs.apply(k) for k in range(jobs.length())):
        name = job.description().get() if job.description().isDefined() else "census"
        part = found[name]
        if job.completionTime().isDefined():
            part.seconds += (job.completionTime().get().getTime() - job.submissionTime().get().getTime()) / 1000
        stages = job.stageIds()
        for at in range(stages.length()):
            _add_stage(store, stages.apply(at), part)
    return found


def _add_stage(store: Any, stage: int, part: Part) -> None:
    from py4j.protocol import Py4JJavaError

    try:
        data = store.lastStageAttempt(stage)
    except Py4JJavaError:
        return  # it was never submitted: its output was there
    part.shuffled += data.shuffleWriteBytes()
    tasks = store.taskList(stage, data.attemptId(), 100_000)
    for task in (tasks.apply(k) for k in range(tasks.length())):
        if task.duration().isDefined():
            part.longest = max(part.longest, task.duration().get() / 1000)


def merge(members: int, pair_bound: int | None, folder: Path, conf: dict[str, str]) -> dict[str, Any]:
    from spark_jobs.corpus import run_corpus
    from spark_jobs.session import spark_session

    made = corpus(members)
    with spark_cluster(folder, memory_mb=2500) as cluster:
        given = {"pair_bound": pair_bound} if pair_bound is not None else {}
        spark_settings = SparkSettings(
            master=cluster.master,
            partitions=max(8, members // 10_000),
            executor_memory="2g",
            conf={"spark.authenticate": "true", "spark.authenticate.secret": SECRET, **_SECURE, **conf},
            **given,
        )
        settings = Settings(spark=spark_settings)
        begin = time.perf_counter()
        spec, draft = write_store(folder / "index", made, settings)
        say(f"{members:,} members in {len(made.names):,} documents written in {time.perf_counter() - begin:.0f} s; ")
        by_graphframes = pair_bound is not None
        spark = spark_session(settings, "merge scale", spark_settings.graphframes if by_graphframes else None)
        try:
            workers = [worker.pid for worker in cluster.workers.values()]
            with DriverWatch(workers, [program.pid for program in cluster.programs]) as peak:
                begin = time.perf_counter()
                draft = run_corpus(spark, spec, draft, [], None)
                census = time.perf_counter() - begin
                say(f"census {census:.0f} s; ")
                draft = run_corpus(spark, spec, draft, ["merge"], None)
                seconds = time.perf_counter() - begin - census
            found = parts(spark)
        finally:
            spark.stop()
    say(f"merge {seconds:.0f} s\n")
    rows = {table.name: table.rows for table in draft.tables}
    compared = found.get("merge: found", Part())
    return {
        "members": members,
        "hub": made.hub,
        "hub_task_s": round(compared.longest, 1),
        "census_s": round(census, 1),
        "merge_s": round(seconds, 1),
        "shuffled_mb": round(sum(part.shuffled for part in found.values()) / 1e6, 1),
        "driver_python_mib": round(peak.driver),
        "driver_jvm_mib": round(peak.jvm),
        "worker_mib": round(peak.worker),
        "executor_jvm_mib": round(peak.executor),
        "entities": rows["entities"],
        "pairs": rows["merge_log"],
        "components": "graphframes" if pair_bound is not None and rows["merge_log"] > pair_bound else "scipy",
        "parts": {
            name: {
                "seconds": round(part.seconds, 1),
                "shuffled_mb": round(part.shuffled / 1e6, 1),
                "longest_task_s": round(part.longest, 1),
            }
            for name, part in sorted(found.items(), key=lambda item: -item[1].seconds)
        },
    }


_SECURE = {"spark.network.crypto.enabled": "true"}


def say(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)


def show(row: dict[str, Any]) -> None:
    head = {name: value for name, value in row.items() if name != "parts"}
    print("  ".join(f"{name} {value}" for name, value in head.items()))
    for name, part in row["parts"].items():
        if part["seconds"] >= 0.02 * row["merge_s"]:
            print(f"  {name:32}" + "  ".join(f"{key} {value:>8}" for key, value in part.items()))
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, nargs="+", default=SIZES)
    parser.add_argument("--pair-bound", type=int, help="more pairs go through GraphFrames")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE", help="of Spark; repeatable")
    parser.add_argument("--json", type=Path, metavar="FILE", help="add the rows to this file, a JSON line each")
    args = parser.parse_args()
    conf = dict(pair.split("=", 1) for pair in args.conf)
    rows: list[dict[str, Any]] = []
    for members in args.members:
        with tempfile.TemporaryDirectory() as scratch:
            rows.append(merge(members, args.pair_bound, Path(scratch), conf))
        show(rows[-1])
        if args.json is not None:
            with args.json.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    worst = 0.0
    for before, after in pairwise(rows):
        exponent = math.log(after["merge_s"] / before["merge_s"]) / math.log(after["members"] / before["members"])
        worst = max(worst, exponent)
        print(f"{before['members']:,} to {after['members']:,} members: time grows with the power {exponent:.2f}")
    return 1 if worst > AIM else 0


if __name__ == "__main__":
    sys.exit(main())
