"""The Spark session of a stage, and what is said when there can be none."""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from corpusmill.errors import RunFailedError, UsageError
from corpusmill.settings import Settings, SparkSettings
from spark_jobs.options import as_properties, master_addresses, session_options, start_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONNECT_S = 5.0
_JAVA = "Spark needs Java 17 or newer"


def spark_session(settings: Settings, app: str, packages: str | None = None) -> "SparkSession":
    """A session for `settings.spark`, with an executor. `packages`: Maven coordinates to resolve.

    Under spark-submit, what it was given stands: master, memory and addresses are not those of the settings.
    Raises UsageError where Java, the master or the right secret is missing, RunFailedError where no executor comes
    within `executor_wait_s`.
    """
    spark = settings.spark
    if _submitted():
        session = _of_spark_submit(spark, app)
    else:
        refuse_no_java()
        refuse_no_master(spark)
        session = _started(settings, app, packages)
    session.sparkContext.setLogLevel("ERROR")
    if not is_local(session):
        try:
            _wait_for_executor(session, spark)
        except BaseException:
            session.stop()
            raise
    return session


def _submitted() -> bool:
    """Whether spark-submit (or an operator through it) has started this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _of_spark_submit(spark: SparkSettings, app: str) -> "SparkSession":
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    with _told(spark):
        SparkContext._ensure_initialized()  # only then does a SparkConf know what spark-submit was given
        given = SparkConf()
        builder = SparkSession.builder
        for key, value in {"spark.app.name": app, **session_options(spark)}.items():
            if not given.contains(key):
                builder = builder.config(key, value)
        return builder.getOrCreate()


def _started(settings: Settings, app: str, packages: str | None) -> "SparkSession":
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    spark = settings.spark
    # By default the workers run the driver's Python, with the packages that it sees.
    if spark.workers_python is not None:
        os.environ["PYSPARK_PYTHON"] = spark.workers_python
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    options = start_options(settings, app, packages)
    with _told(spark, packages):
        with _given_in_a_file(options):
            SparkContext._ensure_initialized()
        builder = SparkSession.builder
        for key, value in options.items():
            builder = builder.config(key, value)
        session: SparkSession = builder.getOrCreate()
    return session


@contextmanager
def _given_in_a_file(options: dict[str, str]) -> Iterator[None]:
    """A JVM that starts in the block takes its options from a file that this user alone can read: every user of the
    host can read a command line."""
    before = os.environ.get("PYSPARK_SUBMIT_ARGS")
    with properties_file(options) as path:
        own = f"--load-spark-defaults --properties-file '{path}'"
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"{own} {before or 'pyspark-shell'}"
        try:
            yield
        finally:
            if before is None:
                del os.environ["PYSPARK_SUBMIT_ARGS"]
            else:
                os.environ["PYSPARK_SUBMIT_ARGS"] = before


@contextmanager
def properties_file(options: dict[str, str]) -> Iterator[Path]:
    """A file for spark-submit's --properties-file, for the length of the block; readable by this user alone."""
    handle, name = tempfile.mkstemp(prefix="corpusmill-spark-", suffix=".properties")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(as_properties(options))
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


@contextmanager
def _told(spark: SparkSettings, packages: str | None = None) -> Iterator[None]:
    """What goes wrong while a session starts, as one message. `packages` were to be resolved for it."""
    from pyspark.errors import PySparkRuntimeError

    try:
        yield
    except PySparkRuntimeError as error:
        if "JAVA_GATEWAY_EXITED" not in str(error):
            raise
        wanted = [*spark.packages, *([packages] if packages else [])]
        perhaps = f" (perhaps a package cannot be resolved: {', '.join(wanted)})" if wanted else ""
        raise RunFailedError(f"{java_program()} ended before Spark had started; its log says why{perhaps}") from error
    except Exception as error:
        if master_addresses(spark.master) and _refused(str(error)):
            raise UsageError(
                f"the Spark master {spark.master} did not register the application: its secret "
                f"(spark.authenticate.secret, here from spark.auth_secret_env) or its version of Spark is not this "
                f"host's, or the master cannot reach {socket.gethostname()}"
            ) from error
        raise


def _refused(text: str) -> bool:
    said = (
        "All masters are unresponsive",
        "stopped SparkContext",
        "SparkContext was shut down",
        "Application has been",
    )
    return any(words in text for words in said) or "NullPointerException" in text


def refuse_no_java() -> None:
    """Raises UsageError where spark-submit would find no Java here."""
    home, program = os.environ.get("JAVA_HOME"), java_program()
    if program is None:
        place = f"JAVA_HOME = {home} has no bin/java" if home else "JAVA_HOME is not set and PATH has no java"
        raise UsageError(f"{_JAVA}, and {socket.gethostname()} has none: {place}")
    wrong = _java_fault(program)
    if wrong is not None:
        raise UsageError(f"{_JAVA}, and {program} on {socket.gethostname()} does not run: {wrong}")


def java_program() -> str | None:
    """The Java that Spark would use: that of JAVA_HOME where it is set, else that of PATH."""
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")


def _java_fault(program: str) -> str | None:
    """Why it does not run, None where it does, or where this host is too busy to tell in time: Spark will."""
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except subprocess.TimeoutExpired:
        return None
    except OSError as error:
        return error.strerror or str(error)
    if done.returncode == 0:
        return None
    return f"it ended with {done.returncode}: {(done.stderr or done.stdout).strip()[:300]}"


def refuse_no_master(spark: SparkSettings) -> None:
    """Raises UsageError where none of the addresses of the master answers. Spark itself would try for a minute."""
    reasons = []
    for host, port in master_addresses(spark.master):
        try:
            socket.create_connection((host, port), timeout=_CONNECT_S).close()
            return
        except OSError as error:
            reasons.append(f"{host}:{port}: {error.strerror or error}")
    if reasons:
        raise UsageError(f"no Spark master answers at {spark.master} ({'; '.join(reasons)})")


def is_local(session: "SparkSession") -> bool:
    """Whether driver and tasks are one process tree on this host."""
    return (session.sparkContext.master or "").startswith("local")


def executor_hosts(session: "SparkSession") -> list[str]:
    """The host of each executor, as Spark names it; the driver is not among them."""
    executors = session.sparkContext._jsc.sc().statusStore().executorList(True)
    found = (executors.apply(k) for k in range(executors.length()))
    return [executor.hostPort().rpartition(":")[0] for executor in found if executor.id() != "driver"]


def _wait_for_executor(session: "SparkSession", spark: SparkSettings) -> None:
    """Spark itself would wait for ever, with a line in its log."""
    if session.sparkContext.getConf().get("spark.dynamicAllocation.enabled") == "true":
        threading.Thread(target=_ask_for_one, args=(session,), name="first job", daemon=True).start()
    deadline = time.monotonic() + spark.executor_wait_s
    while not executor_hosts(session):
        if session.sparkContext._jsc.sc().isStopped():
            raise RunFailedError(
                f"the Spark master {session.sparkContext.master} ended the application before it had an executor: "
                "its workers could not start one (their logs say why)"
            )
        if time.monotonic() > deadline:
            raise RunFailedError(_nothing_granted(session, spark))
        time.sleep(0.2)


def _ask_for_one(session: "SparkSession") -> None:
    """With dynamic allocation no executor comes before there is work."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    with suppress(Py4JError):  # the session was stopped meanwhile; whoever waits says why
        session.range(1).count()


def _nothing_granted(session: "SparkSession", spark: SparkSettings) -> str:
    conf = session.sparkContext.getConf()
    asked = f"{conf.get('spark.executor.memory', '1g')} of memory"
    if cores := conf.get("spark.executor.cores"):
        asked += f" and {cores} cores"
    return (
        f"{session.sparkContext.master} gave no executor within {spark.executor_wait_s:.0f} s (spark.executor_wait_s): "
        f"no worker has {asked} free for it (spark.executor_memory, spark.executor_cores), or its executors fail to "
        "start or to reach this driver (the workers' logs say why)"
    )
