"""Spark stages as a program: `stage.py [ingest|corpus] --index URI --run ID`, by spark-submit or by itself.

With a stage it runs that one; without, it serves the JSON lines that launch.py writes. A stage reads
runs/<run>/spec.json and the results of earlier stages from the store and writes its own there; how it stands and ended
is told on stdout and in runs/<run>/stages/<name>.json.
"""

import argparse
import json
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TextIO

from corpusmill.errors import CorpusmillError, StoreError, UsageError
from corpusmill.run import RunSpec
from corpusmill.settings import StoreSettings
from corpusmill.store.objects import ObjectStore, open_store
from corpusmill.store.runs import RunFiles, StageFailure, StageProgress, StageReport, now

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.reading import DocumentCounts

SPARK_TASKS = "Spark tasks"
STORE_VARIABLE = "CORPUSMILL_STAGE_STORE"  # StoreSettings as JSON: how the store is found before the run is known
LOOK_S = 0.5
REPORT_S = 5.0  # between two looks that the store is told of


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="corpusmill_jobs.stage", description=__doc__)
    parser.add_argument("stage", choices=["ingest", "corpus"], nargs="?")
    parser.add_argument("--index", required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--steps", default="", help="corpus steps, joined by commas")
    parser.add_argument("--name", help="of the file that tells how the stage stands (default: the stage)")
    parser.add_argument("--packages")
    args = parser.parse_args(arguments)
    out = os.fdopen(os.dup(1), "w", buffering=1)  # our own line; libraries may print what they like to stdout
    os.dup2(2, 1)
    told = _Told(out)
    try:
        _serve(args, told)
    except CorpusmillError as error:
        traceback.print_exc()
        told.failed(StageFailure(type=type(error).__name__, message=str(error)))
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - the boundary of a process: every failure is reported to the driver
        traceback.print_exc()
        told.failed(_failure(error, told))
        return 3
    return 0


def _failure(error: Exception, told: "_Told") -> StageFailure:
    from spark_jobs.failures import cause

    kind, message = cause(error, told.folders, told.full)
    return StageFailure(type=kind, message=message)


@dataclass(frozen=True)
class _Asked:
    stage: str
    steps: list[str]
    name: str


@dataclass
class _Told:
    """Says how the stage at hand stands, to who started this program and to the store."""

    out: TextIO
    files: RunFiles | None = None
    asked: _Asked | None = None
    folders: dict[str, str] = field(default_factory=dict)  # host -> where its scratch files lie
    full: str | None = None  # the host whose disk was full
    lock: threading.Lock = field(default_factory=threading.Lock)  # the end must be the last that is written

    def begun(self, asked: _Asked) -> None:
        self.asked = asked
        self._put()

    def progress(self, progress: StageProgress, *, store: bool) -> None:
        _say(self.out, {"progress": progress.model_dump()})
        if store:
            with suppress(StoreError):  # the next look says it again; the end is what counts
                self._put(progress=progress)

    def done(self) -> None:
        self._put(done=True)
        _say(self.out, {"done": True})

    def failed(self, error: StageFailure) -> None:
        try:
            self._put(error=error)
        except StoreError:
            traceback.print_exc()  # stdout and the exit code tell it too
        _say(self.out, {"error": error.model_dump()})

    def _put(
        self, *, done: bool = False, error: StageFailure | None = None, progress: StageProgress | None = None
    ) -> None:
        with self.lock:
            if self.files is None or self.asked is None:
                return
            report = StageReport(stage=self.asked.stage, at=now(), done=done, error=error, progress=progress)
            self.files.put_stage(self.asked.name, report)
            if report.ended:
                self.asked = None


def _serve(args: argparse.Namespace, told: _Told) -> None:
    from spark_jobs.failures import full_host

    raw = os.environ.get(STORE_VARIABLE)
    store = open_store(args.index, StoreSettings.model_validate_json(raw) if raw else None)
    told.files = files = RunFiles(store, args.run)
    session: SparkSession | None = None
    try:
        for asked in _asked(args):
            spec = _spec(files, args)
            told.begun(asked)
            session = session or _session(spec, args, told)
            _watched(session, asked, spec, files, store, told)
            told.done()
    except Exception as error:
        if session is not None:
            told.full = full_host(session, error)
        raise
    finally:
        if session is not None:
            session.stop()


def _spec(files: RunFiles, args: argparse.Namespace) -> RunSpec:
    try:
        return files.spec()
    except FileNotFoundError as error:
        raise UsageError(f"{args.index} has no run {args.run!r}: its runs/{args.run}/spec.json is not there") from error


def _session(spec: RunSpec, args: argparse.Namespace, told: _Told) -> "SparkSession":
    from spark_jobs.probe import refuse_unfit_hosts
    from spark_jobs.session import spark_session

    session = spark_session(spec.settings, f"corpusmill {args.run}", packages=args.packages)
    try:
        told.folders |= refuse_unfit_hosts(session, spec)
    except BaseException:
        session.stop()
        raise
    return session


def _asked(args: argparse.Namespace) -> Iterator[_Asked]:
    if args.stage is not None:
        steps = [name for name in args.steps.split(",") if name]
        yield _Asked(args.stage, steps, args.name or args.stage)
        return
    for line in sys.stdin:
        yield _Asked(**json.loads(line))


def _watched(
    spark: "SparkSession", asked: _Asked, spec: RunSpec, files: RunFiles, store: ObjectStore, told: _Told
) -> None:
    from spark_jobs.reading import document_counts

    stop = threading.Event()
    counts = document_counts(spark) if asked.stage == "ingest" else None
    watcher = threading.Thread(target=_watch, args=(spark, told, stop, counts), daemon=True)
    watcher.start()
    try:
        _run_in(spark, asked, spec, files, store, counts)
    finally:
        stop.set()
        watcher.join(timeout=5)


def _run_in(
    spark: "SparkSession",
    asked: _Asked,
    spec: RunSpec,
    files: RunFiles,
    store: ObjectStore,
    counts: "DocumentCounts | None",
) -> None:
    if asked.stage == "ingest":
        from spark_jobs.ingest import ingest

        files.put_ingest(ingest(spark, spec, counts=counts))
        return
    from corpusmill.store.commit import load_snapshot
    from spark_jobs.corpus import run_corpus

    parent = load_snapshot(store, spec.parent) if spec.parent is not None else None
    files.put_draft(run_corpus(spark, spec, files.draft(), asked.steps, parent))


def _watch(spark: "SparkSession", told: _Told, stop: threading.Event, counts: "DocumentCounts | None") -> None:
    """Report twice a second: documents read, where they are counted and their number is known, else finished tasks of
    the stages that Spark knows of."""
    tracker = spark.sparkContext.statusTracker()
    seen: dict[int, tuple[int, int]] = {}  # of this stage alone: nothing is active when it begins
    looks = 0
    while not stop.wait(LOOK_S):
        looks += 1
        for number in tracker.getActiveStageIds():
            info = tracker.getStageInfo(number)
            if info is not None:
                seen[number] = (info.numCompletedTasks, info.numTasks)
        progress = _progress(seen, counts)
        if progress is not None:
            told.progress(progress, store=looks % round(REPORT_S / LOOK_S) == 0)


def _progress(seen: dict[int, tuple[int, int]], counts: "DocumentCounts | None") -> StageProgress | None:
    if counts is not None and (listed := counts.listed.value):
        return StageProgress(done=min(counts.read.value, listed), total=listed, unit="documents")
    done, total = (sum(pair[i] for pair in seen.values()) for i in (0, 1))
    return StageProgress(done=done, total=total, unit=SPARK_TASKS) if total else None


def _say(out: TextIO, message: object) -> None:
    out.write(json.dumps(message) + "\n")


if __name__ == "__main__":
    sys.exit(main())
