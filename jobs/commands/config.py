"""`corpusmill config show`: the settings that a command would run with, and where each value came from."""

from typing import Annotated

import typer
from pydantic import BaseModel

from .common import ConfigOption, JsonOption, SetOption, emit, load, out

app = typer.Typer(help="The configuration.", no_args_is_help=True)


@app.callback()
def _root() -> None:
    pass


@app.command("show")
def show(
    config: ConfigOption = None,
    assignments: SetOption = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only values that are not defaults.")] = False,
    json: JsonOption = False,
) -> None:
    """Print every setting with its value and its origin: default, file, environment or flag."""
    from corpusmill.settings_sources import value_at

    loaded = load(config, assignments)
    if json:
        emit({"settings": loaded.settings.model_dump(mode="json"), "origins": dict(loaded.origins)})
        return
    rows = [(key, _shown(value_at(loaded.settings, key)), origin) for key, origin in loaded.origins.items()]
    if changed:
        rows = [row for row in rows if row[2] != "default"]
    width = max((len(f"{key} = {value}") for key, value, _ in rows), default=0)
    console = out()
    for key, value, origin in rows:
        console.print(f"{f'{key} = {value}':<{min(width, 72)}}  # {origin}")


def _shown(value: object) -> str:
    """A value as YAML would write it on one line."""
    import yaml

    plain = [_plain(item) for item in value] if isinstance(value, tuple) else value
    return yaml.safe_dump(plain, default_flow_style=True, width=10_000, allow_unicode=True).split("\n...")[0].strip()


def _plain(item: object) -> object:
    return item.model_dump(mode="json") if isinstance(item, BaseModel) else item
