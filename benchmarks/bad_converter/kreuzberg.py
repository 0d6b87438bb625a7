"""The converter library made to misbehave: with this folder on PYTHONPATH it does what a document's marks say.

It loads the real library and puts itself before one function; a document without a mark is converted as usual.
"""

import os
import sys
import time
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from pathlib import Path
from typing import Any


def _real() -> Any:
    own = Path(__file__).resolve().parent
    spec = PathFinder.find_spec("kreuzberg", [place for place in sys.path if Path(place).resolve() != own])
    if spec is None or spec.loader is None:
        raise ImportError("the real kreuzberg is not installed")
    module = module_from_spec(spec)
    sys.modules["kreuzberg"] = module
    spec.loader.exec_module(module)
    return module


def _misbehave(raw: bytes) -> None:
    if b"[hang]" in raw:
        time.sleep(3600)
    if b"[crash]" in raw:
        os.kill(os.getpid(), 11)
    if b"[exit]" in raw:
        os._exit(3)
    if b"[memory]" in raw:
        held = []
        while True:
            held.append(bytearray(8 << 20))
            time.sleep(0.002)
    if b"[noise]" in raw:
        os.write(1, bytes(range(256)) * 4)


real = _real()
_extract = real.extract_bytes_sync


def extract_bytes_sync(raw: bytes, *arguments: Any, **options: Any) -> Any:
    _misbehave(raw)
    return _extract(raw, *arguments, **options)


real.extract_bytes_sync = extract_bytes_sync
