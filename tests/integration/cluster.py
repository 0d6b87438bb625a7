"""A small cluster on hosts of their own: Spark's master and Ray's head, two workers of each, a host that submits, and
one with the S3 server and the model endpoint."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.integration.hosts import Host, hosts, wait_until

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
TOKEN = "a-token-of-this-test-alone-0123456789abcdef"
SECRET = "a-spark-secret-of-this-test"
SECRET_NAME = "TEST_SPARK_SECRET"  # the variable that holds it where drivers run
BUCKET = "corpus"
KEYS = {"AWS_ACCESS_KEY_ID": "testaccess", "AWS_SECRET_ACCESS_KEY": "testsecret12345"}
_RAY = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "token",
    # A silent link is noticed in seconds, not minutes.
    "RAY_grpc_client_keepalive_time_ms": "5000",
    "RAY_grpc_client_keepalive_timeout_ms": "5000",
    "RAY_health_check_initial_delay_ms": "5000",
    "RAY_health_check_period_ms": "2000",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "4",
    "RAY_agent_register_timeout_ms": "120000",
}
_SECURE = " ".join(
    f"-D{key}={value}"
    for key, value in {
        "spark.authenticate": "true",
        "spark.authenticate.secret": SECRET,
        "spark.network.crypto.enabled": "true",
    }.items()
)


@dataclass
class Cluster:
    head: Host
    workers: list[Host]
    client: Host
    services: Host
    folder: Path
    ray_folder: Path  # short: Ray puts sockets below it
    calls: Path = field(init=False)  # one line a call of the model endpoint

    def __post_init__(self) -> None:
        self.calls = self.folder / "calls.log"

    @property
    def spark_master(self) -> str:
        return f"spark://{self.head.address}:7077"

    @property
    def job_server(self) -> str:
        return f"http://{self.head.address}:8265"

    @property
    def model_url(self) -> str:
        return f"http://{self.services.address}:8000/v1"

    @property
    def store(self) -> dict[str, str]:
        """What a host needs to reach the S3 server."""
        return {
            "AWS_ENDPOINT_URL": f"http://{self.services.address}:8333",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            **KEYS,
        }

    def environment(self, **more: str) -> dict[str, str]:
        """Of every program of the cluster. No host takes the machine's own settings, tokens or addresses."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "AWS_", "CORPUSMILL_"))
        }
        path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
        return {**kept, "PATH": path, "PYTHONPATH": str(ROOT), **_RAY, "RAY_AUTH_TOKEN": TOKEN, **more}

    def start_services(self, latency: float) -> None:
        at = self.services.address
        data = self.folder / "weed"
        data.mkdir()
        ports = {"s3": 8333, "master": 9333, "volume": 9340, "filer": 8888, "admin": 23646}
        command = ["weed", "mini", f"-dir={data}", f"-ip={at}", f"-ip.bind={at}", f"-bucket={BUCKET}"]
        command += ["-admin.ui=false", "-webdav=false", "-master.telemetry=false", "-s3.port.iceberg=0"]
        command += ["-s3.port.lance=0", "-s3.autoCreateBucket=false"]
        command += [f"-{name}.port={port}" for name, port in ports.items()]
        self.services.start("s3", command, self.environment(**KEYS))
        model = [sys.executable, "-m", "tests.integration.model_server", at, "8000", str(latency), str(self.calls)]
        self.services.start("model", model, self.environment())
        probe = "import boto3; boto3.client('s3').put_object(Bucket='corpus', Key='ready', Body=b'1')"
        wait_until(lambda: self._tried(self.services, probe), 40, "an S3 server")

    def _tried(self, host: Host, program: str) -> bool:
        return host.run([sys.executable, "-c", program], self.environment(**self.store), 30).returncode == 0

    def start_spark(self) -> None:
        own = self.environment(SPARK_MASTER_OPTS=_SECURE, SPARK_WORKER_OPTS=_SECURE, SPARK_DAEMON_MEMORY="256m")
        at = self.head.address
        master = [*_spark_class("master.Master"), "--host", at, "--port", "7077", "--webui-port", "8080"]
        self.head.start("spark-master", master, {**own, "SPARK_LOCAL_IP": at})
        wait_until(lambda: "Starting Spark master" in _text(self.head.log("spark-master")), 60, "a Spark master")
        for worker in self.workers:
            self.start_spark_worker(worker)
        wait_until(
            lambda: _text(self.head.log("spark-master")).count("Registering worker") >= 2, 60, "two Spark workers"
        )

    def start_spark_worker(self, worker: Host, **more: str) -> None:
        own = self.environment(SPARK_WORKER_OPTS=_SECURE, SPARK_DAEMON_MEMORY="256m", **self.store, **more)
        scratch = self.folder / f"spark{worker.number}"
        command = [*_spark_class("worker.Worker"), "--host", worker.address, "-c", "1", "-m", "2g", "-d", str(scratch)]
        worker.start("spark-worker", [*command, self.spark_master], {**own, "SPARK_LOCAL_IP": worker.address})

    def start_ray(self) -> None:
        head = ["--head", "--port=6379", f"--dashboard-host={self.head.address}", "--dashboard-port=8265"]
        self._start_ray_node(self.head, [*head, "--include-dashboard=true", "--num-cpus=1"])
        for worker in self.workers:
            self.start_ray_worker(worker)
        wait_until(self._answers, 90, "Ray's job server")

    def start_ray_worker(self, worker: Host) -> None:
        self._start_ray_node(worker, [f"--address={self.head.address}:6379", "--num-cpus=2"])

    def _start_ray_node(self, host: Host, arguments: list[str]) -> None:
        """One after the other: nodes that start at once collide in the session folder that they share on one machine."""
        command = [str(BIN / "ray"), "start", *arguments, f"--node-ip-address={host.address}", "--block"]
        command += ["--object-store-memory=100000000", "--disable-usage-stats", f"--temp-dir={self.ray_folder}"]
        cache = str(self.folder / f"cache{host.number}")  # hosts share this machine's disk, but not what they know
        host.start("ray", command, self.environment(XDG_CACHE_HOME=cache, **{SECRET_NAME: SECRET}, **self.store))
        wait_until(lambda: "Ray runtime started" in _text(host.log("ray")), 90, f"a Ray node on {host.name}")

    def _answers(self) -> bool:
        ask = f"import urllib.request as u; u.urlopen(u.Request('{self.job_server}/api/version', headers="
        ask += f"{{'Authorization': 'Bearer {TOKEN}'}}), timeout=5)"
        return self._tried(self.client, ask)

    def corpusmill(self, *arguments: str, timeout: float = 600, **more: str) -> "subprocess.CompletedProcess[str]":
        """A command of corpusmill on the host that submits: it has the token, and no Spark, Ray or keys of its own."""
        return self.client.run([str(BIN / "corpusmill"), *arguments], self.environment(**more), timeout)

    def start_corpusmill(self, name: str, *arguments: str, **more: str) -> "subprocess.Popen[bytes]":
        return self.client.start(name, [str(BIN / "corpusmill"), *arguments], self.environment(**more))

    def model_calls(self) -> list[str]:
        """The digest of each call so far."""
        return self.calls.read_text("ascii").splitlines() if self.calls.exists() else []


@contextmanager
def cluster(folder: Path, latency: float = 0.2) -> Iterator[Cluster]:
    """Everything started; everything stopped at the end."""
    ray = Path(tempfile.mkdtemp(prefix="cm", dir="/tmp"))
    try:
        yield from _started(folder, ray, latency)
    finally:
        shutil.rmtree(ray, ignore_errors=True)


def _started(folder: Path, ray: Path, latency: float) -> Iterator[Cluster]:
    with hosts(5, folder) as (head, one, two, client, services):
        made = Cluster(head, [one, two], client, services, folder, ray)
        made.start_services(latency)
        made.start_spark()
        made.start_ray()
        yield made


def _spark_class(name: str) -> list[str]:
    import pyspark

    return [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]


def _text(path: Path) -> str:
    return path.read_text("utf-8", "replace") if path.exists() else ""
