"""Content-derived ids and fingerprints (BLAKE2b, 128 bits, lower-case hex).

An id is a function of content alone: never of a row number, a worker or a clock.
"""

import hashlib
import json
from enum import Enum
from pathlib import PurePath

from pydantic import BaseModel

ID_HEX_LENGTH = 32


def hash_bytes(data: bytes) -> str:
    """The id of raw bytes: 32 hex digits."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def hash_text(text: str) -> str:
    """The id of a text, over its UTF-8 form."""
    return hash_bytes(text.encode("utf-8", "surrogatepass"))


def content_id(kind: str, *parts: str | int) -> str:
    """The id of a thing of `kind` made of `parts`; each has its length before it: ("ab", "c") is not ("a", "bc")."""
    h = hashlib.blake2b(digest_size=16, person=kind.encode()[:16])
    for part in parts:
        raw = str(part).encode("utf-8", "surrogatepass")
        h.update(len(raw).to_bytes(8, "little"))
        h.update(raw)
    return h.hexdigest()


def canonical_json(value: object) -> str:
    """JSON with sorted keys and no white space. Raises TypeError on anything whose form is not fixed."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def fingerprint(value: object) -> str:
    """The id of a settings object (pydantic model, or nested dict, list, str, int, float, bool, None)."""
    return hash_text(canonical_json(value))


def _plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return _plain(value.model_dump(mode="json"))
    if isinstance(value, Enum):
        return _plain(value.value)
    if isinstance(value, dict):
        if bad := [key for key in value if not isinstance(key, str)]:
            raise TypeError(f"a fingerprint needs string keys, got {bad[0]!r}")
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((_plain(item) for item in value), key=str)
    if isinstance(value, PurePath):
        return str(value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"cannot fingerprint a value of type {type(value).__name__}: {value!r}")
