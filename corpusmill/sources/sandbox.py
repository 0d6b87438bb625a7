"""Runs converters in a process of their own, within limits on time and memory."""

import contextlib
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence

from corpusmill.settings import ConvertSettings
from corpusmill.sources.convert_worker import LENGTHS, pack_message
from corpusmill.sources.outcomes import (
    ConversionCrashed,
    ConversionOutOfMemory,
    ConversionRefused,
    ConversionTimedOut,
    Converted,
)

WORKER_COMMAND = (sys.executable, "-m", "corpusmill.sources.convert_worker")
_POLL_S = 0.05
_RECYCLE_AFTER = 500  # documents of one process: what a library leaks is given back
_START_S = 120.0  # for a process to load its converters, on a busy machine too
_PIPE = 1 << 20


class Sandbox:
    """One converter process, started when first needed and again after it was killed. Not safe for several threads."""

    def __init__(self, settings: ConvertSettings, command: Sequence[str] = WORKER_COMMAND) -> None:
        self._settings = settings
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._served = 0

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def convert(self, raw: bytes, media_type: str) -> Converted:
        """One document, once. Raises ConversionRefused (final), ConversionCrashed, ConversionTimedOut,
        ConversionOutOfMemory (the process is then gone; the next call starts another)."""
        request = pack_message({"media_type": media_type, "memory_mb": str(self._settings.memory_mb)}, raw)
        try:
            header, body = self._exchange(self._started(), request, self._settings.timeout_s)
        except BaseException:
            self.close()
            raise
        self._served += 1
        if self._served >= _RECYCLE_AFTER:
            self.close()
        return self._result(header, body)

    def close(self) -> None:
        """End the process, whatever it does."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _started(self) -> "subprocess.Popen[bytes]":
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                env={**os.environ, "OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1"},
            )
            self._served = 0
            for pipe in (self._process.stdin, self._process.stdout):
                os.set_blocking(pipe.fileno(), False)  # type: ignore[union-attr]
            self._exchange(self._process, b"", _START_S)  # it says that it is ready
        return self._process

    def _exchange(
        self, process: "subprocess.Popen[bytes]", request: bytes, seconds: float
    ) -> tuple[dict[str, str | None], bytes]:
        assert process.stdin is not None and process.stdout is not None
        to, source = process.stdin.fileno(), process.stdout.fileno()
        deadline = time.monotonic() + seconds
        left = memoryview(request)
        answer = bytearray()
        watch = _MemoryWatch(process.pid, self._settings.memory_mb)
        while True:
            readable, writable, _ = select.select([source], [to] if left else [], [], _POLL_S)
            if writable:
                try:
                    left = left[os.write(to, left[:_PIPE]) :]
                except BlockingIOError:
                    pass
                except BrokenPipeError:
                    left = memoryview(b"")  # it ended; reading says how
            if readable:
                piece = os.read(source, _PIPE)
                if not piece:
                    raise ConversionCrashed(f"the converter's process ended ({_ending(process)})")
                answer += piece
                if (message := _whole(answer)) is not None:
                    return message
            if watch.exceeded():
                raise ConversionOutOfMemory(f"the converter took more than {self._settings.memory_mb} MiB of memory")
            if time.monotonic() > deadline:
                raise ConversionTimedOut(f"the converter took longer than {seconds:g} s")

    def _result(self, header: dict[str, str | None], body: bytes) -> Converted:
        if header["outcome"] == "refused":
            raise ConversionRefused(header["reason"])
        if header["outcome"] == "memory":
            self.close()
            raise ConversionOutOfMemory(f"the converter took more than {self._settings.memory_mb} MiB of memory")
        return Converted(body.decode("utf-8"), header["media_type"] or "", header["title"], header["reason"])


class _MemoryWatch:
    """Resident memory of a process, asked for at most every poll interval."""

    def __init__(self, pid: int, limit_mb: int) -> None:
        import psutil

        self._gone: type[Exception] = psutil.Error
        self._limit = limit_mb << 20
        self._next = 0.0
        try:
            self._process: psutil.Process | None = psutil.Process(pid)
        except psutil.Error:
            self._process = None

    def exceeded(self) -> bool:
        now = time.monotonic()
        if self._process is None or now < self._next:
            return False
        self._next = now + _POLL_S
        try:
            return bool(self._process.memory_info().rss > self._limit)
        except self._gone:
            return False


def _whole(answer: bytearray) -> tuple[dict[str, str | None], bytes] | None:
    if len(answer) < LENGTHS.size:
        return None
    header_length, body_length = LENGTHS.unpack_from(answer)
    start = LENGTHS.size + header_length
    if len(answer) < start + body_length:
        return None
    return json.loads(answer[LENGTHS.size : start]), bytes(answer[start : start + body_length])


def _ending(process: "subprocess.Popen[bytes]") -> str:
    with contextlib.suppress(subprocess.TimeoutExpired):
        code = process.wait(timeout=2)
        return f"signal {-code}" if code < 0 else f"exit code {code}"
    return "its output closed"
