"""What a worker's host says of itself before a run: is our package there and the same, does the store answer, is there
room. `look` is pickled by value, so that it also runs where the package is missing: it imports inside and uses nothing
of this module.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from corpusmill.errors import RunFailedError

LEAST_FREE = 256 << 20  # bytes for temporary files


@dataclass(frozen=True)
class Expected:
    """What the driver has, and every host must."""

    python: str  # major.minor
    corpusmill: str
    index: str  # URI
    store: str  # JSON of StoreSettings


def look(index: str, store: str) -> dict[str, object]:
    """{host, python, corpusmill, problem, free, folder}: `problem` says what stands in the way, or is None."""
    import os
    import shutil
    import socket
    import sys
    import tempfile

    found: dict[str, object] = {
        "host": socket.gethostname(),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "corpusmill": None,
        "problem": None,
    }
    try:
        folder = tempfile.gettempdir()
    except OSError as error:
        return {**found, "problem": f"no folder for temporary files: {error}"}
    found |= {"folder": folder, "free": shutil.disk_usage(folder).free, "executable": os.path.realpath(sys.executable)}
    try:
        import corpusmill
        from corpusmill.settings import StoreSettings
        from corpusmill.store.objects import open_store
    except ImportError as error:
        return {**found, "problem": f"corpusmill cannot be imported by {sys.executable}: {error}"}
    found["corpusmill"] = corpusmill.__version__
    try:
        next(iter(open_store(index, StoreSettings.model_validate_json(store)).list("refs/")), None)
    except Exception as error:  # noqa: BLE001 - told to the driver, which refuses the run with it
        found["problem"] = f"the index's store does not answer: {error}"
    return found


def complaints(rows: Iterable[dict[str, object]], expected: Expected) -> list[str]:
    """One sentence for each host that is not fit, hosts in order."""
    told: dict[str, str] = {}
    for row in rows:
        reason = _reason(row, expected)
        if reason is not None:
            told.setdefault(str(row["host"]), reason)
    return [f"{host}: {reason}" for host, reason in sorted(told.items())]


def _reason(row: dict[str, object], expected: Expected) -> str | None:
    if row["python"] != expected.python:
        return f"Python {row['python']}, the driver has {expected.python}"
    if row["corpusmill"] is not None and row["corpusmill"] != expected.corpusmill:
        return f"corpusmill {row['corpusmill']}, the driver has {expected.corpusmill}"
    if row["problem"] is not None:
        return str(row["problem"])
    free = row.get("free")
    if isinstance(free, int) and free < LEAST_FREE:
        return f"only {free >> 20} MiB are free in {row.get('folder')}, {LEAST_FREE >> 20} are needed"
    return None


def refuse_unfit(engine: str, rows: Iterable[dict[str, object]], expected: Expected) -> None:
    """Raises RunFailedError that names every host that is not fit, and why."""
    told = complaints(rows, expected)
    if told:
        raise RunFailedError(f"{len(told)} of {engine}'s hosts cannot work on this run: {'; '.join(told)}")
