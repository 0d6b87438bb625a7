"""One Spark stage as a program: `python -m corpusmill_jobs.stage ingest|corpus --index URI --run ID`.

It reads runs/<run>/spec.json and the results of earlier stages from the store and writes its own there.
"""

import argparse
import json
import os
import sys
import threading
import traceback
from typing import TYPE_CHECKING, TextIO

from corpusmill.errors import CorpusmillError
from corpusmill.run import RunSpec
from corpusmill.settings import StoreSettings
from corpusmill.store.objects import ObjectStore, open_store
from corpusmill.store.runs import RunFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="corpusmill_jobs.stage", description=__doc__)
    parser.add_argument("stage", choices=["ingest", "corpus"])
    parser.add_argument("--index", required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--steps", default="")
    parser.add_argument("--packages")
    args = parser.parse_args(arguments)
    out = os.fdopen(os.dup(1), "w", buffering=1)  # our own line; libraries may print what they like to stdout
    os.dup2(2, 1)
    try:
        _run(args, out)
    except CorpusmillError as error:
        traceback.print_exc()
        _say(out, {"error": {"type": type(error).__name__, "message": str(error)}})
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - the boundary of a process: every failure is reported to the driver
        traceback.print_exc()
        reported = _python_cause(error)
        _say(out, {"error": reported})
        return 3
    _say(out, {"done": True})
    return 0


def _run(args: argparse.Namespace, out: TextIO) -> None:
    from spark_jobs.session import spark_session

    raw = os.environ.get("CORPUSMILL_STAGE_STORE")
    store = open_store(args.index, StoreSettings.model_validate_json(raw) if raw else None)
    files = RunFiles(store, args.run)
    spec = files.spec()
    spark = spark_session(spec.settings, f"corpusmill {args.stage} {args.run}", packages=args.packages)
    stop = threading.Event()
    watcher = threading.Thread(target=_watch, args=(spark, out, stop), daemon=True)
    watcher.start()
    try:
        _run_in(spark, args, spec, files, store)
    finally:
        stop.set()
        watcher.join(timeout=5)
        spark.stop()


def _run_in(
    spark: "SparkSession", args: argparse.Namespace, spec: RunSpec, files: RunFiles, store: ObjectStore
) -> None:
    if args.stage == "ingest":
        from spark_jobs.ingest import ingest

        files.put_ingest(ingest(spark, spec))
        return
    from corpusmill.store.commit import load_snapshot
    from spark_jobs.corpus import run_corpus

    parent = load_snapshot(store, spec.parent) if spec.parent is not None else None
    steps = [name for name in args.steps.split(",") if name]
    files.put_draft(run_corpus(spark, spec, files.draft(), steps, parent))


def _watch(spark: "SparkSession", out: TextIO, stop: threading.Event) -> None:
    """Report finished tasks of the stages that Spark knows of, twice a second."""
    tracker = spark.sparkContext.statusTracker()
    seen: dict[int, tuple[int, int]] = {}
    while not stop.wait(0.5):
        for number in tracker.getActiveStageIds():
            info = tracker.getStageInfo(number)
            if info is not None:
                seen[number] = (info.numCompletedTasks, info.numTasks)
        done, total = (sum(pair[i] for pair in seen.values()) for i in (0, 1))
        _say(out, {"progress": {"done": done, "total": total, "unit": "tasks"}})


def _python_cause(error: Exception) -> dict[str, str]:
    """The error of ours inside a Spark failure, if there is one (Spark carries a Python worker's traceback as text)."""
    from corpusmill import errors

    text = str(error)
    for line in reversed(text.splitlines()):
        name, _, message = line.strip().partition(": ")
        kind = getattr(errors, name.rsplit(".", 1)[-1], None)
        if message and isinstance(kind, type) and issubclass(kind, CorpusmillError):
            return {"type": kind.__name__, "message": message}
    first = text.strip().splitlines()[0] if text.strip() else type(error).__name__
    return {"type": "RunFailedError", "message": f"{type(error).__name__}: {first[:500]}"}


def _say(out: TextIO, message: object) -> None:
    out.write(json.dumps(message) + "\n")


if __name__ == "__main__":
    sys.exit(main())
