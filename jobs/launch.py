"""Runs Spark stages in a program of their own, and brings progress, results and errors back.

The program reads one JSON line a stage and prints JSON lines: {"progress": …}, then {"done": true} or {"error": …}.
Its log goes to a file.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from corpusmill import errors
from corpusmill.run import Progress, ProgressEvent, RunSpec
from corpusmill.temporary import outside_run_folder


class SparkStages:
    """Runs the Spark stages of one run: `python -m corpusmill_jobs.stage` for its index and run.

    On a local master one program serves all stages, since a JVM that has run one is three times as fast at the next;
    elsewhere each stage is an application of its own, so that no executor is held while Ray works.
    """

    def __init__(self, spec: RunSpec, progress: Progress) -> None:
        self._spec = spec
        self._progress = progress
        self._process: subprocess.Popen[str] | None = None
        self._log: IO[str] | None = None
        self._packages: str | None = None

    def __enter__(self) -> "SparkStages":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def run(self, stage: str, steps: tuple[str, ...] = (), packages: str | None = None) -> None:
        """Run a stage to its end. Raises the error that it raised."""
        if self._process is None or packages != self._packages:
            self.close()
            self._start(packages)
        assert self._process is not None and self._process.stdin is not None and self._log is not None
        try:
            self._process.stdin.write(json.dumps({"stage": stage, "steps": steps}) + "\n")
            self._process.stdin.flush()
            error = self._follow(stage)
        except BrokenPipeError:
            error = self._ended(stage)
        except BaseException:
            self.close(at_once=True)
            raise
        if error is not None:
            name = self._log.name
            self.close(keep_log=True)
            raise _as_exception(error, stage, name)
        if not self._spec.settings.spark.master.startswith("local"):
            self.close()

    def close(self, *, at_once: bool = False, keep_log: bool = False) -> None:
        """End the program, if one runs; its log goes with it unless it is needed to explain an error."""
        if self._process is not None:
            _stop(self._process, at_once)
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
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", **store_environment(spec), **scratch_environment()}
        self._packages = packages
        self._log = tempfile.NamedTemporaryFile(  # noqa: SIM115 - closed by close()
            "w+", prefix="corpusmill-spark-", suffix=".log", dir=outside_run_folder(), delete=False
        )
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, env=environment
        )

    def _follow(self, stage: str) -> dict[str, str] | None:
        """Pass progress on until the stage is done (None) or failed (its error)."""
        assert self._process is not None and self._process.stdout is not None
        for message in _messages(self._process.stdout):
            if "progress" in message:
                p = message["progress"]
                self._progress(ProgressEvent(stage, p["done"], p["total"], p["unit"]))
            elif "error" in message:
                error: dict[str, str] = message["error"]
                return error
            elif "done" in message:
                return None
        return self._ended(stage)

    def _ended(self, stage: str) -> dict[str, str]:
        assert self._process is not None and self._log is not None
        code = self._process.wait()
        return {"type": "RunFailedError", "message": f"stage {stage} ended with code {code}: {_tail(self._log)}"}


def store_environment(spec: RunSpec) -> dict[str, str]:
    """How the stage program finds the store before it has read the specification."""
    return {"CORPUSMILL_STAGE_STORE": spec.settings.store.model_dump_json()}


def scratch_environment() -> dict[str, str]:
    """Where Spark and its JVM put temporary files: they do not heed TMPDIR. What the user has set stays."""
    folder = tempfile.gettempdir()
    options = os.environ.get("SPARK_SUBMIT_OPTS", "")
    if "java.io.tmpdir" not in options:
        options = f'{options} -Djava.io.tmpdir="{folder}"'.strip()
    return {"SPARK_LOCAL_DIRS": os.environ.get("SPARK_LOCAL_DIRS", folder), "SPARK_SUBMIT_OPTS": options}


def _messages(lines: Iterator[str] | IO[str]) -> Iterator[dict]:
    for line in lines:
        if line.startswith("{"):
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue  # a library's own print: not ours to read


def _stop(process: "subprocess.Popen[str]", at_once: bool) -> None:
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


def _as_exception(error: dict[str, str], stage: str, log: str) -> Exception:
    kind: Callable[[str], Exception] = getattr(errors, error.get("type", ""), errors.RunFailedError)
    message = error.get("message", "no message")
    if kind is errors.RunFailedError:
        message = f"{message} (log of stage {stage}: {log})"
    return kind(message)


def _tail(log: IO[str]) -> str:
    log.flush()
    text = Path(log.name).read_text("utf-8", "replace").strip()
    return text[-400:] if text else "it printed nothing"
