"""The one registry of methods. Third packages join through the entry point group `corpusmill.methods`."""

import importlib
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from pydantic import BaseModel

from corpusmill.errors import UnknownMethodError

if TYPE_CHECKING:
    from corpusmill.methods.protocol import Method

# name -> (module of the settings type, module of the method); both expose SETTINGS / METHOD
_BUILT_IN = {
    "bm25": ("corpusmill.methods.bm25.settings", "corpusmill.methods.bm25.method"),
    "contextrag": ("corpusmill.methods.contextrag.settings", "corpusmill.methods.contextrag.method"),
    "dense": ("corpusmill.methods.dense.settings", "corpusmill.methods.dense.method"),
    "dense-rerank": ("corpusmill.methods.dense_rerank.settings", "corpusmill.methods.dense_rerank.method"),
    "flexstructrag": ("corpusmill.methods.flexstructrag.settings", "corpusmill.methods.flexstructrag.method"),
}


@cache
def _modules() -> dict[str, tuple[str, str]]:
    found = dict(_BUILT_IN)
    for entry in entry_points(group="corpusmill.methods"):
        found[entry.name] = (f"{entry.value}.settings", f"{entry.value}.method")
    return found


def attribute(name: str) -> str:
    """The name of a method where Python or YAML wants an identifier: `dense_rerank` for `dense-rerank`."""
    return name.replace("-", "_")


def method_names() -> tuple[str, ...]:
    return tuple(sorted(_modules()))


def method_settings_types() -> dict[str, type[BaseModel]]:
    """Settings type of each method, without importing the methods themselves."""
    return {name: importlib.import_module(modules[0]).SETTINGS for name, modules in sorted(_modules().items())}


def get_method(name: str) -> "Method":
    """The method of that name. Raises UnknownMethodError with the choices."""
    if name not in _modules():
        raise UnknownMethodError(f"unknown method {name!r}; choices: {', '.join(method_names())}")
    method: Method = importlib.import_module(_modules()[name][1]).METHOD
    return method
