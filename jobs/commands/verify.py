"""`corpusmill verify`: is a snapshot sound, down to its bytes?"""

import typer

from .common import ConfigOption, IndexArgument, JsonOption, SetOption, SnapshotOption, emit, load, open_index, out


def command(
    index: IndexArgument,
    snapshot: SnapshotOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Check every file, digest and cross-reference of a snapshot. Exit 1 if anything is wrong."""
    from corpusmill.methods.extras import method_extra
    from corpusmill.methods.registry import method_names
    from corpusmill.store.verify import verify

    settings = load(config, assignments).settings
    opened = open_index(index, settings, snapshot)
    names = [entry.name for entry in opened.manifest.methods if entry.name in method_names()]
    extras = [method_extra(name, "checks") for name in names]
    problems = verify(opened.store, opened.manifest, [check for extra in extras if extra for check in extra.CHECKS])
    if json:
        emit({"ok": not problems, "problems": [str(problem) for problem in problems]})
    else:
        console = out()
        for problem in problems:
            console.print(str(problem))
        verdict = f"{len(problems)} problems" if problems else "sound"
        console.print(f"snapshot {opened.manifest.number} of {opened.store.uri}: {verdict}")
    if problems:
        raise typer.Exit(1)
