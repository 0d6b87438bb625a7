"""The JSON schema of a task's output in the subset that guided decoding takes."""

import re
from functools import cache
from typing import Any

from pydantic import BaseModel

_DROPPED = frozenset({"default", "title", "minLength", "maxLength", "uniqueItems", "examples"})


@cache
def strict_schema(kind: type[BaseModel]) -> dict[str, Any]:
    """Every object closed and all its properties required; keywords that endpoints refuse are left to validation."""
    made: dict[str, Any] = _strict(kind.model_json_schema())
    return made


def schema_name(kind: type[BaseModel]) -> str:
    """A name that endpoints accept: letters, digits, _ and -, at most 64."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", kind.__name__)[:64]


def _strict(node: Any) -> Any:
    if isinstance(node, list):
        return [_strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    out: dict[str, Any] = {}
    for key, value in node.items():
        if key in ("properties", "$defs"):  # their keys are names, not keywords
            out[key] = {name: _strict(item) for name, item in value.items()}
        elif key not in _DROPPED:
            out[key] = _strict(value)
    if node.get("type") == "object":
        out["additionalProperties"] = False
        out["required"] = list(node.get("properties", {}))
    return out
