"""Build steps: one Ray task makes the files of an index in a scratch folder and publishes them to the store."""

import json
import queue
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import ray
from pydantic import BaseModel, ConfigDict

from corpusmill.digest import RowsDigest
from corpusmill.drafting import StepIndices, draft_view, fitting, table_entry
from corpusmill.errors import CorpusmillError, RunFailedError
from corpusmill.planning import made_from, resolved_plan
from corpusmill.run import Progress, ProgressEvent, RunSpec
from corpusmill.steps import BuildStep, ResolvedPlan
from corpusmill.store import layout
from corpusmill.store.draft import Draft
from corpusmill.store.manifest import FileEntry, IndexFileEntry
from corpusmill.store.objects import open_store
from corpusmill.store.tables import file_entry, write_table_file
from corpusmill.store.view import SnapshotView
from ray_actors.clustering_pool import clustering_replicas
from ray_actors.failures import MAX_RETRIES, as_error, root_cause
from ray_actors.metrics import tell_documents


class TableBuildContext:
    """What a build step reads and where it writes (satisfies steps.BuildContext)."""

    def __init__(
        self,
        spec: RunSpec,
        step: BuildStep,
        view: SnapshotView,
        scratch: Path,
        messages: "queue.SimpleQueue[str | None]",
        clustering: Sequence[Any],
    ) -> None:
        self.settings = step.settings
        self.scratch = scratch
        self.seed = spec.settings.run.seed
        self._indices = StepIndices(step, view)
        self.written: dict[str, list[tuple[FileEntry, RowsDigest]]] = {table.name: [] for table in step.outputs}
        self._run = spec.run
        self._step = step
        self._view = view
        self._messages = messages
        self._clustering = clustering

    def index_file(self, step: str, name: str) -> Path:
        return self._indices(step, name)

    def batches(self, table: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        return self._view.batches(table, columns)

    def rows(self, table: str) -> int:
        return self._view.rows(table)

    def put(self, table: str, rows: pa.Table) -> None:
        spec = next((output for output in self._step.outputs if output.name == table), None)
        if spec is None:
            raise ValueError(f"step {self._step.name!r} has no table {table!r}; tables: {sorted(self.written)}")
        kept = fitting(self._step.name, spec, rows)
        if kept.num_rows:
            key = layout.data_key(self._run, table)
            self.written[table].append(write_table_file(self._view.store, key, kept, spec.schema))

    def cluster(self, call: Callable[..., Sequence[np.ndarray]], *args: object) -> Sequence[np.ndarray]:
        """On the first replica of the clustering pool; here where there is none."""
        if not self._clustering:
            return call(*args)
        (result,) = ray.get(self._clustering[0].run.remote([(call, args)]))
        if isinstance(result, Exception):
            raise result
        return cast(Sequence[np.ndarray], result)

    def progress(self, message: str) -> None:
        self._messages.put(message)


class _Made(BaseModel):
    """Files by name; files of tables by table, each with the digest of its rows."""

    model_config = ConfigDict(extra="forbid")

    files: dict[str, FileEntry]
    tables: dict[str, list[tuple[FileEntry, str]]]


def run_build(
    spec: RunSpec, draft: Draft, step_name: str, progress: Progress, plan: ResolvedPlan | None = None
) -> Draft:
    """Run one build step; the draft with its files and tables. Needs a running Ray (`ray_session`).

    `plan` is that of the settings if none is given.
    """
    started = time.monotonic()
    given, plan = plan, plan or resolved_plan(spec.settings)
    step = build_step(plan, step_name)
    draft = draft.model_copy(deep=True)
    identity = made_from(step, plan, draft)
    tell_documents(draft.counts)
    progress(ProgressEvent(step_name, 0, len(step.files), "files"))
    made = _Made(files={}, tables={})
    task: Any = ray.remote(_build).options(num_cpus=1, max_retries=MAX_RETRIES)
    clustering = clustering_replicas(spec.settings) if step.outputs else []
    try:
        for reference in task.remote(spec, draft, step_name, clustering, given):
            message = json.loads(ray.get(reference))
            if "error" in message:
                raise as_error(*message["error"])
            if "progress" in message:
                progress(ProgressEvent(step_name, 0, len(step.files), "files", message=message["progress"]))
            else:
                made = _Made.model_validate(message["made"])
    except ray.exceptions.RayError as error:
        raise RunFailedError(f"index step {step_name!r} failed: {root_cause(error)}") from error
    for table in step.outputs:
        written = made.tables[table.name]
        digest = sum((RowsDigest.parse(file.rows, text) for file, text in written), RowsDigest())
        files = [file for file, _ in written]
        draft.put_table(table_entry(spec.settings, plan, step, table, files, digest, identity))
    for name, file in sorted(made.files.items()):
        entry = IndexFileEntry(
            step=step_name, fingerprint=plan.fingerprints[step_name], made_from=identity, name=name, file=file
        )
        draft.put_index_file(entry)
    draft.costs = draft.costs.model_copy(update={"seconds": draft.costs.seconds + time.monotonic() - started})
    progress(ProgressEvent(step_name, len(made.files), len(step.files), "files"))
    return draft


def build_step(plan: ResolvedPlan, name: str) -> BuildStep:
    """The build step of that name. Raises ValueError with the choices."""
    found = {step.name: step for step in plan.of_kind(BuildStep)}
    step = found.get(name)
    if not isinstance(step, BuildStep):
        raise ValueError(f"the plan has no build step {name!r}; build steps: {sorted(found)}")
    return step


def _build(
    spec: RunSpec, draft: Draft, step_name: str, clustering: Sequence[Any], plan: ResolvedPlan | None
) -> Iterator[str]:
    """JSON messages: {progress} while it works, then {made} or {error}."""
    messages: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    outcome: list[str] = []

    def work() -> None:
        try:
            made = build_files(spec, draft, step_name, messages, clustering, plan)
            outcome.append(json.dumps({"made": made.model_dump(mode="json")}))
        except CorpusmillError as error:
            outcome.append(json.dumps({"error": (type(error).__name__, str(error))}))
        except Exception as error:  # noqa: BLE001 - told to the driver, which fails the run with it
            outcome.append(json.dumps({"error": ("RunFailedError", f"{step_name}: {type(error).__name__}: {error}")}))
        finally:
            messages.put(None)

    thread = threading.Thread(target=work, name=step_name)
    thread.start()
    while (message := messages.get()) is not None:
        yield json.dumps({"progress": message})
    thread.join()
    yield outcome[0]


def build_files(
    spec: RunSpec,
    draft: Draft,
    step_name: str,
    messages: "queue.SimpleQueue[str | None]",
    clustering: Sequence[Any] = (),
    plan: ResolvedPlan | None = None,
) -> _Made:
    """Run the step here and put what it made into the store. Raises RunFailedError on files not promised."""
    store = open_store(spec.index, spec.settings.store)
    plan = plan or resolved_plan(spec.settings)
    step = build_step(plan, step_name)
    view = draft_view(store, draft, plan)
    with tempfile.TemporaryDirectory(prefix="corpusmill-index-") as folder:
        scratch = Path(folder)
        context = TableBuildContext(spec, step, view, scratch, messages, clustering)
        step.run(context)
        made = sorted(path.name for path in scratch.iterdir())
        if made != sorted(step.files):
            raise RunFailedError(f"index step {step_name!r} made the files {made} instead of {sorted(step.files)}")
        files = {
            name: file_entry(store, layout.index_file_key(spec.run, step_name, name), scratch / name) for name in made
        }
        tables = {name: [(file, own.hex) for file, own in written] for name, written in context.written.items()}
        return _Made(files=files, tables=tables)
