"""Temporary folders that say whose they are, so that what killed processes left behind is told and removed."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from corpusmill.errors import RunFailedError
from corpusmill.processes import ProcessMark, lives, this_process

OWNER = ".owner.json"  # in the folder: the mark of the process that made it
PREFIXES = ("corpusmill-", "cm-ray-")
_MOST_BYTES = 4096


@contextmanager
def run_folder() -> Iterator[Path]:
    """A folder for the length of a run, in which this process and all that it starts put their temporary files.

    First removes the folders of runs of this host whose process is gone. Raises RunFailedError where none can be made.
    """
    base = _base()
    for place in sorted({base, Path("/tmp")}):
        remove_orphans(place)
    with owned_folder("corpusmill-", base) as folder, _temporary_files_in(folder):
        yield folder


@contextmanager
def owned_folder(prefix: str, parent: Path) -> Iterator[Path]:
    """A new folder in `parent` with this process's mark in it, removed at the end. `prefix` is one of PREFIXES."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        (folder / OWNER).write_text(this_process().model_dump_json(), "utf-8")
    except OSError as error:
        raise RunFailedError(f"cannot make a temporary folder in {parent}: {error.strerror or error}") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_orphans(parent: Path) -> list[Path]:
    """Remove the marked folders directly in `parent` whose process ran on this host and is gone; what was removed.

    Anything else stays: folders without a mark, of other users, hosts or boots, and links.
    """
    try:
        entries = [entry for entry in os.scandir(parent) if entry.name.startswith(PREFIXES)]
    except OSError:
        return []
    gone = sorted(Path(entry.path) for entry in entries if _is_own_folder(entry) and _is_orphan(Path(entry.path)))
    for folder in gone:
        shutil.rmtree(folder, ignore_errors=True)  # another run may be removing it too
    return gone


def outside_run_folder() -> Path:
    """Where temporary files that outlive a run go."""
    base = _base()
    return base.parent if (base / OWNER).is_file() else base


def _base() -> Path:
    try:
        return Path(tempfile.gettempdir())
    except OSError as error:
        raise RunFailedError(f"there is no folder for temporary files: {error.strerror or error}") from error


def _is_own_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.geteuid()
    except OSError:
        return False


def _is_orphan(folder: Path) -> bool:
    mark = folder / OWNER
    try:
        if mark.is_symlink() or mark.stat().st_size > _MOST_BYTES:
            return False
        return lives(ProcessMark.model_validate_json(mark.read_bytes())) is False
    except (OSError, ValidationError):
        return False


@contextmanager
def _temporary_files_in(folder: Path) -> Iterator[None]:
    """Make it the folder for temporary files of this process, and of those it starts (TMPDIR)."""
    before, known = os.environ.get("TMPDIR"), tempfile.tempdir
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        tempfile.tempdir = known
        if before is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before
