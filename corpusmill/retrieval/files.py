"""How retrieval reads published index files: a step's folder behind one function."""

from collections.abc import Callable
from pathlib import Path

FileOf = Callable[[str], Path]  # the name of an index file -> its local path


def folder(path: Path) -> FileOf:
    """The files of a local folder, for example the scratch of a build."""
    return lambda name: path / name
