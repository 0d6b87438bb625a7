"""`corpusmill methods`: the indexing and retrieval methods that are installed."""

from .common import JsonOption, emit, out


def command(json: JsonOption = False) -> None:
    """List the indexing and retrieval methods, with their query modes."""
    from corpusmill.methods.registry import get_method, method_names

    found = [get_method(name) for name in method_names()]
    if json:
        emit({"methods": [{"name": m.name, "summary": m.summary, "modes": list(m.modes)} for m in found]})
        return
    console = out()
    for method in found:
        console.print(method.name, style="bold")
        console.print(f"  {method.summary}")
        console.print(f"  modes: {', '.join(method.modes)}")
