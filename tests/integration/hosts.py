"""Several hosts on one machine: network namespaces with an address each, joined by a switch of their own.

Nothing of the machine's own network is touched. Needs root and iproute2.
"""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

NETWORK = "10.77.0"


def why_not() -> str | None:
    """Why there can be no such hosts here; None where there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need iproute2 (`ip`)"
    name = f"cm{os.getpid()}probe"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode:
        return f"network namespaces cannot be made here: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return None


class Host:
    """One host. Programs started on it are stopped with it."""

    def __init__(self, hosts: "Hosts", number: int) -> None:
        self._hosts = hosts
        self.number = number
        self.name = f"{hosts.prefix}h{number}"
        self.address = f"{NETWORK}.{10 + number}"
        self.programs: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        """A program in the background; its output goes to <folder>/<host>-<name>.log."""
        with self.log(name).open("ab") as log:
            self.programs[name] = subprocess.Popen(
                ["ip", "netns", "exec", self.name, *command],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
                cwd=self._hosts.folder,
            )
        return self.programs[name]

    def run(
        self, command: Sequence[str], environment: Mapping[str, str], timeout: float = 300
    ) -> "subprocess.CompletedProcess[str]":
        full = ["ip", "netns", "exec", self.name, *command]
        return subprocess.run(full, capture_output=True, text=True, timeout=timeout, env=dict(environment))

    def log(self, name: str) -> Path:
        return self._hosts.folder / f"{self.number}-{name}.log"

    def cut(self) -> None:
        """Take the host off the network, silently: nobody is told."""
        self._hosts.ip("-n", self._hosts.switch, "link", "set", f"p{self.number}", "down")

    def heal(self) -> None:
        self._hosts.ip("-n", self._hosts.switch, "link", "set", f"p{self.number}", "up")

    def processes(self, *words: str) -> list[psutil.Process]:
        """The processes of this host whose command line has all the words."""
        mine = os.stat(f"/run/netns/{self.name}").st_ino
        found = []
        for process in psutil.process_iter():
            try:
                if os.stat(f"/proc/{process.pid}/ns/net").st_ino != mine:
                    continue
                line = " ".join(process.cmdline())
            except (psutil.Error, OSError):
                continue
            if all(word in line for word in words):
                found.append(process)
        return found

    def kill(self, *words: str) -> int:
        """SIGKILL to the processes whose command line has all the words; how many there were."""
        victims = self.processes(*words)
        for victim in victims:
            try:
                victim.kill()
            except psutil.NoSuchProcess:
                continue
        return len(victims)

    def stop(self) -> None:
        """End every process of this host, gently first."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self.processes():
                try:
                    process.send_signal(number)
                except psutil.NoSuchProcess:
                    continue
            wait_until(lambda: not self.processes(), 4, what=None)
        for program in self.programs.values():
            program.wait(5)


class Hosts:
    """`count` hosts that reach one another. `folder` takes logs and what programs write."""

    def __init__(self, count: int, folder: Path) -> None:
        self.prefix = f"cm{os.getpid()}"
        self.switch = f"{self.prefix}sw"
        self.folder = folder
        self.ip("netns", "add", self.switch)
        self.ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
        self.ip("-n", self.switch, "link", "set", "br0", "up")
        self.all = [Host(self, number) for number in range(count)]
        for host in self.all:
            port = f"p{host.number}"
            self.ip("netns", "add", host.name)
            self.ip("link", "add", "eth0", "netns", host.name, "type", "veth", "peer", port, "netns", self.switch)
            self.ip("-n", self.switch, "link", "set", port, "master", "br0", "up")
            self.ip("-n", host.name, "addr", "add", f"{host.address}/24", "dev", "eth0")
            self.ip("-n", host.name, "link", "set", "eth0", "up")
            self.ip("-n", host.name, "link", "set", "lo", "up")

    def ip(self, *arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=20)

    def remove(self) -> None:
        for host in self.all:
            host.stop()
        for name in (*(host.name for host in self.all), self.switch):
            self.ip("netns", "del", name)


@contextmanager
def hosts(count: int, folder: Path) -> Iterator[list[Host]]:
    made = Hosts(count, folder)
    try:
        yield made.all
    finally:
        made.remove()


def wait_until(true: Callable[[], object], seconds: float, what: str | None) -> bool:
    """Wait for it. `what`: said in the TimeoutError when it does not come; None: no error, False."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            if what is None:
                return False
            raise TimeoutError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.2)
    return True
