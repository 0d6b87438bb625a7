"""What a failure inside Spark comes to, in one message: Spark carries a Python worker's traceback as text."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from corpusmill import errors
from corpusmill.errors import CorpusmillError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FULL_DISK = "No space left on device"
_HOST = re.compile(r"\(TID \d+\) \(([^ )]+) executor")
_PLACE = re.compile(rf"{_FULL_DISK}: '([^']+)'")
_ASIDE = ("at ", "Driver stacktrace:", "ExcludeOnFailure behavior", "Caused by:", "...")
_MOST = 500


def cause(error: BaseException, folders: Mapping[str, str] | None = None, full: str | None = None) -> tuple[str, str]:
    """(name of an exception of corpusmill.errors, message). `folders`: where each host has its scratch files; under the
    empty name, where any other has them. `full`: the host of `full_host`."""
    if isinstance(error, CorpusmillError):
        return type(error).__name__, str(error)
    text = str(error)
    own = _own(text)
    if _FULL_DISK in text:
        return _full_disk(text, own, folders or {}, full)
    return own or ("RunFailedError", _foreign(type(error).__name__, text))


def _own(text: str) -> tuple[str, str] | None:
    """The error of ours inside it, if there is one."""
    for line in reversed(text.splitlines()):
        name, _, message = line.strip().partition(": ")
        kind = getattr(errors, name.rsplit(".", 1)[-1], None)
        if message and isinstance(kind, type) and issubclass(kind, CorpusmillError):
            return kind.__name__, message
    return None


def full_host(spark: "SparkSession", error: BaseException) -> str | None:
    """The host on which a task of the session last found no space, if that is the error: where a Python worker raised
    it, its text has no host."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    if _FULL_DISK not in str(error):
        return None
    found: str | None = None
    with suppress(Py4JError):  # the driver's own JVM has gone
        context = spark.sparkContext._jsc.sc()
        context.listenerBus().waitUntilEmpty(10_000)
        store = context.statusStore()
        for stage in _failed_stages(store):
            for task in _each(store.taskList(stage, 0, 100_000)):  # a stage is tried again for lost files alone
                said = task.errorMessage()
                if said.isDefined() and _FULL_DISK in said.get():
                    found = str(task.host())
    return found


def _failed_stages(store: Any) -> Iterator[int]:
    """The stages of jobs with failed tasks, in order."""
    for job in sorted(_each(store.jobsList(None)), key=lambda job: job.jobId()):
        if job.numFailedTasks():
            yield from sorted(_each(job.stageIds()))


def _each(sequence: Any) -> Iterator[Any]:
    """The items of a Scala sequence."""
    return (sequence.apply(place) for place in range(sequence.length()))


def _full_disk(text: str, own: tuple[str, str] | None, folders: Mapping[str, str], full: str | None) -> tuple[str, str]:
    hosts = _HOST.findall(text)
    host = hosts[-1] if hosts else full or "one of Spark's hosts"
    if own is not None:
        return own[0], f"on {host}: {own[1]}"
    places = _PLACE.findall(text)
    where = (
        places[-1]
        if places
        else folders.get(host) or folders.get("") or "the folder of its temporary files (SPARK_LOCAL_DIRS)"
    )
    return "RunFailedError", f"no space is left on {host} in {where}"


def _foreign(kind: str, text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return kind
    starts = [k for k, line in enumerate(lines) if line.strip().startswith("Traceback (most recent call last)")]
    if starts:
        return _raised(lines[starts[-1] + 1 :])[:_MOST]
    first = lines[0].strip()
    if first.startswith("An error occurred while calling") and len(lines) > 1:
        return lines[1].strip().lstrip(": ")[:_MOST]
    return f"{kind}: {first}"[:_MOST]


def _raised(lines: Sequence[str]) -> str:
    """The line after a traceback's frames, which are indented."""
    told = [line for line in lines if not line.strip().startswith(_ASIDE)]
    return next((line for line in told if not line[0].isspace()), told[-1] if told else "no reason was given").strip()
