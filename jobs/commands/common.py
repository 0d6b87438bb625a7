"""What the commands share: options, settings, output, and opening an index. Heavy imports stay inside functions."""

import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from corpusmill.settings import Settings
    from corpusmill.settings_sources import LoadedSettings
    from corpusmill.store.manifest import Manifest
    from corpusmill.store.objects import ObjectStore
    from corpusmill.store.view import SnapshotView

IndexArgument = Annotated[str, typer.Argument(metavar="INDEX", help="A folder, file:// or s3:// URI of an index.")]
ConfigOption = Annotated[
    str | None,
    typer.Option("--config", "-c", metavar="FILE", help="A YAML file, or the bare name of a shipped one (local, …)."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="One setting, e.g. spark.partitions=16. Repeatable."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON value on stdout, also of an error.")]
SnapshotOption = Annotated[
    int | None, typer.Option("--snapshot", metavar="N", help="Read this snapshot instead of the current one.")
]


def load(
    config: str | None = None,
    assignments: list[str] | None = None,
    flags: Mapping[str, object] | None = None,
    manifest: "Manifest | None" = None,
) -> "LoadedSettings":
    """Settings from the layers; `flags` are dedicated options (None: not given), which beat `--set`.

    With a `manifest`, models, embedder, methods and query start from what that snapshot was made with.
    """
    from corpusmill.settings_sources import Recorded, load_settings, parse_assignments

    overrides = parse_assignments(assignments or [])
    for key, value in (flags or {}).items():
        if value is not None:
            overrides[key] = value if isinstance(value, str) else json.dumps(value)
    recorded = Recorded(manifest.number, manifest.config) if manifest is not None else None
    return load_settings(config, overrides, os.environ, recorded=recorded)


def emit(value: object) -> None:
    """One JSON value on stdout."""
    json.dump(value, sys.stdout, ensure_ascii=False, indent=2)
    sys.stdout.write("\n")
    sys.stdout.flush()


def emit_array(values: Iterable[object]) -> None:
    """A JSON array on stdout, written as it comes, so that its length does not matter. Nothing is written before the
    first value is there: an error until then leaves stdout to its own JSON value."""
    started = False
    for value in values:
        sys.stdout.write((",\n  " if started else "[\n  ") + json.dumps(value, ensure_ascii=False))
        started = True
    sys.stdout.write("\n]\n" if started else "[]\n")
    sys.stdout.flush()


def out() -> "Console":
    """The console of results. Text is never read as markup."""
    from rich.console import Console

    return Console(markup=False, highlight=False, soft_wrap=not sys.stdout.isatty())


def messages() -> "Console":
    """The console of progress and messages."""
    from rich.console import Console

    return Console(stderr=True, markup=False, highlight=False, soft_wrap=not sys.stderr.isatty())


def number(value: float) -> str:
    """12,345 or 0.123: for people."""
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 100 else f"{value:,.3g}"


def duration(seconds: float) -> str:
    """7.3 s, 2 min 05 s, 3 h 12 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


@dataclass(frozen=True)
class OpenIndex:
    """A pinned snapshot of an index."""

    store: "ObjectStore"
    manifest: "Manifest"
    view: "SnapshotView"


def open_index(index: str, settings: "Settings", snapshot: int | None = None) -> OpenIndex:
    """Open a snapshot for reading. Raises IndexNotFoundError naming what was looked for and what there is."""
    from corpusmill.store import commit
    from corpusmill.store.objects import open_store
    from corpusmill.store.view import SnapshotView

    store = open_store(index, settings.store)
    manifest = commit.open_index(store, snapshot)
    return OpenIndex(store, manifest, SnapshotView(store, manifest))
