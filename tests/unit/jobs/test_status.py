"""How a run stands: running, silent, killed, stopped by a failure; told on its own host and from another."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from corpusmill_jobs import cli
from corpusmill_jobs.commands.status import is_running, told
from typer.testing import CliRunner

from corpusmill.processes import ProcessMark, this_process
from corpusmill.store.objects import open_store
from corpusmill.store.runs import RunFiles, RunState

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
ELSEWHERE = this_process().model_copy(update={"host": "elsewhere"})


def state(seconds: float, process: ProcessMark | None, now: datetime = NOW) -> RunState:
    """A run that says it is running and gave its last sign of life so many seconds ago."""
    return RunState(
        run="run-1",
        status="running",
        stage="build",
        started=(now - timedelta(hours=1)).isoformat(),
        heartbeat=(now - timedelta(seconds=seconds)).isoformat(),
        done=120,
        total=500,
        process=process,
    )


def gone() -> ProcessMark:
    """A process of this host that has ended."""
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    return this_process().model_copy(update={"pid": child.pid, "started": "1"})


@pytest.mark.parametrize(
    ("seconds", "process", "running", "said"),
    [
        (2, ELSEWHERE, True, "running, stage build 120/500"),
        (2, this_process(), True, "running, stage build 120/500"),
        (45, ELSEWHERE, True, "running, stage build 120/500; no sign of life for 45 s"),
        (45, None, True, "running, stage build 120/500; no sign of life for 45 s"),
        (400, ELSEWHERE, False, "stopped in stage build 120/500: no sign of life for 6 min 40 s"),
        (-3, ELSEWHERE, True, "running, stage build 120/500"),
    ],
)
def test_signs_of_life(seconds: float, process: ProcessMark | None, running: bool, said: str) -> None:
    assert (is_running(state(seconds, process), NOW), told(state(seconds, process), NOW)) == (running, said)


def test_a_killed_run_is_told_at_once_on_its_own_host(tmp_path: Path) -> None:
    mark = gone()
    RunFiles(open_store(str(tmp_path)), "run-1").put_state(state(1, mark, datetime.now(UTC)))
    done = CliRunner().invoke(cli.app, ["status", str(tmp_path)])
    assert done.exit_code == 0
    assert f"stopped in stage build 120/500: its process {mark.pid} is gone" in done.stdout
    shown = json.loads(CliRunner().invoke(cli.app, ["status", str(tmp_path), "--json"]).stdout)
    assert (shown["running"], shown["process"], shown["snapshot"]) == (False, "gone", None)
    assert 1 <= shown["silent_seconds"] < 60 and shown["run"]["process"]["pid"] == mark.pid


def test_a_state_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    old = state(1, None).model_dump(mode="json")
    del old["process"]
    store = open_store(str(tmp_path))
    store.put("runs/run-1/state.json", json.dumps(old).encode())
    assert RunFiles(store, "run-1").state() == state(1, None)


def test_a_finished_run_is_told_by_its_message() -> None:
    done = state(9000, gone()).model_copy(update={"status": "failed", "message": "the disk is full"})
    assert told(done, NOW) == "failed: the disk is full"
    assert not is_running(done, NOW)
    published = done.model_copy(update={"status": "published", "message": "published snapshot 4"})
    assert told(published, NOW) == "published snapshot 4"
