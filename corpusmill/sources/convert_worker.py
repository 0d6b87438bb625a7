"""The process in which converters run: requests on stdin, answers on what was stdout.

A message is two lengths (8 bytes each, little-endian), a JSON header and a body. Whatever a library prints goes to
stderr, so that it cannot break the protocol. The process ends at the end of its input, or when its parent is gone.
"""

import json
import os
import resource
import struct
import sys
import threading
import time
from collections.abc import Callable
from typing import BinaryIO

from corpusmill.sources.outcomes import ConversionRefused, Converted

LENGTHS = struct.Struct("<QQ")
ConvertFunction = Callable[[bytes, str], Converted]


def serve(convert: ConvertFunction) -> None:
    """Say that the process is ready, then answer requests until the input ends."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = sys.stdin.buffer
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    write_message(answers, {"outcome": "ready"}, b"")
    while (message := read_message(requests)) is not None:
        header, body = message
        _limit_memory(int(header["memory_mb"]))
        answer, text = _answer(convert, body, header["media_type"])
        write_message(answers, answer, text)


def read_message(stream: BinaryIO) -> tuple[dict[str, str], bytes] | None:
    """The next message, or None at the end of the stream (also in the middle of a message)."""
    lengths = stream.read(LENGTHS.size)
    if len(lengths) < LENGTHS.size:
        return None
    header_length, body_length = LENGTHS.unpack(lengths)
    header, body = stream.read(header_length), stream.read(body_length)
    if len(header) < header_length or len(body) < body_length:
        return None
    return json.loads(header), body


def write_message(stream: BinaryIO, header: dict[str, str | None], body: bytes) -> None:
    stream.write(pack_message(header, body))
    stream.flush()


def pack_message(header: dict[str, str | None], body: bytes) -> bytes:
    encoded = json.dumps(header).encode()
    return LENGTHS.pack(len(encoded), len(body)) + encoded + body


def _answer(convert: ConvertFunction, body: bytes, media_type: str) -> tuple[dict[str, str | None], bytes]:
    try:
        found = convert(body, media_type)
    except ConversionRefused as refusal:
        return {"outcome": "refused", "reason": str(refusal)}, b""
    except MemoryError:
        return {"outcome": "memory", "reason": "MemoryError"}, b""
    header = {"outcome": "converted", "media_type": found.media_type, "title": found.title, "reason": found.reason}
    return header, found.text.encode("utf-8", "replace")


def _limit_memory(memory_mb: int) -> None:
    """A hard stop far above the limit that the parent watches: address space is not memory, but it bounds a burst."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = (memory_mb * 2 + 4096) << 20
    resource.setrlimit(resource.RLIMIT_AS, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def main() -> None:
    import kreuzberg  # noqa: F401 - loaded before the first document's time runs

    from corpusmill.sources.converters import convert_document

    serve(convert_document)


if __name__ == "__main__":
    main()
