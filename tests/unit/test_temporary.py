"""Temporary folders: those of killed processes are removed, and nothing else is."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from corpusmill_jobs.launch import scratch_environment

from corpusmill.errors import RunFailedError
from corpusmill.processes import this_process
from corpusmill.temporary import OWNER, outside_run_folder, owned_folder, remove_orphans, run_folder

KILLED = """
import os, signal, sys
from pathlib import Path
from corpusmill.temporary import owned_folder
with owned_folder("corpusmill-", Path(sys.argv[1])) as folder:
    (folder / "blockmgr-1").mkdir()
    (folder / "blockmgr-1" / "data").write_text("left behind")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def marked(folder: Path, mark: object) -> Path:
    folder.mkdir()
    (folder / OWNER).write_text(str(mark), "utf-8")
    return folder


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    (left,) = tmp_path.iterdir()
    assert (left / "blockmgr-1" / "data").is_file()
    assert remove_orphans(tmp_path) == [left]
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_known_to_be_an_orphan_stays(tmp_path: Path) -> None:
    own = this_process()
    dead = own.model_copy(update={"started": "1"}).model_dump_json()
    marked(tmp_path / "corpusmill-alive", own.model_dump_json())
    marked(
        tmp_path / "corpusmill-elsewhere", own.model_copy(update={"host": "other", "started": "1"}).model_dump_json()
    )
    marked(tmp_path / "corpusmill-nonsense", "{}")
    marked(tmp_path / "other-program", dead)
    (tmp_path / "corpusmill-unmarked").mkdir()
    (tmp_path / "corpusmill-file").write_text(dead)
    target = marked(tmp_path / "elsewhere", dead)
    (tmp_path / "corpusmill-link").symlink_to(target)
    (tmp_path / "corpusmill-linked-mark").mkdir()
    (tmp_path / "corpusmill-linked-mark" / OWNER).symlink_to(target / OWNER)
    before = sorted(tmp_path.rglob("*"))
    assert remove_orphans(tmp_path) == []
    assert sorted(tmp_path.rglob("*")) == before
    orphan = marked(tmp_path / "cm-ray-dead", dead)
    assert remove_orphans(tmp_path) == [orphan]
    assert sorted(tmp_path.rglob("*")) == before
    assert remove_orphans(tmp_path / "nowhere") == []


def test_a_run_keeps_all_temporary_files_in_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Dx=1")
    orphan = marked(tmp_path / "corpusmill-dead", this_process().model_copy(update={"started": "1"}).model_dump_json())
    with run_folder() as folder:
        assert folder.parent == tmp_path and not orphan.exists()
        assert Path(tempfile.mkdtemp()).parent == folder
        code = "import tempfile; print(tempfile.mkdtemp())"
        child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert Path(child.stdout.strip()).parent == folder
        assert scratch_environment() == {
            "SPARK_LOCAL_DIRS": str(folder),
            "SPARK_SUBMIT_OPTS": f'-Dx=1 -Djava.io.tmpdir="{folder}"',
        }
        assert outside_run_folder() == tmp_path
        with owned_folder("cm-ray-", folder) as inner:
            assert inner.parent == folder
    assert list(tmp_path.iterdir()) == []
    assert os.environ["TMPDIR"] == str(tmp_path) == str(outside_run_folder())


def test_what_the_user_set_for_spark_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/scratch")
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Djava.io.tmpdir=/jvm")
    kept = {"SPARK_LOCAL_DIRS": "/scratch", "SPARK_SUBMIT_OPTS": "-Djava.io.tmpdir=/jvm"}
    assert scratch_environment() == kept


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(RunFailedError, match=rf"temporary folder in {tmp_path}/nowhere"),
        owned_folder("corpusmill-", tmp_path / "nowhere"),
    ):
        pass
