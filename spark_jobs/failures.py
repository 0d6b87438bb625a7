"""What a failure inside Spark comes to, in one message: Spark carries a Python worker's traceback as text."""

import re
from collections.abc import Mapping, Sequence

from corpusmill import errors
from corpusmill.errors import CorpusmillError

_FULL_DISK = "No space left on device"
_HOST = re.compile(r"\(TID \d+\) \(([^ )]+) executor")
_PLACE = re.compile(rf"{_FULL_DISK}: '([^']+)'")
_ASIDE = ("at ", "Driver stacktrace:", "ExcludeOnFailure behavior", "Caused by:", "...")
_MOST = 500


def cause(error: BaseException, folders: Mapping[str, str] | None = None) -> tuple[str, str]:
    """(name of an exception of corpusmill.errors, message). `folders`: where each host has its scratch
    files; under the empty name, where any other has them."""
    if isinstance(error, CorpusmillError):
        return type(error).__name__, str(error)
    text = str(error)
    own = _own(text)
    if _FULL_DISK in text:
        return _full_disk(text, own, folders or {})
    return own or ("RunFailedError", _foreign(type(error).__name__, text))


def _own(text: str) -> tuple[str, str] | None:
    """The error of ours inside it, if there is one."""
    for line in reversed(text.splitlines()):
        name, _, message = line.strip().partition(": ")
        kind = getattr(errors, name.rsplit(".", 1)[-1], None)
        if message and isinstance(kind, type) and issubclass(kind, CorpusmillError):
            return kind.__name__, message
    return None


def _full_disk(text: str, own: tuple[str, str] | None, folders: Mapping[str, str]) -> tuple[str, str]:
    hosts = _HOST.findall(text)
    host = hosts[-1] if hosts else "one of Spark's hosts"  # Spark tells it of some failures alone
    if own is not None:
        return own[0], f"on {host}: {own[1]}"
    places = _PLACE.findall(text)
    where = (
        places[-1]
        if places
        else folders.get(host) or folders.get("") or "the folder of its temporary files (SPARK_LOCAL_DIRS)"
    )
    return "RunFailedError", f"no space is left on {host} in {where}"


def _foreign(kind: str, text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return kind
    starts = [k for k, line in enumerate(lines) if line.strip().startswith("Traceback (most recent call last)")]
    if starts:
        return _raised(lines[starts[-1] + 1 :])[:_MOST]
    first = lines[0].strip()
    if first.startswith("An error occurred while calling") and len(lines) > 1:
        return lines[1].strip().lstrip(": ")[:_MOST]
    return f"{kind}: {first}"[:_MOST]


def _raised(lines: Sequence[str]) -> str:
    """The line after a traceback's frames, which are indented."""
    told = [line for line in lines if not line.strip().startswith(_ASIDE)]
    return next((line for line in told if not line[0].isspace()), told[-1] if told else "no reason was given").strip()
