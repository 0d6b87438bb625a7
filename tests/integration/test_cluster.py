"""A run on a cluster of several hosts, submitted from a host outside it, while its parts are killed and cut off."""

import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from corpusmill_jobs.demo import documents, service_model

from tests.integration.cluster import BUCKET, SECRET_NAME, Cluster, cluster
from tests.integration.hosts import Host, wait_until, why_not

REASON = why_not()
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(REASON is not None, reason=REASON or ""),
    pytest.mark.timeout(1200),
]

SOURCE = f"s3://{BUCKET}/docs"
DOCUMENTS = 40
IN_FLIGHT = 8
FLUSH_S = 2.0
LATENCY_S = 0.4
METHODS = ["-m", "flexstructrag", "-m", "contextrag"]
_PUT = """
import boto3, pathlib, sys
client = boto3.client("s3")
for path in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    client.upload_file(str(path), sys.argv[2], "docs/" + path.name)
"""


def settings(made: Cluster) -> list[str]:
    """Those that the cluster's run and the one on a single host have in common."""
    given = {
        "models.default.backend": "openai",
        "models.default.model": "stub",
        "models.default.base_url": made.model_url,
        "models.default.retries": "8",
        "ray.calls_in_flight": str(IN_FLIGHT),
        "cache.flush_s": str(FLUSH_S),
        "spark.partitions": "4",
    }
    return [word for key, value in given.items() for word in ("--set", f"{key}={value}")]


def on_the_cluster(made: Cluster) -> list[str]:
    given = {
        "spark.master": made.spark_master,
        "spark.auth_secret_env": SECRET_NAME,
        "spark.conf": json.dumps({"spark.network.crypto.enabled": "true"}),
        "spark.executor_memory": "700m",
        "ray.builders": "2",
        "ray.embedding_replicas": "2",
    }
    return [word for key, value in given.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    texts = folder / "docs"
    texts.mkdir()
    for name, text in list(documents(service_model()))[:DOCUMENTS]:
        (texts / f"{name}.md").write_text(text, "utf-8")
    with cluster(folder, LATENCY_S) as started:
        put = [sys.executable, "-c", _PUT, str(texts), BUCKET]
        done = started.services.run(put, started.environment(**started.store), 120)
        assert done.returncode == 0, done.stderr
        yield started


@dataclass(frozen=True)
class Reference:
    digest: str
    prompts: Counter[str]


@pytest.fixture(scope="module")
def one_host(made: Cluster) -> Reference:
    """The same corpus indexed on a single host, with engines of its own."""
    before = len(made.model_calls())
    environment = made.environment(XDG_CACHE_HOME=str(made.folder / "cache-one"), **made.store)
    words = ["index", SOURCE, "--to", f"s3://{BUCKET}/one", *METHODS, *settings(made), "--json"]
    done = made.services.run([str(Path(sys.executable).parent / "corpusmill"), *words], environment, 600)
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    prompts = Counter(made.model_calls()[before:])
    assert told["calls"] == prompts.total() == len(prompts)
    return Reference(told["digest"], prompts)


def log(made: Cluster, name: str) -> str:
    return made.client.log(name).read_text("utf-8", "replace")


def submitted(made: Cluster, name: str, *more: str) -> "subprocess.Popen[bytes]":
    words = ["submit", "index", SOURCE, "--to", f"s3://{BUCKET}/{name}", "--ray-address", made.job_server]
    words += ["--run", name, *METHODS, *settings(made), *on_the_cluster(made), *more]
    return made.start_corpusmill(name, *words)


def test_the_digest_is_that_of_one_host_though_workers_die(made: Cluster, one_host: Reference) -> None:
    begun = len(made.model_calls())
    one, two = made.workers
    run = submitted(made, "killed")
    wait_until(
        lambda: executors(one) and executors(two), 240, f"executors on both hosts\n{log(made, 'killed')[-2000:]}"
    )
    time.sleep(2)  # into the reading
    assert kill(two, "CoarseGrainedExecutorBackend")
    wait_until(lambda: len(made.model_calls()) > begun + 20, 240, f"model calls\n{log(made, 'killed')[-2000:]}")
    assert sum(kill(host, "ray::", "BuilderActor") for host in (made.head, one, two))
    after = len(made.model_calls()) + 15
    wait_until(lambda: len(made.model_calls()) > after, 120, "model calls after the loss of a builder")
    assert kill(two, "raylet/raylet")  # with it every actor of that host
    told = time.monotonic()
    after = len(made.model_calls()) + IN_FLIGHT
    wait_until(lambda: len(made.model_calls()) > after, 60, "model calls after the loss of a host")
    resumed = time.monotonic() - told
    assert run.wait(600) == 0, log(made, "killed")[-4000:]
    assert f"digest {one_host.digest}" in log(made, "killed")
    calls = Counter(made.model_calls()[begun:])
    assert set(calls) == set(one_host.prompts)
    # Each loss repeats what was in flight there, and a lost host what it had not yet put in the store.
    lost_host = (FLUSH_S + 1) * IN_FLIGHT / LATENCY_S
    assert calls.total() - len(calls) <= 2 * IN_FLIGHT + lost_host
    print(f"calls {calls.total()} of {len(calls)} prompts; work went on {resumed:.0f} s after the loss of a host")


def executors(host: Host) -> bool:
    return bool(host.processes("CoarseGrainedExecutorBackend"))


def kill(host: Host, *words: str) -> int:
    killed = host.kill(*words)
    print(f"killed {killed} x {' '.join(words)} on {host.name}")
    return killed


def test_a_host_that_is_cut_off_is_survived_within_a_minute(made: Cluster, one_host: Reference) -> None:
    """The link stays cut to the end of the run: nobody is told, so its absence must be noticed."""
    restart_ray(made)
    begun = len(made.model_calls())
    run = submitted(made, "cut", "--set", "cache.enabled=false")  # the hosts know all answers by now
    one = made.workers[0]
    try:
        wait_until(lambda: len(made.model_calls()) > begun + 20, 240, f"model calls\n{log(made, 'cut')[-2000:]}")
        one.cut()
        time.sleep(3)  # what was on its way has arrived
        after = len(made.model_calls()) + 2 * IN_FLIGHT
        wait_until(lambda: len(made.model_calls()) > after, 60, f"calls after the cut\n{log(made, 'cut')[-2000:]}")
        assert run.wait(600) == 0, log(made, "cut")[-4000:]
    finally:
        one.heal()
    assert f"digest {one_host.digest}" in log(made, "cut")


def restart_ray(made: Cluster) -> None:
    """Ray anew on all hosts: one was lost."""
    for host in (made.head, *made.workers):
        host.kill("/ray/")
        host.kill("ray::")
        if "ray" in host.programs:
            host.programs.pop("ray").wait(20)
        host.log("ray").unlink(missing_ok=True)
    shutil.rmtree(made.ray_folder, ignore_errors=True)
    made.ray_folder.mkdir()
    made.start_ray()


def test_spark_here_and_ray_there(made: Cluster, one_host: Reference, tmp_path: Path) -> None:
    """The driver and Spark on the client's host, Ray's stages as jobs of the cluster."""
    given = {
        "ray.address": made.job_server,
        "ray.env": json.dumps(sorted(made.store)),
        "ray.builders": "2",
        "cache.dir": str(tmp_path / "cache"),
    }
    words = [word for key, value in given.items() for word in ("--set", f"{key}={value}")]
    done = made.corpusmill(
        "index", SOURCE, "--to", f"s3://{BUCKET}/apart", *METHODS, *settings(made), *words, "--json", **made.store
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout)["digest"] == one_host.digest


def test_a_submitted_run_is_followed_told_and_stopped(made: Cluster) -> None:
    words = ["submit", "index", SOURCE, "--to", f"s3://{BUCKET}/stopped", "--run", "stopped", "--no-wait", "--json"]
    at = ["--ray-address", made.job_server]
    done = made.corpusmill(*words, *at, "-m", "bm25", *on_the_cluster(made))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["run"] == "stopped"
    told = made.corpusmill("submit", "status", "stopped", *at, "--json")
    assert json.loads(told.stdout)["status"] in ("PENDING", "RUNNING"), told.stderr
    assert made.corpusmill("submit", "stop", "stopped", *at).returncode == 0
    ended = made.corpusmill("submit", "logs", "stopped", *at)
    assert "STOPPED" in ended.stderr
    again = made.corpusmill(*words, *at, "-m", "bm25")
    assert again.returncode == 2 and "stopped" in json.loads(again.stdout)["error"]["message"]
    unknown = made.corpusmill("submit", "status", "nobody", *at)
    assert unknown.returncode == 2 and "stopped" in unknown.stderr


@pytest.mark.parametrize(
    ("address", "token", "said"),
    [
        ("http://10.77.0.10:8266", None, "no Ray job server answers"),
        ("http://10.77.0.10:8265", "another-token-than-the-cluster-has-0000", "refuses the token"),
    ],
)
def test_a_cluster_that_is_not_there_or_does_not_know_us(
    made: Cluster, address: str, token: str | None, said: str
) -> None:
    more = {"RAY_AUTH_TOKEN": token} if token else {}
    done = made.corpusmill("submit", "index", SOURCE, "--to", "s3://x/y", "--ray-address", address, **more)
    assert done.returncode == 2
    assert said in done.stderr and len(done.stderr.splitlines()) <= 3


def test_a_cluster_that_cannot_reach_the_bucket(made: Cluster) -> None:
    words = ["submit", "index", SOURCE, "--to", f"s3://{BUCKET}/none", "--ray-address", made.job_server, "-m", "bm25"]
    done = made.corpusmill(*words, *on_the_cluster(made), "--env", "AWS_SECRET_ACCESS_KEY=wrong", "--json")
    assert done.returncode in (2, 3)
    error = json.loads(done.stdout)["error"]
    assert f"s3://{BUCKET}" in error["message"]
