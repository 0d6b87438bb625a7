"""Looks at every executor before work is given to it: small tasks whose function is pickled by value, so that they run
where our package is missing."""

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from corpusmill import __version__, host_probe
from corpusmill.errors import RunFailedError
from corpusmill.run import RunSpec
from spark_jobs.session import executor_hosts, is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTLE_S = 2.0  # executors of one application come within seconds of one another
_SETTLE_MOST_S = 20.0
_MOST_TASKS = 512
_HOLD_S = 0.3  # a task is held for so long that every core gets one
_GROUP = "corpusmill-probe"


def refuse_unfit_hosts(spark: "SparkSession", spec: RunSpec) -> dict[str, str]:
    """The scratch folder of each host (of a local master, under no name).

    Raises RunFailedError naming the hosts where Python does not start, our package is missing or has another version,
    the index's store does not answer, or the scratch disk is full. Executors that come later are not asked, nor is
    a local master, whose tasks are this process's own.
    """
    if is_local(spark):
        return {"": os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()}
    _settle(spark)
    store = spec.settings.store.model_dump_json()
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    rows, failed = _looks(spark, spec.index, store)
    expected = host_probe.Expected(python, __version__, spec.index, store)
    told = [*host_probe.complaints(rows, expected), *(f"{host}: {reason}" for host, reason in sorted(failed.items()))]
    if told:
        raise RunFailedError(f"{len(told)} of Spark's hosts cannot work on this run: {'; '.join(told)}")
    return {str(row["host"]): str(row["folder"]) for row in rows}


def _settle(spark: "SparkSession") -> None:
    """Wait until no further executor comes."""
    deadline = time.monotonic() + _SETTLE_MOST_S
    known, since = len(executor_hosts(spark)), time.monotonic()
    while time.monotonic() - since < _SETTLE_S and time.monotonic() < deadline:
        time.sleep(0.2)
        if len(executor_hosts(spark)) != known:
            known, since = len(executor_hosts(spark)), time.monotonic()


def _looks(spark: "SparkSession", index: str, store: str) -> tuple[list[dict[str, object]], dict[str, str]]:
    """What each executor's Python says, under the host's name in Spark; and the hosts that could not run it, why."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark import cloudpickle

    context = spark.sparkContext
    tasks = min(max(2, context.defaultParallelism), _MOST_TASKS)
    this = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(host_probe)
    cloudpickle.register_pickle_by_value(this)
    context.setJobGroup(_GROUP, "look at every executor")
    error = None
    try:
        look = partial(_look_here, look=host_probe.look, index=index, store=store, hold=_HOLD_S)
        rows = context.parallelize(range(tasks), tasks).mapPartitionsWithIndex(look).collect()
    except Py4JJavaError as raised:
        rows, error = [], raised
    finally:
        cloudpickle.unregister_pickle_by_value(host_probe)
        cloudpickle.unregister_pickle_by_value(this)
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    hosts, failed = _outcomes(spark)
    if error is not None and not failed:
        raise RunFailedError(f"Spark's executors could not be looked at: {_last_line(str(error))}") from error
    return [{**row, "host": hosts.get(place, row["host"])} for place, row in rows], failed


def _look_here(
    place: int, _: Iterator[int], look: Any, index: str, store: str, hold: float
) -> Iterator[tuple[int, dict[str, object]]]:
    """Runs on an executor, perhaps without our package: uses nothing of this module."""
    import os
    import shutil
    import time

    found = look(index, store)
    for folder in os.environ.get("SPARK_LOCAL_DIRS", "").split(","):
        free = shutil.disk_usage(folder).free if os.path.isdir(folder) else None
        if free is not None and free < found.get("free", free + 1):
            found |= {"folder": folder, "free": free}
    time.sleep(hold)
    yield place, found


def _outcomes(spark: "SparkSession") -> tuple[dict[int, str], dict[str, str]]:
    """The host of each partition of the probe, and the reason of each host on which a task of it failed."""
    context = spark.sparkContext
    store = context._jsc.sc().statusStore()
    context._jsc.sc().listenerBus().waitUntilEmpty(10_000)
    hosts: dict[int, str] = {}
    failed: dict[str, str] = {}
    tracker = context.statusTracker()
    for job in tracker.getJobIdsForGroup(_GROUP):
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info is not None else ():
            found = store.taskList(stage, 0, 100_000)
            for task in (found.apply(k) for k in range(found.length())):
                if task.status() == "SUCCESS":
                    hosts[task.partitionId()] = task.host()
                elif task.errorMessage().isDefined():
                    failed.setdefault(task.host(), reason_of(task.errorMessage().get()))
    return hosts, failed


def reason_of(message: str) -> str:
    """Why a task of the probe failed, in one line, from what Spark says of it."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    for line in lines:
        if "Cannot run program" in line:
            return f"Python does not start there: {line[line.index('Cannot run program') :]}"
        if "PYTHON_VERSION_MISMATCH" in line:
            return line.rpartition("[PYTHON_VERSION_MISMATCH] ")[2]
    return _last_line(message)


def _last_line(text: str) -> str:
    """The cause in a worker's traceback, which ends with it; else the first line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith("at ")]
    if not told:
        return "no reason was given"
    return (told[-1] if any("Traceback" in line for line in told) else told[0])[:300]
