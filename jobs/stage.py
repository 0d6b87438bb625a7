"""Spark stages as a program: `python -m corpusmill_jobs.stage [ingest|corpus] --index URI --run ID`.

With a stage it runs that one (for spark-submit); without, it serves the JSON lines that launch.py writes. A stage
reads runs/<run>/spec.json and the results of earlier stages from the store and writes its own there.
"""

import argparse
import json
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from corpusmill.errors import CorpusmillError
from corpusmill.run import RunSpec
from corpusmill.settings import StoreSettings
from corpusmill.store.objects import ObjectStore, open_store
from corpusmill.store.runs import RunFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.reading import DocumentCounts

SPARK_TASKS = "Spark tasks"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="corpusmill_jobs.stage", description=__doc__)
    parser.add_argument("stage", choices=["ingest", "corpus"], nargs="?")
    parser.add_argument("--index", required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--steps", default="")
    parser.add_argument("--packages")
    args = parser.parse_args(arguments)
    out = os.fdopen(os.dup(1), "w", buffering=1)  # our own line; libraries may print what they like to stdout
    os.dup2(2, 1)
    try:
        _serve(args, out)
    except CorpusmillError as error:
        traceback.print_exc()
        _say(out, {"error": {"type": type(error).__name__, "message": str(error)}})
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - the boundary of a process: every failure is reported to the driver
        traceback.print_exc()
        _say(out, {"error": _python_cause(error)})
        return 3
    return 0


def _serve(args: argparse.Namespace, out: TextIO) -> None:
    from spark_jobs.reading import document_counts
    from spark_jobs.session import spark_session

    raw = os.environ.get("CORPUSMILL_STAGE_STORE")
    store = open_store(args.index, StoreSettings.model_validate_json(raw) if raw else None)
    files = RunFiles(store, args.run)
    spec = files.spec()
    spark = spark_session(spec.settings, f"corpusmill {args.run}", packages=args.packages)
    try:
        for stage, steps in _asked(args):
            stop = threading.Event()
            counts = document_counts(spark) if stage == "ingest" else None
            watcher = threading.Thread(target=_watch, args=(spark, out, stop, counts), daemon=True)
            watcher.start()
            try:
                _run_in(spark, stage, steps, spec, files, store, counts)
            finally:
                stop.set()
                watcher.join(timeout=5)
            _say(out, {"done": True})
    finally:
        spark.stop()


def _asked(args: argparse.Namespace) -> Iterator[tuple[str, list[str]]]:
    if args.stage is not None:
        yield args.stage, [name for name in args.steps.split(",") if name]
        return
    for line in sys.stdin:
        asked = json.loads(line)
        yield asked["stage"], asked["steps"]


def _run_in(
    spark: "SparkSession",
    stage: str,
    steps: list[str],
    spec: RunSpec,
    files: RunFiles,
    store: ObjectStore,
    counts: "DocumentCounts | None",
) -> None:
    if stage == "ingest":
        from spark_jobs.ingest import ingest

        files.put_ingest(ingest(spark, spec, counts=counts))
        return
    from corpusmill.store.commit import load_snapshot
    from spark_jobs.corpus import run_corpus

    parent = load_snapshot(store, spec.parent) if spec.parent is not None else None
    files.put_draft(run_corpus(spark, spec, files.draft(), steps, parent))


def _watch(spark: "SparkSession", out: TextIO, stop: threading.Event, counts: "DocumentCounts | None") -> None:
    """Report twice a second: documents read, where they are counted and their number is known, else finished tasks of
    the stages that Spark knows of."""
    tracker = spark.sparkContext.statusTracker()
    seen: dict[int, tuple[int, int]] = {}  # of this stage alone: nothing is active when it begins
    while not stop.wait(0.5):
        for number in tracker.getActiveStageIds():
            info = tracker.getStageInfo(number)
            if info is not None:
                seen[number] = (info.numCompletedTasks, info.numTasks)
        if counts is not None and (listed := counts.listed.value):
            _say(out, {"progress": {"done": min(counts.read.value, listed), "total": listed, "unit": "documents"}})
            continue
        done, total = (sum(pair[i] for pair in seen.values()) for i in (0, 1))
        if total:
            _say(out, {"progress": {"done": done, "total": total, "unit": SPARK_TASKS}})


def _python_cause(error: Exception) -> dict[str, str]:
    """The error of ours inside a Spark failure, if there is one (Spark carries a Python worker's traceback as text)."""
    from corpusmill import errors

    text = str(error)
    for line in reversed(text.splitlines()):
        name, _, message = line.strip().partition(": ")
        kind = getattr(errors, name.rsplit(".", 1)[-1], None)
        if message and isinstance(kind, type) and issubclass(kind, CorpusmillError):
            return {"type": kind.__name__, "message": message}
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines:
        return {"type": "RunFailedError", "message": type(error).__name__}
    in_worker = any(line.startswith("Traceback (most recent call last)") for line in lines)
    said = lines[-1] if in_worker else f"{type(error).__name__}: {lines[0]}"  # a worker's traceback ends with its cause
    return {"type": "RunFailedError", "message": said[:500]}


def _say(out: TextIO, message: object) -> None:
    out.write(json.dumps(message) + "\n")


if __name__ == "__main__":
    sys.exit(main())
