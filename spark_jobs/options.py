"""Spark's options for a stage, each beside its reason. Nothing here changes what a run makes."""

import os
import socket
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from corpusmill.errors import ConfigError
from corpusmill.processes import named_variables
from corpusmill.settings import Settings, SparkSettings

AUTH_SECRET = "spark.authenticate.secret"
_SECRETS = r"(?i)secret|password|token|access[._]?key"
_WORKER_MB = 1024
_READER_MB = 256

# Of every session; none is decided when the JVM starts.
_ALWAYS = {
    "spark.sql.adaptive.enabled": "true",
    # Small shuffles become few tasks; reading documents names its number of partitions, which this leaves alone.
    "spark.sql.adaptive.coalescePartitions.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Rows may hold whole texts: few of them travel together.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A converter's process outlives a task: workers that are kept keep it too.
    "spark.python.worker.reuse": "true",
}

_LOCAL = {
    # Nothing outside this machine may connect.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # A stage of seconds to minutes whose work is in Python: the optimising compiler and a parallel collector cost half
    # of a short stage's processor time and are never paid back.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}

_CLUSTER = {
    # A host that falls silent is given up after at most 40 + 10 s, so that a cut link is survived within a minute.
    # A JVM's pause for garbage stays far below that.
    "spark.network.timeout": "40s",
    "spark.network.timeoutInterval": "10s",
    "spark.executor.heartbeatInterval": "5s",
    # A connection to a host that has gone must not wait as long as one that carries data.
    "spark.shuffle.io.connectionCreationTimeout": "10s",
    # An executor that the kernel or a spot market takes counts as its tasks' failure: it must happen often to one task
    # before that task is held to be the cause.
    "spark.task.maxFailures": "8",
    # A host with a full disk or a broken Python fails tasks faster than others finish them, and would draw them all.
    # On a cluster of one executor a task still has two tries.
    "spark.excludeOnFailure.enabled": "true",
    "spark.excludeOnFailure.task.maxTaskAttemptsPerExecutor": "2",
    "spark.excludeOnFailure.task.maxTaskAttemptsPerNode": "4",
    "spark.excludeOnFailure.stage.maxFailedTasksPerExecutor": "4",
    "spark.excludeOnFailure.application.maxFailedTasksPerExecutor": "4",
    "spark.excludeOnFailure.timeout": "10m",
    # A slow host: its tasks may run twice, since what a task writes has a name of its own and counts only when the
    # driver has heard of it. Not for tasks of less than a minute, of which the second run would win nothing.
    "spark.speculation": "true",
    "spark.speculation.multiplier": "3",
    "spark.speculation.quantile": "0.9",
    "spark.speculation.minTaskRuntime": "60s",
    # Of two sides that are joined one partition may hold a hub's rows: it is cut and its other side repeated.
    "spark.sql.adaptive.skewJoin.enabled": "true",
    "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "5",
    "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "128m",
    # Spark's own rule leaves the name AWS_ACCESS_KEY_ID out.
    "spark.redaction.regex": _SECRETS,
}


def session_options(settings: SparkSettings) -> dict[str, str]:
    """What a stage's session needs whoever started its JVM; `conf` of the settings comes last and wins."""
    own = {**_ALWAYS, "spark.sql.shuffle.partitions": str(settings.partitions)}
    return {**own, **({} if settings.is_local else _CLUSTER), **settings.conf}


def start_options(settings: Settings, app: str, packages: str | None = None) -> dict[str, str]:
    """All options of a JVM that is started for a stage, secrets among them: not for a command line.

    `packages`: Maven coordinates, beside those of the settings. Raises ConfigError where a variable that the settings
    name is not set or no way leads to the master.
    """
    spark = settings.spark
    coordinates = [*spark.packages, *([packages] if packages else [])]
    options = {
        "spark.master": spark.master,
        "spark.app.name": app,
        "spark.driver.memory": spark.driver_memory,
        "spark.executor.memory": spark.executor_memory,
        **({"spark.jars.packages": ",".join(coordinates)} if coordinates else {}),
        **({"spark.archives": ",".join(spark.archives)} if spark.archives else {}),
        **({"spark.submit.pyFiles": ",".join(spark.py_files)} if spark.py_files else {}),
        **(_LOCAL if spark.is_local else _cluster_options(spark, settings.convert.memory_mb)),
    }
    return {**options, **session_options(spark)}


def _cluster_options(settings: SparkSettings, converter_mb: int) -> dict[str, str]:
    standalone = settings.master.startswith("spark://")
    variables = named_variables(settings.env)
    options = {f"spark.executorEnv.{name}": value for name, value in variables.items()}
    if settings.executor_cores is not None:
        options["spark.executor.cores"] = str(settings.executor_cores)
    if not standalone:
        options["spark.executor.memoryOverhead"] = settings.executor_overhead or _overhead(settings, converter_mb)
    options |= _count(settings, standalone)
    if settings.auth_secret_env is not None:
        options |= {"spark.authenticate": "true", AUTH_SECRET: _secret(settings.auth_secret_env)}
    if settings.deploy_mode == "client":
        host = settings.driver_host or own_address(settings.master)
        # An address that was given may be one that only others see, such as a service's.
        options |= {"spark.driver.host": host, "spark.driver.bindAddress": host if is_here(host) else "0.0.0.0"}
    return options


def _overhead(settings: SparkSettings, converter_mb: int) -> str:
    """On each core a Python worker runs, which takes up to 1 GiB at the largest hub; while documents are read a small
    one and its converter. The JVM takes some of its own outside the heap."""
    worker = max(_WORKER_MB, _READER_MB + converter_mb)
    return f"{(settings.executor_cores or 1) * worker + 384}m"


def _count(settings: SparkSettings, standalone: bool) -> dict[str, str]:
    if settings.executors is None:
        return {}
    if not standalone:
        return {"spark.executor.instances": str(settings.executors)}
    if settings.executor_cores is None:
        raise ConfigError(
            f"spark.executors = {settings.executors} needs spark.executor_cores: a standalone master gives cores"
        )
    return {"spark.cores.max": str(settings.executors * settings.executor_cores)}


def _secret(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise ConfigError(f"spark.auth_secret_env names {name}, which is not set here")
    return value


def driver_variables(settings: SparkSettings, variables: Mapping[str, str]) -> dict[str, str]:
    """Options that give a driver inside the cluster its environment."""
    prefix = "spark.yarn.appMasterEnv." if settings.master == "yarn" else "spark.kubernetes.driverEnv."
    return {f"{prefix}{name}": value for name, value in variables.items()}


def master_addresses(master: str) -> list[tuple[str, int]]:
    """(host, port) of each master that a URL names; none for local and yarn."""
    if master.startswith("spark://"):
        parts = [urlsplit(f"//{part}") for part in master.removeprefix("spark://").split(",")]
        return [(part.hostname or "", part.port or 7077) for part in parts]
    if master.startswith("k8s://"):
        rest = master.removeprefix("k8s://")
        url = urlsplit(rest if "://" in rest else f"https://{rest}")
        return [(url.hostname or "", url.port or (80 if url.scheme == "http" else 443))]
    return []


def own_address(master: str) -> str:
    """The address of this host from which its first reachable master is reached. No packet is sent.

    Raises ConfigError where the master's name leads nowhere.
    """
    reasons = []
    for host, port in master_addresses(master):
        try:
            kind, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
            with socket.socket(kind, socket.SOCK_DGRAM) as probe:
                probe.connect(address)
                return str(probe.getsockname()[0])
        except OSError as error:
            reasons.append(f"{host}: {error.strerror or error}")
    if not reasons:
        return socket.gethostname()  # yarn: its configuration knows the masters, Spark's default is the host's name
    raise ConfigError(f"no way from here to the Spark master {master} ({'; '.join(reasons)})")


def is_here(host: str) -> bool:
    """Whether a socket of this host can have the address."""
    try:
        kind, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(kind, socket.SOCK_STREAM) as probe:
            probe.bind(address)
    except OSError:
        return False
    return True


def as_properties(options: Mapping[str, str]) -> str:
    """The text of a Java properties file."""
    return "".join(f"{_escaped(key, ' =:')}={_escaped(value, '')}\n" for key, value in sorted(options.items()))


def _escaped(text: str, also: Iterable[str]) -> str:
    out = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    for sign in also:
        out = out.replace(sign, f"\\{sign}")
    return f"\\{out}" if out.startswith((" ", "#", "!")) else out
