"""How a Spark stage's program is started and heard: by a spark-submit that is a script of this test's."""

import json
import os
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from corpusmill_jobs import launch, spark_submit
from corpusmill_jobs.spark_submit import StageCall, submit_stage

from corpusmill.errors import GraphFramesNeededError, RunFailedError, UsageError
from corpusmill.run import ProgressEvent, RunSpec, silent
from corpusmill.settings import Settings, SparkSettings, StoreSettings
from corpusmill.store.objects import open_store
from corpusmill.store.runs import RunFiles, StageFailure, StageReport

Submit = Callable[[str], None]
SEEN = "seen.json"
# Its command line, options and environment are written down; then what the test wants of it.
PROGRAM = """#!{python}
import json, os, sys, time
words = sys.argv[1:]
options = open(words[words.index("--properties-file") + 1]).read() if "--properties-file" in words else None
mode = os.stat(words[words.index("--properties-file") + 1]).st_mode if options is not None else None
json.dump({{"words": words, "options": options, "mode": mode}}, open({seen!r}, "a"))
report = {report!r}
def say(**more):
    os.makedirs(os.path.dirname(report), exist_ok=True)
    with open(report + ".part", "w") as file:
        json.dump({{"stage": "corpus", "at": str(time.time()), **more}}, file)
    os.replace(report + ".part", report)
{body}
"""


def spec_of(folder: Path, **spark: object) -> RunSpec:
    settings = Settings(spark=SparkSettings(**spark), store=StoreSettings(region="somewhere"))  # type: ignore[arg-type]
    return RunSpec(run="Run_1", index=str(folder / "index"), source=None, source_id="s", settings=settings)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Submit:
    """Makes the script spark-submit and a Java; the stage's report lies where a local index has it."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"17\"' >&2\n")
    submit = tmp_path / "spark" / "bin" / "spark-submit"
    submit.parent.mkdir(parents=True)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    monkeypatch.setattr(spark_submit, "LOOK_S", 0.05)

    def put(body: str) -> None:
        report = tmp_path / "index" / "runs" / "Run_1" / "stages" / "2-corpus.json"
        text = PROGRAM.format(python=sys.executable, seen=str(tmp_path / SEEN), report=str(report), body=body)
        submit.write_text(text)
        for file in (submit, java):
            file.chmod(0o755)

    return put


def seen(folder: Path) -> dict:
    return json.loads((folder / SEEN).read_text())


CALL = StageCall("2-corpus", "corpus", ("merge", "tree"), "g:f:1")


def test_client_mode_follows_its_lines(program: Submit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "hush")
    program(
        'print("a library")\nprint(json.dumps({"progress": {"done": 1, "total": 2, "unit": "x"}}), flush=True)\n'
        'print(json.dumps({"done": True}), flush=True)'
    )
    events: list[ProgressEvent] = []
    spec = spec_of(tmp_path, conf={"spark.authenticate.secret": "hush", "spark.x": "y"})
    submit_stage(spec, CALL, events.append)
    assert [(event.stage, event.done, event.total) for event in events] == [("corpus", 1, 2)]
    told = seen(tmp_path)
    words = " ".join(told["words"])
    assert "corpus --index" in words and "--name 2-corpus" in words and "--steps merge,tree" in words
    assert "hush" not in words and "spark.authenticate.secret=hush" in told["options"]
    assert "spark.submit.deployMode=client" in told["options"] and "spark.jars.packages=g:f:1" in told["options"]
    assert stat.S_IMODE(told["mode"]) == 0o600
    assert not Path(told["words"][told["words"].index("--properties-file") + 1]).exists()


def test_an_error_of_the_stage_is_raised_as_what_it_is(program: Submit, tmp_path: Path) -> None:
    program('print(json.dumps({"error": {"type": "GraphFramesNeededError", "message": "many"}}), flush=True)')
    with pytest.raises(GraphFramesNeededError, match="many"):
        submit_stage(spec_of(tmp_path), CALL, silent)


def test_a_driver_that_dies_is_told_with_code_and_log(program: Submit, tmp_path: Path) -> None:
    program('print("something broke", file=sys.stderr)\nsys.exit(17)')
    with pytest.raises(RunFailedError, match=r"stage corpus ended with code 17.*something broke.*log of stage") as told:
        submit_stage(spec_of(tmp_path), CALL, silent)
    log = Path(str(told.value).rpartition(": ")[2].rstrip(")"))
    assert "something broke" in log.read_text()
    log.unlink()


def test_a_killed_driver(program: Submit, tmp_path: Path) -> None:
    program("os.kill(os.getpid(), 9)")
    with pytest.raises(RunFailedError, match="stage corpus was killed by signal 9"):
        submit_stage(spec_of(tmp_path), CALL, silent)


def test_what_a_dead_driver_left_in_the_store_is_the_error(program: Submit, tmp_path: Path) -> None:
    program('say(error={"type": "SourceError", "message": "no such bucket"})\nsys.exit(2)')
    with pytest.raises(UsageError, match="no such bucket"):
        submit_stage(spec_of(tmp_path), CALL, silent)


def in_cluster(folder: Path, **more: object) -> RunSpec:
    return spec_of(folder, master="yarn", submit="spark-submit", deploy_mode="cluster", **more)


def test_cluster_mode_hears_of_the_store_alone(program: Submit, tmp_path: Path) -> None:
    program(
        'say()\ntime.sleep(0.2)\nsay(progress={"done": 3, "total": 4, "unit": "Spark tasks"})\ntime.sleep(0.3)\n'
        "say(done=True)\ntime.sleep(0.2)"
    )
    events: list[ProgressEvent] = []
    submit_stage(in_cluster(tmp_path, program="local:///opt/stage.py"), CALL, events.append)
    assert [(event.done, event.total) for event in events] == [(3, 4)]
    told = seen(tmp_path)
    assert "local:///opt/stage.py" in told["words"]
    assert "spark.yarn.appMasterEnv.CORPUSMILL_STAGE_STORE" in told["options"] and "somewhere" in told["options"]
    assert "spark.driver.host" not in told["options"]


def test_cluster_mode_whose_submission_ends_before_its_driver(program: Submit, tmp_path: Path) -> None:
    program("if os.fork() == 0:\n    time.sleep(0.6)\n    say(done=True)\nos._exit(0)")
    submit_stage(in_cluster(tmp_path), CALL, silent)


def test_cluster_mode_whose_driver_falls_silent(
    program: Submit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_submit, "SILENT_S", 0.4)
    program("say()")
    with pytest.raises(RunFailedError, match="not been heard of"):
        submit_stage(in_cluster(tmp_path), CALL, silent)


def test_cluster_mode_whose_submission_is_refused(program: Submit, tmp_path: Path) -> None:
    program('print("forbidden: pods", file=sys.stderr)\nsys.exit(1)')
    with pytest.raises(RunFailedError, match=r"ended with code 1.*forbidden: pods"):
        submit_stage(in_cluster(tmp_path), CALL, silent)


def test_who_stops_waiting_ends_the_program(program: Submit, tmp_path: Path) -> None:
    program(
        'open("' + str(tmp_path / "pid") + '", "w").write(str(os.getpid()))\n'
        'print(json.dumps({"progress": {"done": 0, "total": 1, "unit": "x"}}), flush=True)\ntime.sleep(60)'
    )

    def stop(event: ProgressEvent) -> None:
        raise KeyboardInterrupt

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        submit_stage(spec_of(tmp_path), CALL, stop)
    assert time.monotonic() - begin < 20
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_pod_has_a_name_by_which_it_is_ended(program: Submit, tmp_path: Path) -> None:
    program("")
    spec = spec_of(
        tmp_path,
        master="k8s://https://127.0.0.1:1",
        submit="spark-submit",
        deploy_mode="cluster",
        conf={"spark.kubernetes.namespace": "mill"},
    )
    name = spark_submit.submit_options(spec, CALL)["spark.kubernetes.driver.pod.name"]
    assert name == "corpusmill-run-1-2-corpus-driver"
    assert spark_submit.kill_command(spec, CALL)[1:] == [
        "--kill",
        f"mill:{name}",
        "--master",
        spec.settings.spark.master,
    ]


def test_a_host_without_java_or_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UsageError, match=r"needs Java 17.*has no bin/java"):
        submit_stage(spec_of(tmp_path), CALL, silent)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(UsageError, match=f"no spark-submit at {tmp_path}"):
        spark_submit.spark_program()


def test_a_report_is_read_back(tmp_path: Path) -> None:
    files = RunFiles(open_store(str(tmp_path)), "r")
    assert files.stage("1-ingest") is None
    report = StageReport(stage="ingest", at="now", error=StageFailure(type="SourceError", message="m"))
    files.put_stage("1-ingest", report)
    assert files.stage("1-ingest") == report and report.ended


def test_the_log_of_a_failed_stage_is_named() -> None:
    error = launch.as_exception(StageFailure(type="RunFailedError", message="m"), "ingest", "/tmp/log")
    assert str(error) == "m (log of stage ingest: /tmp/log)"
    assert isinstance(launch.as_exception(StageFailure(type="Unknown", message="m"), "ingest", "l"), RunFailedError)
