"""`corpusmill status`: the current snapshot of an index, and how its last run stands."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal

from corpusmill.errors import IndexNotFoundError

from .common import ConfigOption, IndexArgument, JsonOption, SetOption, duration, emit, load, number, out

if TYPE_CHECKING:
    from corpusmill.store.objects import ObjectStore
    from corpusmill.store.runs import RunState

STALE_AFTER = timedelta(minutes=5)  # a run renews its heartbeat every few seconds, whatever it does
SILENT_AFTER = timedelta(seconds=30)  # what the store's delays and a busy machine hardly ever explain


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
    at = datetime.now(UTC)
    running = state is not None and is_running(state, at)
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
                "process": None if state is None else process_state(state),
                "silent_seconds": None if state is None else round(silence(state, at).total_seconds()),
                "run": None if state is None else state.model_dump(mode="json"),
            }
        )
        return
    console = out()
    if manifest is None:
        console.print(f"{store.uri}: nothing published yet")
    else:
        c = manifest.counts
        partial = f" ({number(c.partial)} of them partial)" if c.partial else ""
        console.print(f"{store.uri}: snapshot {manifest.number}, digest {manifest.digest}, {manifest.created}")
        console.print(
            f"  {number(c.documents)} documents: {number(c.indexed)} indexed{partial}, {number(c.empty)} empty, "
            f"{number(c.quarantined)} quarantined"
        )
        console.print(f"  methods: {', '.join(method.name for method in manifest.methods)}")
    if state is not None:
        console.print(f"last run {state.run}: {told(state, at)}")


def told(state: "RunState", now: datetime) -> str:
    """How a run stands, for people."""
    if state.status in ("published", "unchanged") and state.message:
        return state.message
    if state.status != "running":
        return f"{state.status}{f': {state.message}' if state.message else ''}"
    of = f" {number(state.done)}/{number(state.total)}" if state.total else ""
    silent = silence(state, now)
    seconds = round(silent.total_seconds())
    quiet = f"no sign of life for {f'{seconds} s' if seconds < 60 else duration(seconds)}"
    if process_state(state) == "gone" and state.process is not None:
        return (
            f"stopped in stage {state.stage}{of}: its process {state.process.pid} is gone; "
            "sealed work is kept, the same command resumes"
        )
    if silent >= STALE_AFTER:
        return f"stopped in stage {state.stage}{of}: {quiet}"
    return f"running, stage {state.stage}{of}" + (f"; {quiet}" if silent >= SILENT_AFTER else "")


def silence(state: "RunState", now: datetime) -> timedelta:
    """Since the run's last sign of life."""
    return max(timedelta(), now - datetime.fromisoformat(state.heartbeat))


def process_state(state: "RunState") -> Literal["alive", "gone", "unknown"]:
    """Whether the process that runs it is there; unknown where it runs on another host."""
    from corpusmill.processes import lives

    living = None if state.process is None else lives(state.process)
    return "unknown" if living is None else "alive" if living else "gone"


def is_running(state: "RunState", now: datetime) -> bool:
    """A run that says it is running, whose process is not known to be gone, and that gave a sign of life lately."""
    return state.status == "running" and process_state(state) != "gone" and silence(state, now) < STALE_AFTER


def last_run(store: "ObjectStore") -> "RunState | None":
    """The state of the run that started last; None if there was none."""
    from corpusmill.store.runs import RunFiles

    begun: dict[str, float] = {}
    stated: set[str] = set()
    for info in store.list("runs/"):
        _, run, name = info.key.split("/", 2)
        if name == "spec.json":
            begun[run] = info.modified
        elif name == "state.json":
            stated.add(run)
    last = max(stated, key=lambda run: (begun.get(run, 0.0), run), default=None)
    return RunFiles(store, last).state() if last else None
