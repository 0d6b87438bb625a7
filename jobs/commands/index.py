"""`corpusmill index`: build or update an index from a source."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Annotated

import typer

from .common import ConfigOption, JsonOption, SetOption, duration, emit, load, messages, number, out

if TYPE_CHECKING:
    from rich.console import Console

    from corpusmill.estimate import Estimate
    from corpusmill.settings import Settings
    from corpusmill.settings_sources import LoadedSettings

    from ..driver import RunOutcome

PREVIEW_LISTING = 50_000  # entries of the source that the preview before a run lists
PREVIEW_SAMPLE = 12


def command(
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="A folder, file, glob, JSON lines or Parquet file, or s3:// prefix."),
    ],
    to: Annotated[str, typer.Option("--to", metavar="INDEX", help="A folder, file:// or s3:// URI. Made if absent.")],
    method: Annotated[
        list[str] | None, typer.Option("--method", "-m", help="Indexing method; repeatable. See `corpusmill methods`.")
    ] = None,
    source_id: Annotated[
        str | None,
        typer.Option("--source-id", help="Name of this source in the index (default: its URI). Deletions stay in it."),
    ] = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    budget: Annotated[
        float | None, typer.Option("--budget", help="Most to spend, in the currency of the prices; then exit 4.")
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Afterwards, propose retrieval thresholds for this embedder and corpus.")
    ] = False,
    refit: Annotated[
        bool, typer.Option("--refit", help="Train anew what an index keeps from run to run (a method's codebooks).")
    ] = False,
    run: Annotated[
        str | None, typer.Option("--run", metavar="NAME", help="The run's name in the index (default: made up).")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Build or update an index. Unchanged documents cost nothing; a run that fails leaves the index as it was."""
    flags = {"run.methods": method or None, "run.budget": budget}
    settings = of_index(load(config, assignments, flags), source, to)
    console = messages()
    estimate = _preview(settings, source, to, console)
    from ..driver import run_index
    from .progress import display

    with _terminable(), display(console) as show:
        outcome = run_index(
            settings,
            source=source,
            index=to,
            progress=show,
            source_id=source_id,
            estimate=estimate,
            refit=refit,
            run=run,
        )
    if not json:
        _summary(outcome, to, out())
    thresholds = _calibrate(to, settings, console) if calibrate else {}
    if json:
        emit(as_json(outcome) | ({"thresholds": thresholds} if calibrate else {}))
    if outcome.exit_code:
        raise typer.Exit(outcome.exit_code)


def of_index(loaded: "LoadedSettings", source: str, to: str) -> "Settings":
    """The settings for this index: it keeps the methods it has, and no other is added unless one is asked for; its own
    files are no documents where it lies inside the source."""
    from corpusmill.planning import with_methods
    from corpusmill.sources.listing import Source, without_index
    from corpusmill.store.commit import current
    from corpusmill.store.objects import open_store

    settings = loaded.settings
    store = open_store(to, settings.store)
    settings = without_index(Source.parse(source, settings), store.uri, settings)
    parent = current(store)
    if parent is None:
        return settings
    held = tuple(method.name for method in parent.methods)
    if loaded.origins.get("run.methods") == "default":
        return settings.model_copy(update={"run": settings.run.model_copy(update={"methods": held})})
    return with_methods(settings, held)


def as_json(outcome: "RunOutcome") -> dict[str, object]:
    """What `--json` prints; scripts rely on these keys."""
    counts = outcome.counts
    return {
        "run": outcome.run,
        "snapshot": outcome.snapshot,
        "digest": outcome.digest,
        "new": outcome.new,
        "documents": {
            "new": counts.new,
            "changed": counts.changed,
            "moved": counts.moved,
            "deleted": counts.deleted,
            "unchanged": counts.unchanged,
            "partial": outcome.partial,
            "empty": outcome.empty,
            "quarantined": outcome.quarantined,
        },
        "failed_parts": outcome.failed_parts,
        "calls": outcome.calls,
        "cached": outcome.cached,
        "tokens": outcome.tokens,
        "cost": outcome.cost,
        "seconds": round(outcome.seconds, 3),
        "stages": {name: round(seconds, 3) for name, seconds in outcome.stage_seconds.items()},
        "report": outcome.report_key,
        "message": outcome.message,
    }


def _preview(settings: "Settings", source: str, to: str, console: "Console") -> "Estimate":
    """Print what will be read and what it may cost, before any engine starts. Refuses a bad source or method here."""
    from corpusmill.estimate import estimate_source
    from corpusmill.methods.registry import get_method

    for name in settings.run.methods:
        get_method(name)
    console.print(f"index {source} -> {to}")
    console.print(f"  methods {', '.join(settings.run.methods)}; {_models(settings)}")
    estimate = estimate_source(settings, source, sample=PREVIEW_SAMPLE, most_listed=PREVIEW_LISTING)
    for text in estimate.lines():
        console.print(f"  {text}")
    return estimate


def _models(settings: "Settings") -> str:
    models = settings.models
    roles = {role: models.of(role) for role in ("extract", "summarise", "plan", "answer")}
    names = {role: m.model or "embedded rules (no language model)" for role, m in roles.items()}
    distinct = sorted(set(names.values()))
    said = distinct[0] if len(distinct) == 1 else ", ".join(f"{role}: {name}" for role, name in names.items())
    return f"model {said}; embedder {settings.embedder.model or settings.embedder.backend}"


def _summary(outcome: "RunOutcome", to: str, console: "Console") -> None:
    c = outcome.counts
    console.print(outcome.message)
    console.print(f"  snapshot   {outcome.snapshot}  digest {outcome.digest}")
    console.print(
        f"  documents  {number(c.new)} new, {number(c.changed)} changed, {number(c.moved)} moved, "
        f"{number(c.deleted)} deleted, {number(c.unchanged)} unchanged"
    )
    indexed = outcome.documents - outcome.empty - outcome.quarantined
    partial = f" ({number(outcome.partial)} of them partial)" if outcome.partial else ""
    console.print(
        f"  in all     {number(outcome.documents)}: {number(indexed)} indexed{partial}, {number(outcome.empty)} empty, "
        f"{number(outcome.quarantined)} quarantined"
    )
    cost = f", cost {outcome.cost:,.4g}" if outcome.cost else ""
    console.print(
        f"  spent      {number(outcome.calls)} calls ({number(outcome.cached)} cached), {number(outcome.tokens)} tokens"
        f"{cost}, {duration(outcome.seconds)}"
    )
    if outcome.report_key:
        console.print(f"  report     {to.rstrip('/')}/{outcome.report_key}")
    if outcome.failed_parts:
        console.print(
            f"  failed     {number(outcome.failed_parts)} parts of what is made over all documents have a stand-in; "
            "the next run makes them again"
        )
    for which in ("quarantined", "partial"):
        if outcome.new and getattr(outcome, which):
            console.print(f"  see        corpusmill documents {to} --outcome {which}")


def _calibrate(to: str, settings: "Settings", console: "Console") -> dict[str, float]:
    """Measure the thresholds of the index's embedder and print them as settings; nothing is changed by itself."""
    from corpusmill.methods.extras import method_extra

    found: dict[str, float] = {}
    for name in settings.run.methods:
        extra = method_extra(name, "calibration")
        if extra is None:
            console.print(f"method {name} has no thresholds to calibrate")
            continue
        measured = asyncio.run(_measured(extra, to, settings))
        found |= {f"methods.{name}.{key}": value for key, value in measured.items()}
    if found:
        console.print("calibrated on this index; to use these values, write them into the configuration:")
    for key, value in found.items():
        console.print(f"  {key} = {value}")
    return found


async def _measured(extra: ModuleType, to: str, settings: "Settings") -> dict[str, float]:
    from corpusmill.models.embedders import build_embedder

    from .common import open_index

    embedder = build_embedder(settings.embedder)
    try:
        thresholds = await extra.calibrate(open_index(to, settings).view, embedder, seed=settings.run.seed)
    finally:
        await embedder.aclose()
    return {key: value for key, value in thresholds._asdict().items() if key.startswith("tau_")}


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends the run as Ctrl-C does, so that engines are stopped and the run's state is written."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
