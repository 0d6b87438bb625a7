"""`corpusmill doctor`: is this machine, this configuration and this store fit for a run?"""

from typing import Annotated

import typer

from .common import ConfigOption, JsonOption, SetOption, emit, load, out

MARKS = {"ok": ("ok  ", "green"), "info": ("info", "dim"), "warn": ("warn", "yellow"), "fail": ("FAIL", "bold red")}


def command(
    index: Annotated[str | None, typer.Argument(metavar="[INDEX]", help="Also check that this is writable.")] = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Check Java, memory, disk, packages, the models, the store and the GPU. Exit 1 if something would stop a run."""
    from ..health import examine

    settings = load(config, assignments).settings
    found = []
    console = out()
    for check in examine(settings, index):
        found.append(check)
        if not json:
            mark, style = MARKS[check.status]
            console.print(mark, style=style, end="  ")
            console.print(f"{check.name}: {check.detail}")
    failed = [check for check in found if check.status == "fail"]
    if json:
        checks = [{"name": c.name, "status": c.status, "detail": c.detail} for c in found]
        emit({"ok": not failed, "checks": checks})
    if failed:
        raise typer.Exit(1)
