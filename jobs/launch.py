"""Runs a Spark stage as a program of its own, so that its JVM ends with it, and brings its result or error back.

A stage program prints JSON lines: {"progress": …}, then {"done": true} or {"error": …}. Its log goes to a file.
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
from corpusmill.models.contracts import Usage
from corpusmill.run import Progress, ProgressEvent, RunSpec


def run_stage(
    spec: RunSpec, stage: str, progress: Progress, *, steps: tuple[str, ...] = (), packages: str | None = None
) -> None:
    """Run `python -m corpusmill_jobs.stage <stage>` for this run. Raises the error that the stage raised."""
    command = [sys.executable, "-m", "corpusmill_jobs.stage", stage, "--index", spec.index, "--run", spec.run]
    if steps:
        command += ["--steps", ",".join(steps)]
    if packages:
        command += ["--packages", packages]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **store_environment(spec)}
    with tempfile.NamedTemporaryFile("w+", prefix=f"corpusmill-{stage}-", suffix=".log", delete=False) as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        try:
            error = _follow(process, stage, progress)
        finally:
            _stop(process)
        if error is None and process.returncode != 0:
            error = {
                "type": "RunFailedError",
                "message": f"stage {stage} ended with code {process.returncode}: {_tail(log)}",
            }
    if error is not None:
        raise _as_exception(error, stage, log.name)
    Path(log.name).unlink(missing_ok=True)


def store_environment(spec: RunSpec) -> dict[str, str]:
    """How the stage program finds the store before it has read the specification."""
    return {"CORPUSMILL_STAGE_STORE": spec.settings.store.model_dump_json()}


def _follow(process: "subprocess.Popen[str]", stage: str, progress: Progress) -> dict[str, str] | None:
    assert process.stdout is not None
    error: dict[str, str] | None = None
    for message in _messages(process.stdout):
        if "progress" in message:
            p = message["progress"]
            progress(
                ProgressEvent(
                    stage, p["done"], p.get("total"), p.get("unit", "tasks"), Usage(), message=p.get("message")
                )
            )
        elif "error" in message:
            error = message["error"]
    process.wait()
    return error


def _messages(lines: Iterator[str] | IO[str]) -> Iterator[dict]:
    for line in lines:
        if line.startswith("{"):
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue  # a library's own print: not ours to read


def _stop(process: "subprocess.Popen[str]") -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


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
