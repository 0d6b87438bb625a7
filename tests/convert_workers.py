"""Converter processes that misbehave, for tests: `python -m tests.convert_workers MODE`."""

import os
import sys
import time

from corpusmill.sources.convert_worker import serve
from corpusmill.sources.converters import convert_document
from corpusmill.sources.outcomes import Converted


def convert(raw: bytes, media_type: str) -> Converted:
    """Does what the document says; anything else is converted as usual."""
    if b"[hang]" in raw:
        time.sleep(600)
    if b"[crash]" in raw:
        os.kill(os.getpid(), 11)
    if b"[exit]" in raw:
        os._exit(3)
    if b"[memory]" in raw:
        held = []
        while True:
            held.append(bytearray(8 << 20))
            time.sleep(0.005)
    if b"[print]" in raw:
        print("noise on the standard output")
        os.write(1, b"\x00" * 64)
    if b"[echo]" in raw:
        return Converted(raw.decode(), media_type)
    return convert_document(raw, media_type)


if __name__ == "__main__":
    sys.path.insert(0, os.getcwd())
    serve(convert)
