"""A process is told from one that is gone, from one of another machine, and from a later one of the same id."""

import os
import subprocess
import sys

from corpusmill.processes import lives, this_process


def test_this_process_lives() -> None:
    mark = this_process()
    assert lives(mark) is True
    assert lives(type(mark).model_validate_json(mark.model_dump_json())) is True


def test_a_process_that_ended_is_gone_also_before_it_was_waited_for() -> None:
    code = "from corpusmill.processes import this_process; print(this_process().model_dump_json(), flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None and child.stdout is not None
    mark = type(this_process()).model_validate_json(child.stdout.readline())
    assert lives(mark) is True and mark.pid == child.pid
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is a zombie until it is waited for
    assert lives(mark) is False
    child.wait()
    assert lives(mark) is False


def test_nothing_is_known_of_another_host_and_an_id_is_not_enough() -> None:
    mark = this_process()
    assert lives(mark.model_copy(update={"host": "elsewhere"})) is None
    assert lives(mark.model_copy(update={"started": "1"})) is False
