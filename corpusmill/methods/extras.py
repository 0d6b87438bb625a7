"""Optional modules of a method's package, found by name so that nothing has to be registered.

`estimating.estimate_calls(settings, chunk_tokens) -> MethodEstimate`   what its model calls will be (see estimate.py)
`estimating.query_calls(settings) -> int`                               model calls of one question at most (costs.py)
`report.sections(view) -> Sequence[Section]`                            its part of the run report (see report/page.py)
"""

import importlib
import importlib.util
from types import ModuleType

from corpusmill.methods.registry import get_method


def method_extra(name: str, module: str) -> ModuleType | None:
    """The module of that name beside a method's own, None where the method has none. Raises UnknownMethodError."""
    package = type(get_method(name)).__module__.rpartition(".")[0]
    full = f"{package}.{module}"
    return importlib.import_module(full) if importlib.util.find_spec(full) is not None else None
