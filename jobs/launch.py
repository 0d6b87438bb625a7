"""Runs Spark stages in programs of their own, and brings progress, results and errors back.

A program prints JSON lines: {"progress": …}, then {"done": true} or {"error": …}; one that serves several stages reads
a line for each. The same stands in runs/<run>/stages/, for a program whose output cannot be read. Its log is a file.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from corpusmill import errors
from corpusmill.errors import StoreError
from corpusmill.run import Progress, ProgressEvent, RunSpec
from corpusmill.store.objects import open_store
from corpusmill.store.runs import RunFiles, StageFailure
from corpusmill.temporary import outside_run_folder

from .stage import STORE_VARIABLE


class SparkStages:
    """Runs the Spark stages of one run, by `spark.submit`: `session` (`python -m corpusmill_jobs.stage`) or
    `spark-submit`.

    On a local master one program serves all stages, since a JVM that has run one is three times as fast at the next;
    elsewhere each stage is an application of its own, so that no executor is held while Ray works.
    """

    def __init__(self, spec: RunSpec, progress: Progress) -> None:
        self._spec = spec
        self._progress = progress
        self._process: subprocess.Popen[str] | None = None
        self._log: IO[str] | None = None
        self._packages: str | None = None
        self._count = 0

    def __enter__(self) -> "SparkStages":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def run(self, stage: str, steps: tuple[str, ...] = (), packages: str | None = None) -> None:
        """Run a stage to its end. Raises the error that it raised; RunFailedError where it died without one."""
        self._count += 1
        name = f"{self._count}-{stage}"
        if self._spec.settings.spark.submit == "spark-submit":
            from .spark_submit import StageCall, submit_stage

            submit_stage(self._spec, StageCall(name, stage, steps, packages), self._progress)
            return
        if self._process is None or packages != self._packages:
            self.close()
            self._start(packages)
        assert self._process is not None and self._process.stdin is not None and self._log is not None
        try:
            self._process.stdin.write(json.dumps({"stage": stage, "steps": steps, "name": name}) + "\n")
            self._process.stdin.flush()
            error = self._follow(stage, name)
        except BrokenPipeError:
            error = self._ended(stage, name)
        except BaseException:
            self.close(at_once=True)
            raise
        if error is not None:
            log = self._log.name
            self.close(keep_log=True)
            raise as_exception(error, stage, log)
        if not self._spec.settings.spark.is_local:
            self.close()

    def close(self, *, at_once: bool = False, keep_log: bool = False) -> None:
        """End the program, if one runs; its log goes with it unless it is needed to explain an error."""
        if self._process is not None:
            stop(self._process, at_once)
            self._process = None
        if self._log is not None:
            self._log.close()
            if not keep_log:
                Path(self._log.name).unlink(missing_ok=True)
            self._log = None

    def _start(self, packages: str | None) -> None:
        spec = self._spec
        command = [sys.executable, "-m", "corpusmill_jobs.stage", "--index", spec.index, "--run", spec.run]
        if packages:
            command += ["--packages", packages]
        self._packages = packages
        self._log = new_log()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=stage_environment(spec),
        )

    def _follow(self, stage: str, name: str) -> StageFailure | None:
        """Pass progress on until the stage is done (None) or failed (its error)."""
        assert self._process is not None and self._process.stdout is not None
        end = follow(self._process.stdout, stage, self._progress)
        return self._ended(stage, name) if end is None else end.error

    def _ended(self, stage: str, name: str) -> StageFailure:
        assert self._process is not None and self._log is not None
        return told_or_died(self._spec, name, stage, self._process.wait(), self._log)


class StageEnd:
    """How a stage's program said that the stage ended."""

    def __init__(self, error: StageFailure | None = None) -> None:
        self.error = error


def follow(lines: Iterator[str] | IO[str], stage: str, progress: Progress) -> StageEnd | None:
    """Pass progress on until the stage says how it ended; None where its output ends before it does."""
    for message in _messages(lines):
        if "progress" in message:
            p = message["progress"]
            progress(ProgressEvent(stage, p["done"], p["total"], p["unit"]))
        elif "error" in message:
            return StageEnd(StageFailure(**message["error"]))
        elif "done" in message:
            return StageEnd()
    return None


def told_or_died(spec: RunSpec, name: str, stage: str, code: int, log: IO[str]) -> StageFailure:
    """The error that a program which has gone left in the store; else that it died, with its exit code."""
    try:
        report = RunFiles(open_store(spec.index, spec.settings.store), spec.run).stage(name)
    except StoreError as error:
        return StageFailure(type="RunFailedError", message=f"stage {stage} ended with code {code}, and {error}")
    if report is not None and report.error is not None:
        return report.error
    ended = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    return StageFailure(
        type="RunFailedError", message=f"the program of stage {stage} {ended} before it had a result: {_tail(log)}"
    )


def stage_environment(spec: RunSpec) -> dict[str, str]:
    """The environment of a stage's program on this host."""
    return {**os.environ, "PYTHONUNBUFFERED": "1", **store_environment(spec), **scratch_environment()}


def store_environment(spec: RunSpec) -> dict[str, str]:
    """How the stage program finds the store before it has read the specification."""
    return {STORE_VARIABLE: spec.settings.store.model_dump_json()}


def scratch_environment() -> dict[str, str]:
    """Where Spark and its JVM put temporary files: they do not heed TMPDIR. What the user has set stays."""
    folder = tempfile.gettempdir()
    options = os.environ.get("SPARK_SUBMIT_OPTS", "")
    if "java.io.tmpdir" not in options:
        options = f'{options} -Djava.io.tmpdir="{folder}"'.strip()
    return {"SPARK_LOCAL_DIRS": os.environ.get("SPARK_LOCAL_DIRS", folder), "SPARK_SUBMIT_OPTS": options}


def new_log() -> IO[str]:
    """A file for what a stage's program and its JVM print; it outlives the run if it is needed."""
    return tempfile.NamedTemporaryFile(
        "w+", prefix="corpusmill-spark-", suffix=".log", dir=outside_run_folder(), delete=False
    )


@contextmanager
def kept_on_error(log: IO[str]) -> Iterator[None]:
    """Close a log at the end of the block, and remove it unless an error was raised that it may explain."""
    kept = False
    try:
        yield
    except Exception:
        kept = True
        raise
    finally:
        log.close()
        if not kept:
            Path(log.name).unlink(missing_ok=True)


def _messages(lines: Iterator[str] | IO[str]) -> Iterator[dict]:
    for line in lines:
        if line.startswith("{"):
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue  # a library's own print: not ours to read


def stop(process: "subprocess.Popen[str]", at_once: bool) -> None:
    """Let it end by closing its input; end it if it does not."""
    if process.stdin is not None:
        try:
            process.stdin.close()
        except BrokenPipeError:
            at_once = True  # it has ended, or is about to
    for end, patience in (
        ((process.terminate, 10), (process.kill, None)) if at_once else ((None, 20), (process.kill, None))
    ):
        if end is not None:
            end()
        try:
            process.wait(timeout=patience)
            return
        except subprocess.TimeoutExpired:
            continue


def as_exception(error: StageFailure, stage: str, log: str) -> Exception:
    kind: Callable[[str], Exception] = getattr(errors, error.type, errors.RunFailedError)
    message = error.message
    if kind is errors.RunFailedError:
        message = f"{message} (log of stage {stage}: {log})"
    return kind(message)


def _tail(log: IO[str]) -> str:
    log.flush()
    text = Path(log.name).read_text("utf-8", "replace").strip()
    return text[-400:] if text else "it printed nothing"
