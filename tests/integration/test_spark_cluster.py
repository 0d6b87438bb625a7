"""A run whose Spark stages are applications of a standalone cluster: its digest is that of a local master, also where
executors are killed; what is wrong with the cluster is told in one message."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from corpusmill_jobs.launch import SparkStages

from corpusmill.run import ProgressEvent, RunSpec
from corpusmill.settings import Settings, SparkSettings
from corpusmill.store.objects import open_store
from corpusmill.store.runs import RunFiles
from tests.integration.conftest import Indexed, command_environment, corpusmill
from tests.integration.s3_server import S3Server
from tests.integration.spark_cluster import SECRET, SparkCluster, spark_cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

NAMES = ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION", "AWS_EC2_METADATA_DISABLED")
# What a worker's Python runs at its start: one of the ways in which a host can be unfit.
SPOILS = """
import os, sys

spoil = os.environ.get("SPOIL")
if spoil == "version":
    import corpusmill
    corpusmill.__version__ = "0.0.9"
elif spoil == "package":
    class Hidden:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] == "corpusmill":
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    sys.meta_path.insert(0, Hidden())
elif spoil == "store":
    os.environ["AWS_SECRET_ACCESS_KEY"] = "another"
elif spoil == "disk":
    import shutil
    from collections import namedtuple
    shutil.disk_usage = lambda path: namedtuple("usage", "total used free")(1 << 30, 1 << 30, 3 << 20)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    with spark_cluster(tmp_path_factory.mktemp("spark")) as started:
        yield started


def settings(made: SparkCluster, s3: S3Server, **more: str) -> dict[str, str]:
    """As variables: on the cluster, with the S3 server's keys handed on to executors."""
    own = {
        "CORPUSMILL__SPARK__MASTER": made.master,
        "CORPUSMILL__SPARK__EXECUTOR_MEMORY": "600m",
        "CORPUSMILL__SPARK__AUTH_SECRET_ENV": "A_SECRET_OF_SPARK",
        "CORPUSMILL__SPARK__ENV": json.dumps(NAMES),
        "CORPUSMILL__SPARK__CONF": json.dumps({"spark.network.crypto.enabled": "true"}),
        "A_SECRET_OF_SPARK": SECRET,
    }
    return {**own, **s3.environment, **more}


def started(arguments: list[str], cache: Path, given: Mapping[str, str], log: Path) -> "subprocess.Popen[str]":
    with log.open("w") as errors:
        return subprocess.Popen(
            [str(Path(sys.executable).parent / "corpusmill"), *arguments],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=command_environment(cache, **given),
        )


def wait_until(true: Callable[[], object], seconds: float, what: Callable[[], str]) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            pytest.fail(f"not within {seconds:.0f} s: {what()}")
        time.sleep(0.1)


def test_the_digest_is_that_of_a_local_master_though_executors_are_killed(
    made: SparkCluster, indexed: Indexed, s3: S3Server, tmp_path: Path
) -> None:
    """One is killed while documents are read, one during the merge. Nothing of Spark's stays in the store, and no
    secret on a command line."""
    index = f"s3://{s3.bucket}/killed"
    log = tmp_path / "log"
    words = ["index", str(indexed.source), "--to", index, "--json", "--run", "killed"]
    files = RunFiles(open_store(index), "killed")
    run = started(words, tmp_path / "cache", settings(made, s3), log)
    try:
        for stage in ("1-ingest", "2-corpus"):
            wait_until(lambda stage=stage: files.stage(stage), 240, lambda: log.read_text()[-2000:])
            wait_until(lambda: made.executors(2) and made.executors(3), 90, lambda: made.log("worker2")[-2000:])
            time.sleep(4)  # into the work, past the look at every executor
            assert SECRET not in everything_that_runs()
            report = files.stage(stage)
            assert made.kill_executor(2) == 1
            assert report is not None and not report.ended, f"{stage} was over before an executor was killed"
        out, _ = run.communicate(timeout=200)
    finally:
        run.kill()
    assert run.returncode == 0, log.read_text()[-3000:]
    assert json.loads(out)["digest"] == indexed.result["digest"]
    left = [info.key for info in open_store(index).list("runs/killed/frames/")]
    assert left == []


def everything_that_runs() -> str:
    lines = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                lines.append((place / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
            except OSError:
                continue  # it has ended
    mine = [line for line in lines if "spark.deploy.master" not in line and "spark.deploy.worker" not in line]
    return "\n".join(mine)


def test_a_stage_by_spark_submit(
    made: SparkCluster, corpus: Path, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it hands on is what the stage in this process hands on with a local master."""
    for name, value in {**s3.environment, "A_SECRET_OF_SPARK": SECRET}.items():
        monkeypatch.setenv(name, value)
    spark = SparkSettings(
        master=made.master,
        submit="spark-submit",
        executor_memory="600m",
        partitions=4,
        auth_secret_env="A_SECRET_OF_SPARK",
        env=NAMES,
        conf={"spark.network.crypto.enabled": "true"},
    )
    found = []
    for place, own in (("apart", spark), ("here", SparkSettings(partitions=4, driver_memory="600m"))):
        spec = RunSpec(
            run="one",
            index=f"s3://{s3.bucket}/{place}",
            source=corpus.as_uri(),
            source_id="s",
            settings=Settings(spark=own),
        )
        files = RunFiles(open_store(spec.index), "one")
        files.put_spec(spec)
        events: list[ProgressEvent] = []
        with SparkStages(spec, events.append) as stages:
            stages.run("ingest")
        report = files.stage("1-ingest")
        assert report is not None and report.done
        assert events[-1].unit == "documents"
        found.append(files.ingest())
    apart, here = found
    assert apart.counts == here.counts and apart.counts.new == 11
    assert [(table.name, table.rows, table.digest) for table in apart.draft.tables] == [
        (table.name, table.rows, table.digest) for table in here.draft.tables
    ]


@pytest.fixture
def unfit(made: SparkCluster, tmp_path: Path) -> Iterator[dict[int, str]]:
    """Workers that cannot work on a run, one of each kind, beside the two that can."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SPOILS)
    kinds = {4: "version", 5: "package", 6: "store", 7: "disk"}
    for number, kind in kinds.items():
        made.start_worker(number, SPOIL=kind, PYTHONPATH=str(folder))
    yield kinds
    for number in kinds:
        made.stop_worker(number)


def test_every_unfit_host_is_named_in_one_message(
    made: SparkCluster, unfit: dict[int, str], corpus: Path, s3: S3Server, tmp_path: Path
) -> None:
    index = f"s3://{s3.bucket}/unfit"
    ran = corpusmill("index", str(corpus), "--to", index, "--json", cache=tmp_path / "cache", **settings(made, s3))
    assert ran.code == 3, ran.err
    message = ran.json["error"]["message"]
    parts = {part.split(": ")[0].split(" ")[-1]: part for part in message.replace("run: ", "run; ").split("; ")}
    assert "4 of Spark's hosts" in message
    assert "corpusmill 0.0.9" in parts["127.0.0.4"]
    assert "No module named 'corpusmill'" in parts["127.0.0.5"]
    assert "s3://" in parts["127.0.0.6"]
    assert "3 MiB are free" in parts["127.0.0.7"]
    assert "127.0.0.2" not in message and "127.0.0.3" not in message
    assert not list(open_store(index).list("snapshots/"))


def test_a_master_that_refuses_or_is_not_there(made: SparkCluster, corpus: Path, s3: S3Server, tmp_path: Path) -> None:
    """Also: more memory than any worker has, no Java. The slow ones at once."""
    words = ["index", str(corpus), "--json"]
    given = settings(made, s3)
    cases = {
        "secret": ({"A_SECRET_OF_SPARK": "another"}, 2, "did not register the application"),
        "memory": (
            {"CORPUSMILL__SPARK__EXECUTOR_MEMORY": "5g", "CORPUSMILL__SPARK__EXECUTOR_WAIT_S": "8"},
            3,
            "gave no executor within 8 s",
        ),
        "absent": ({"CORPUSMILL__SPARK__MASTER": "spark://127.0.0.1:9"}, 2, "no Spark master answers"),
        "unset": ({"CORPUSMILL__SPARK__AUTH_SECRET_ENV": "NOT_SET"}, 2, "NOT_SET"),
        "java": ({"JAVA_HOME": str(tmp_path)}, 2, "needs Java 17"),
    }
    runs = {
        name: started(
            [*words, "--to", f"s3://{s3.bucket}/{name}"],
            tmp_path / f"cache-{name}",
            {**given, **more},
            tmp_path / f"{name}.log",
        )
        for name, (more, _, _) in cases.items()
    }
    try:
        for name, run in runs.items():
            out, _ = run.communicate(timeout=150)
            _, code, said = cases[name]
            errors = (tmp_path / f"{name}.log").read_text()
            assert run.returncode == code, f"{name}: {errors}"
            assert said in json.loads(out)["error"]["message"], name
            assert SECRET not in errors and len(errors.splitlines()) < 12, name
    finally:
        for run in runs.values():
            run.kill()
