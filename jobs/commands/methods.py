"""`corpusmill methods`: the indexing and retrieval methods that are installed, and what they cost."""

from .common import ConfigOption, JsonOption, SetOption, emit, load, out


def command(config: ConfigOption = None, assignments: SetOption = None, json: JsonOption = False) -> None:
    """List the indexing and retrieval methods: their query modes and what they ask of models."""
    from dataclasses import asdict

    from corpusmill.methods.costs import method_costs
    from corpusmill.methods.registry import get_method, method_names

    settings = load(config, assignments).settings
    found = [(get_method(name), method_costs(name, settings)) for name in method_names()]
    if json:
        rows = [
            {"name": own.name, "summary": own.summary, "modes": list(own.modes), "costs": asdict(costs)}
            for own, costs in found
        ]
        emit({"methods": rows})
        return
    console = out()
    for method, costs in found:
        console.print(method.name, style="bold")
        console.print(f"  {method.summary}")
        console.print(f"  modes: {', '.join(method.modes)}")
        console.print(f"  {costs.sentence()}")
