"""Signs of life of a run under way."""

import threading
from pathlib import Path

import pytest
from corpusmill_jobs import running

from corpusmill.errors import StoreUnavailableError
from corpusmill.processes import this_process
from corpusmill.run import ProgressEvent, RunSpec, silent
from corpusmill.settings import Settings
from corpusmill.steps import ModelFingerprints, resolve
from corpusmill.store.objects import open_store
from corpusmill.store.runs import RunFiles, RunState


class Counted(RunFiles):
    """Keeps the states it was given; `broken` puts fail."""

    def __init__(self, folder: Path) -> None:
        super().__init__(open_store(str(folder)), "run-1")
        self.states: list[RunState] = []
        self.broken = 0
        self.more = threading.Event()

    def put_state(self, state: RunState) -> None:
        if self.broken:
            self.broken -= 1
            raise StoreUnavailableError("the store is away")
        self.states.append(state)
        self.more.set()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> running.Run:
    monkeypatch.setattr(running, "HEARTBEAT_S", 0.01)
    spec = RunSpec(run="run-1", index=str(tmp_path), source=None, source_id="memory", settings=Settings())
    files = Counted(tmp_path)
    plan = resolve((), ModelFingerprints({}, "hash"))
    return running.Run(spec, open_store(str(tmp_path)), files, plan, None, silent)


def beats(run: running.Run, count: int) -> list[RunState]:
    files = run.files
    assert isinstance(files, Counted)
    before = len(files.states)
    while len(files.states) < before + count:
        files.more.clear()
        assert files.more.wait(10)
    return files.states


def test_a_stage_that_reports_nothing_still_gives_signs_of_life(run: running.Run) -> None:
    run.say(status="running", stage="build")
    with run.beating():
        run.report(ProgressEvent("build", 3, 9))
        states = beats(run, 3)
    assert {state.process for state in states} == {this_process()}
    assert (states[-1].stage, states[-1].done, states[-1].total) == ("build", 3, 9)
    assert not [thread for thread in threading.enumerate() if thread.name == "heartbeat"]


def test_a_beat_that_is_lost_ends_nothing(run: running.Run) -> None:
    run.say(status="running", stage="build")
    assert isinstance(run.files, Counted)
    run.files.broken = 3
    with run.beating():
        beats(run, 2)
    assert run.files.broken == 0


def test_what_a_run_came_to_is_not_overwritten_by_a_beat(run: running.Run) -> None:
    run.say(status="running", stage="publish")
    with run.beating():
        beats(run, 1)
        run.say(status="published", stage="done", snapshot=4)
        assert isinstance(run.files, Counted)
        threading.Event().wait(0.1)  # ten beats long
    assert (run.files.states[-1].status, run.files.states[-1].snapshot) == ("published", 4)
    assert [state.status for state in run.files.states].count("published") == 1
