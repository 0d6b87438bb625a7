"""Where the real data sets lie that tests and benchmarks read and that are never part of the project."""

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


def shared_root() -> Path:
    """The folder of shared data: CORPUSMILL_SHARED, else the folder `shared/data` beside the repository."""
    return Path(os.environ.get("CORPUSMILL_SHARED", REPOSITORY.parent / "shared" / "data"))


def shared_data(name: str) -> Path:
    """The data set `name`. Absent: a failure in CI, elsewhere a skip that says where it was looked for."""
    path = shared_root() / name
    if path.exists():
        return path
    message = f"data set {name!r} is not at {path}; set CORPUSMILL_SHARED"
    if os.environ.get("CI"):
        pytest.fail(message)
    pytest.skip(message)
