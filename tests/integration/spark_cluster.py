"""A standalone Spark cluster on this machine for the time of a test: a master, and workers on loopback addresses of
their own, so that each is a host by name. All with small heaps; stopped by their process ids."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

SECRET = "a-secret-of-this-test-alone"
_SECURE = " ".join(
    f"-D{key}={value}"
    for key, value in {
        "spark.authenticate": "true",
        "spark.authenticate.secret": SECRET,
        "spark.network.crypto.enabled": "true",
    }.items()
)
_MASTER = "127.0.0.1"


@dataclass
class SparkCluster:
    """`workers` by the last number of their address, 127.0.0.N. None of the AWS_ variables of this process reaches a
    worker."""

    folder: Path
    port: int
    programs: list["subprocess.Popen[bytes]"] = field(default_factory=list)
    workers: dict[int, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    @property
    def master(self) -> str:
        return f"spark://{_MASTER}:{self.port}"

    def start_worker(self, number: int, memory_mb: int = 900, **environment: str) -> None:
        """A worker of one core."""
        host = f"127.0.0.{number}"
        scratch = self.folder / f"scratch{number}"
        scratch.mkdir(exist_ok=True)
        command = ["worker.Worker", "--host", host, "-c", "1", "-m", f"{memory_mb}m", "--webui-port", "0"]
        command += ["-d", str(scratch)]
        self.workers[number] = self._start(f"worker{number}", [*command, self.master], host, **environment)
        _wait(lambda: f"Registering worker {host}:" in self.log("master"), 60, f"worker {host} at the master")

    def stop_worker(self, number: int) -> None:
        _end(self.workers.pop(number))

    def executors(self, number: int) -> list[psutil.Process]:
        """The JVMs that a worker runs tasks in."""
        try:
            children = psutil.Process(self.workers[number].pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return [child for child in children if _is_executor(child)]

    def kill_executor(self, number: int) -> int:
        """SIGKILL to each; how many there were. The worker starts another."""
        killed = 0
        for process in self.executors(number):
            process.kill()
            killed += 1
        return killed

    def log(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def start_master(self) -> None:
        command = ["master.Master", "--host", _MASTER, "--port", str(self.port), "--webui-port", "0"]
        self._start("master", command, _MASTER)
        _wait(lambda: "I have been elected leader" in self.log("master"), 60, "a Spark master")

    def stop(self) -> None:
        for program in reversed(self.programs):
            _end(program)

    def _start(self, name: str, command: list[str], host: str, **environment: str) -> "subprocess.Popen[bytes]":
        import pyspark

        kept = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "CORPUSMILL_"))}
        own = {
            **kept,
            "SPARK_DAEMON_MEMORY": "160m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "SPARK_MASTER_OPTS": _SECURE,
            "SPARK_WORKER_OPTS": _SECURE,
            "SPARK_LOCAL_IP": host,
            "SPARK_LOCAL_DIRS": str(self.folder / f"{name}-tmp"),
        }
        spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
        with (self.folder / f"{name}.log").open("ab") as log:
            program = subprocess.Popen(
                [str(spark_class), f"org.apache.spark.deploy.{command[0]}", *command[1:]],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**own, **environment},
                start_new_session=True,
                cwd=self.folder,
            )
        self.programs.append(program)
        return program


@contextmanager
def spark_cluster(folder: Path, workers: int = 2, memory_mb: int = 900) -> Iterator[SparkCluster]:
    """A master and its workers, 127.0.0.2 and on; everything is stopped at the end."""
    made = SparkCluster(folder, _free_port())
    try:
        made.start_master()
        for number in range(2, 2 + workers):
            made.start_worker(number, memory_mb)
        yield made
    finally:
        made.stop()


def _is_executor(process: psutil.Process) -> bool:
    try:
        return "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()) and process.name() == "java"
    except psutil.Error:
        return False


def _end(program: "subprocess.Popen[bytes]") -> None:
    """With all that it started: gently, then not."""
    try:
        family = [psutil.Process(program.pid), *psutil.Process(program.pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in family:
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                continue
        _, family = psutil.wait_procs(family, timeout=6)
    program.wait(6)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_MASTER, 0))
        return int(probe.getsockname()[1])


def _wait(true, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {what} within {seconds:.0f} s")
        time.sleep(0.1)
