"""`corpusmill submit` without a cluster: what travels with a job, what its log tells, and which ends are tried again."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from corpusmill_jobs import cli, ray_jobs
from corpusmill_jobs.commands.submit import (
    _Request,
    environment,
    last_result,
    resources,
    run_to_end,
    settings_of_job,
)
from corpusmill_jobs.ray_jobs import Job, JobEnd, JobServer, UnknownJob
from corpusmill_jobs.results import MARK, SETTINGS, result_of
from corpusmill_jobs.submitted import main
from ray.job_submission import JobDetails, JobStatus, JobType
from rich.console import Console
from typer.testing import CliRunner

from corpusmill.errors import RunFailedError, UsageError
from corpusmill.settings_sources import load_settings

RESULT = {"snapshot": 3, "digest": "d" * 32}


class Server:
    """A job server whose jobs end as written, one after the other."""

    address = "http://head:8265"

    def __init__(self, *ends: tuple[list[str], JobEnd]) -> None:
        self.ends = list(ends)
        self.submitted: list[Job] = []

    def submit(self, job: Job) -> None:
        self.submitted.append(job)

    def follow(self, job: str, line: Callable[[str], None]) -> JobEnd:
        lines, end = self.ends.pop(0)
        for text in lines:
            line(text)
        return end


def lost(message: str = "The driver's node died", exit_code: int | None = None) -> tuple[list[str], JobEnd]:
    return ["ingest: 3/5 documents"], JobEnd("FAILED", message, exit_code)


def ended(code: int, value: object) -> tuple[list[str], JobEnd]:
    said = MARK + json.dumps({"exit_code": code, "value": value})
    return ["plan: 5 new", said], JobEnd("SUCCEEDED" if code == 0 else "FAILED", "", code)


def follow(*ends: tuple[list[str], JobEnd], attempts: int = 3) -> tuple[Server, Callable[[], tuple[int, object]]]:
    server = Server(*ends)
    request = _Request("nightly", ["index", "s3://a/b", "--to", "s3://a/i"], {"A": "1"}, None, {})
    return server, lambda: run_to_end(server, request, attempts, Console(quiet=True))  # type: ignore[arg-type]


def test_a_run_ends_as_its_command_did() -> None:
    for code in (0, 4, 5):
        _, run = follow(ended(code, RESULT))
        assert run() == (code, RESULT)


def test_a_lost_job_is_submitted_again_under_a_name_of_its_own() -> None:
    server, run = follow(lost(), lost(), ended(0, RESULT))
    assert run() == (0, RESULT)
    names = [job.id for job in server.submitted]
    assert names == ["nightly", "nightly-attempt2", "nightly-attempt3"]
    assert [job.command[-1] for job in server.submitted] == names  # the run in the index is called as the job is


def test_a_command_that_failed_by_itself_is_not_tried_again() -> None:
    error = {"error": {"type": "RunFailedError", "message": "too many", "exit_code": 3}}
    server, run = follow(ended(3, error), ended(0, RESULT))
    assert run() == (3, error)
    assert len(server.submitted) == 1


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (([], JobEnd("STOPPED", "Job was intentionally stopped.", None)), "was stopped; nothing was published"),
        (lost("Failed to set up runtime_env: no space"), "could not be set up"),
        (lost("exit status 1", exit_code=1), "is it installed in the cluster's Python"),
        (lost("exit status 127", exit_code=127), "did not start on the cluster"),
    ],
)
def test_ends_that_another_try_would_not_change(end: tuple[list[str], JobEnd], said: str) -> None:
    server, run = follow(end, ended(0, RESULT))
    with pytest.raises(RunFailedError, match=said):
        run()
    assert len(server.submitted) == 1


def test_the_last_loss_is_told() -> None:
    _, run = follow(lost("first"), lost("second"), attempts=2)
    with pytest.raises(RunFailedError, match=r"each of its 2 jobs was lost.*second"):
        run()


def test_the_settings_that_travel_are_the_whole_tree_and_join_the_cluster(tmp_path: Path) -> None:
    given = load_settings(None, {"ray.builders": "7", "spark.master": "spark://m:7077"}, {})
    (tmp_path / "c.yaml").write_text(settings_of_job(given))
    there = load_settings(str(tmp_path / "c.yaml"), {}, {})
    assert there.settings.ray.address == "auto" and there.settings.ray.builders == 7
    assert there.settings.model_copy(update={"ray": given.settings.ray}) == given.settings
    assert there.origins["run.methods"] == "default"  # nobody chose any: the index's own


def test_what_was_chosen_stays_chosen() -> None:
    chosen = {"ray.address": "http://other:8265", "run.methods": "bm25"}
    tree = json.loads(settings_of_job(load_settings(None, chosen, {})))
    assert tree["ray"]["address"] == "http://other:8265" and tree["run"]["methods"] == ["bm25"]


def test_the_settings_of_a_job_are_taken(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv(SETTINGS, json.dumps({"spark": {"partitions": 77}}))
    assert main(["config", "show", "--changed"]) == 0
    (result,) = [found for line in capsys.readouterr().out.splitlines() if (found := result_of(line)) is not None]
    assert "77" in json.dumps(result[1])


def test_variables_by_name_and_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERE", "x=y")
    monkeypatch.delenv("NOT_HERE", raising=False)
    assert environment(["HERE", "B=2=3", "EMPTY="]) == {"HERE": "x=y", "B": "2=3", "EMPTY": ""}
    with pytest.raises(UsageError, match="NOT_HERE"):
        environment(["NOT_HERE"])


def test_resources() -> None:
    assert resources(["driver=1", "gpu_type=0.5"]) == {"driver": 1.0, "gpu_type": 0.5}
    with pytest.raises(UsageError, match="'driver' is not NAME=AMOUNT"):
        resources(["driver"])


def test_the_value_of_a_submitted_command_is_one_line_of_its_log(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["query", "/nowhere/at/all", "who?"])
    lines = capsys.readouterr().out.splitlines()
    (result,) = [found for line in lines if (found := result_of(line)) is not None]
    assert code == result[0] == 2
    assert isinstance(result[1], dict) and result[1]["error"]["type"] == "IndexNotFoundError"
    assert last_result("\n".join(["noise", *lines, "more"])) == result
    assert last_result("noise") is None


def test_addresses_that_are_none() -> None:
    with pytest.raises(UsageError, match="it looks like http://HEAD:8265"):
        JobServer("head:6379")
    with pytest.raises(UsageError, match=r"no Ray job server answers at http://127\.0\.0\.1:9"):
        JobServer("http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--run", "a b"], "a name has 1 to 100 letters"),
        (["--run", "../x"], "a name has 1 to 100 letters"),
        (["--set", "ray.bulders=3"], "builders"),
        (["--env", "NOT_A_VARIABLE_HERE"], "no such variable"),
    ],
)
def test_what_is_refused_before_anything_is_sent(arguments: list[str], said: str) -> None:
    words = ["submit", "index", "s3://b/in", "--to", "s3://b/out", "--ray-address", "http://127.0.0.1:9", *arguments]
    done = CliRunner().invoke(cli.app, words)
    assert done.exit_code == 2, done.output
    assert said in " ".join(done.output.split())


class Forgetful(JobServer):
    """A job server of which the head was started anew while a job ran."""

    def __init__(self, looks: int) -> None:
        self.address = "http://head:8265"
        self._looks = looks

    def details(self, job: str) -> JobDetails:
        if not self._looks:
            raise UnknownJob(f"the job server at {self.address}: Job {job} does not exist.")
        self._looks -= 1
        return JobDetails(type=JobType.SUBMISSION, submission_id=job, status=JobStatus.RUNNING, entrypoint="x")

    def log(self, job: str) -> str:
        return "one\ntwo\nhal"


def test_a_job_that_its_server_forgot_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_jobs, "LOOK_S", 0.0)
    lines: list[str] = []
    end = Forgetful(2).follow("nightly", lines.append)
    assert lines == ["one", "two"] and end.status == "FAILED" and end.exit_code is None
    server, run = follow(([], end), ended(0, RESULT))
    assert run() == (0, RESULT) and len(server.submitted) == 2


def test_a_job_that_was_never_there() -> None:
    with pytest.raises(UnknownJob, match="nightly does not exist"):
        Forgetful(0).follow("nightly", print)
