"""`corpusmill status`: the current snapshot of an index, and how its last run stands."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from corpusmill.errors import IndexNotFoundError

from .common import ConfigOption, IndexArgument, JsonOption, SetOption, duration, emit, load, number, out

if TYPE_CHECKING:
    from corpusmill.store.objects import ObjectStore
    from corpusmill.store.runs import RunState

STALE_AFTER = timedelta(minutes=5)  # a running stage renews its heartbeat every few seconds


def command(
    index: IndexArgument, config: ConfigOption = None, assignments: SetOption = None, json: JsonOption = False
) -> None:
    """Show the current snapshot and the last run: running, published, failed, or stopped by its budget."""
    from corpusmill.store.commit import current
    from corpusmill.store.objects import open_store

    store = open_store(index, load(config, assignments).settings.store)
    manifest, state = current(store), last_run(store)
    if manifest is None and state is None:
        raise IndexNotFoundError(f"no index at {store.uri}: neither a snapshot nor a run")
    running = state is not None and is_running(state, datetime.now(UTC))
    if json:
        emit(
            {
                "index": store.uri,
                "snapshot": None if manifest is None else manifest.number,
                "digest": None if manifest is None else manifest.digest,
                "created": None if manifest is None else manifest.created,
                "documents": 0 if manifest is None else manifest.counts.documents,
                "methods": [] if manifest is None else [method.name for method in manifest.methods],
                "counts": None if manifest is None else manifest.counts.model_dump(),
                "running": running,
                "run": None if state is None else state.model_dump(mode="json"),
            }
        )
        return
    console = out()
    if manifest is None:
        console.print(f"{store.uri}: nothing published yet")
    else:
        c = manifest.counts
        console.print(f"{store.uri}: snapshot {manifest.number}, digest {manifest.digest}, {manifest.created}")
        console.print(
            f"  {number(c.documents)} documents: {number(c.indexed)} indexed, {number(c.partial)} of them partial, "
            f"{number(c.empty)} empty, {number(c.quarantined)} quarantined"
        )
        console.print(f"  methods: {', '.join(method.name for method in manifest.methods)}")
    if state is not None:
        console.print(f"last run {state.run}: {_told(state, running)}")


def _told(state: "RunState", running: bool) -> str:
    of = f"{number(state.done)}/{number(state.total)}" if state.total else ""
    if running:
        return f"running, stage {state.stage} {of}".rstrip()
    if state.status == "running":
        age = datetime.now(UTC) - datetime.fromisoformat(state.heartbeat)
        return f"stopped in stage {state.stage} {of} (no sign of life for {duration(age.total_seconds())})"
    return f"{state.status}{f': {state.message}' if state.message else ''}"


def is_running(state: "RunState", now: datetime) -> bool:
    """A run that says it is running and has given a sign of life lately."""
    return state.status == "running" and now - datetime.fromisoformat(state.heartbeat) < STALE_AFTER


def last_run(store: "ObjectStore") -> "RunState | None":
    """The state of the run that started last; None if there was none."""
    from corpusmill.store.runs import RunFiles

    names = sorted({info.key.split("/")[1] for info in store.list("runs/") if info.key.endswith("/state.json")})
    return RunFiles(store, names[-1]).state() if names else None
