"""What one entity that very many documents name costs the Spark merge: time, and memory of the largest task.

    python benchmarks/hubs.py [--documents 20000 100000] [--shapes alike groups same] [--json]

Every document names the same entity; a small store is written up to the census, then the merge runs on a local Spark
with the default settings, as in a run. Shapes of the entity's texts:

    alike     all distinct, all compatible: one component, looked at for a split in one task
    groups    all distinct, in groups of 500 that are alike: many components within one block
    same      one text everywhere

Memory is the resident set of the largest Python worker (a task), of the JVM, and what the driver's Python grew by,
sampled ten times a second. Ends with 1 if a worker passes LIMIT.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.merge import spread
from corpusmill.run import RunSpec
from corpusmill.settings import Settings, SparkSettings
from corpusmill.store.draft import Draft
from corpusmill.store.objects import open_store
from corpusmill.store.view import SnapshotView
from tests.engine.spark_jobs.tiny_index import Document, Entity, tiny_index

SHAPES = ("alike", "groups", "same")
NOISE = 0.7  # cosines of about 0.67 within a group
LIMIT = 1024  # MiB that a worker may take
NAME = "United States"
SETTINGS = Settings(spark=SparkSettings(master="local[2]"))


@dataclass
class Watch:
    """Peaks of resident memory in MiB: the largest Python worker, the JVM, this process."""

    worker: float = 0.0
    jvm: float = 0.0
    driver: float = 0.0
    _stop: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Watch":
        self._before = psutil.Process().memory_info().rss
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        own = psutil.Process()
        while not self._stop.wait(0.1):
            self.driver = max(self.driver, (own.memory_info().rss - self._before) / 2**20)
            for process in own.children(recursive=True):
                try:
                    size, java = process.memory_info().rss / 2**20, process.name() == "java"
                except psutil.Error:
                    continue  # it ended between the two looks
                if java:
                    self.jvm = max(self.jvm, size)
                else:
                    self.worker = max(self.worker, size)


def documents(count: int, shape: str) -> list[Document]:
    groups = max(1, count // 500) if shape == "groups" else 1
    vectors = spread(count, groups, NOISE)
    return [
        Document(f"{k}.txt", f"Text {k}.", (Entity(NAME, "It" if shape == "same" else f"It is {k}.", vectors[k]),))
        for k in range(count)
    ]


def merge(count: int, shape: str, folder: Path) -> dict[str, object]:
    from spark_jobs.corpus import run_corpus
    from spark_jobs.session import spark_session

    spec, draft = _store(count, shape, folder)
    spark = spark_session(SETTINGS, "hubs")
    try:
        draft = run_corpus(spark, spec, draft, [], None)  # the census
        with Watch() as peak:
            begin = time.perf_counter()
            made = run_corpus(spark, spec, draft, ["merge"], None)
            seconds = time.perf_counter() - begin
    finally:
        spark.stop()
    view = SnapshotView(open_store(str(folder)), made)
    rows = {table.name: table.rows for table in made.tables}
    largest = max(view.table("entities").column("documents").to_pylist())
    return {
        "documents": count,
        "shape": shape,
        "seconds": round(seconds, 1),
        "worker_mib": round(peak.worker),
        "jvm_mib": round(peak.jvm),
        "driver_mib": round(peak.driver),
        "entities": rows["entities"],
        "largest": largest,
        "evidence": rows["merge_log"],
    }


def _store(count: int, shape: str, folder: Path) -> tuple[RunSpec, Draft]:
    return tiny_index(folder, documents(count, shape), SETTINGS, per_segment=5000)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, nargs="+", default=(20_000, 100_000))
    parser.add_argument("--shapes", nargs="+", default=SHAPES, choices=SHAPES)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = []
    print(
        "documents  shape     seconds  worker MiB  JVM MiB  driver +MiB  entities  largest  evidence", file=sys.stderr
    )
    for count in args.documents:
        for shape in args.shapes:
            with tempfile.TemporaryDirectory() as scratch:
                rows.append(merge(count, shape, Path(scratch)))
            r = rows[-1]
            print(
                f"{r['documents']:9}  {r['shape']:8} {r['seconds']:8}  {r['worker_mib']:10}  {r['jvm_mib']:7}"
                f"  {r['driver_mib']:11}  {r['entities']:8}  {r['largest']:7}  {r['evidence']:8}",
                file=sys.stderr if args.json else sys.stdout,
                flush=True,
            )
    if args.json:
        print(json.dumps(rows))
    return 1 if any(int(str(row["worker_mib"])) > LIMIT for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
