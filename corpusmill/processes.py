"""Which process of which machine something belongs to, whether it still lives, and what it hands on to others."""

import os
import socket
from collections.abc import Iterable
from pathlib import Path

from corpusmill.errors import ConfigError
from corpusmill.frozen import Frozen


class ProcessMark(Frozen):
    """A process. `host` names the machine, its boot and its space of process ids: the id means something only there.
    `started` tells it from a later process of the same id."""

    host: str
    pid: int
    started: str


def this_process() -> ProcessMark:
    pid = os.getpid()
    return ProcessMark(host=this_host(), pid=pid, started=_started(pid) or "")


def lives(mark: ProcessMark) -> bool | None:
    """Whether the process is there. None: it belongs to another host, or to an earlier boot of this one."""
    if mark.host != this_host():
        return None
    return _started(mark.pid) == mark.started


def this_host() -> str:
    """Host name, boot and space of process ids (containers of one machine have spaces of their own)."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        import psutil

        boot, space = str(round(psutil.boot_time())), "-"
    return f"{socket.gethostname()}/{boot}/{space}"


def named_variables(names: Iterable[str]) -> dict[str, str]:
    """The variables of this process's environment that settings name, for processes on other hosts.

    Raises ConfigError naming those that are not set.
    """
    lacking = sorted(name for name in names if name not in os.environ)
    if lacking:
        raise ConfigError(f"the settings hand on variables that are not set here: {', '.join(lacking)}")
    return {name: os.environ[name] for name in names}


def _started(pid: int) -> str | None:
    """When the process of that id started, None where none lives. In ticks since boot where the system has them: the
    clock may be set while a process runs."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _started_by_clock(pid)
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def _started_by_clock(pid: int) -> str | None:
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else str(round(process.create_time()))
    except psutil.NoSuchProcess:
        return None
