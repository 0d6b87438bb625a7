import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from corpusmill.errors import StoreUnavailableError, UsageError
from corpusmill.store.local import LocalStore
from corpusmill.store.objects import open_store
from tests.store_contract import StoreContract


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "index"))


class TestLocalStore(StoreContract):
    pass


def test_uris(tmp_path: Path) -> None:
    spaced = tmp_path / "a b"
    assert open_store(f"file://{tmp_path}/a%20b").local_path("k") == spaced / "k"
    assert open_store(str(spaced)).uri == str(spaced)
    with pytest.raises(UsageError, match="three slashes"):
        open_store("file://host/folder")
    with pytest.raises(UsageError, match="gs://bucket"):
        open_store("gs://bucket/x")


def test_temporary_files_are_neither_listed_nor_left(store: LocalStore, tmp_path: Path) -> None:
    store.put("a/b", b"1")
    store.swap("a/c", b"1", None)
    (tmp_path / "index" / "a" / ".tmp-killed").write_bytes(b"half")
    assert [info.key for info in store.list("")] == ["a/b", "a/c"]
    assert {p.name for p in (tmp_path / "index" / "a").iterdir()} == {"b", "c", ".tmp-killed"}


def test_create_without_hard_links(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise OSError(95, os.strerror(95))

    monkeypatch.setattr(os, "link", refuse)
    StoreContract().test_create_once(store)
    StoreContract().test_a_race_has_one_winner(store)


def test_a_full_disk_is_named_and_leaves_nothing(store: LocalStore, tmp_path: Path) -> None:
    """The limit on file size stands for the full disk: the same write fails in the same place."""
    store.put("data/old", b"old")
    program = f"""
import resource, signal
from corpusmill.errors import StoreUnavailableError
from corpusmill.store.local import LocalStore
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    LocalStore({store.uri!r}).put("data/new", b"x" * 1_000_000)
except StoreUnavailableError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert str(tmp_path / "index" / "data" / "new") in done.stdout
    assert "File too large" in done.stdout
    assert [info.key for info in store.list("")] == ["data/old"]


def test_no_permission(store: LocalStore, tmp_path: Path) -> None:
    """The superuser may write everywhere, so the program gives that up first."""
    folder = tmp_path / "index"
    folder.mkdir()
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    program = f"""
import os
from corpusmill.errors import StoreUnavailableError
from corpusmill.store.local import LocalStore
if os.geteuid() == 0:
    os.setuid(65534)
try:
    LocalStore({store.uri!r}).put("data/a", b"1")
except StoreUnavailableError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(f"cannot write {folder}/data/a: Permission denied")


def test_a_file_where_the_index_should_be(tmp_path: Path) -> None:
    (tmp_path / "index").write_text("I am a file")
    with pytest.raises(StoreUnavailableError, match=str(tmp_path / "index")):
        LocalStore(str(tmp_path / "index")).put("data/a", b"1")
