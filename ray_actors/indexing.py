"""Build steps: one Ray task makes the files of an index in a scratch folder and publishes them to the store."""

import json
import queue
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import ray

from corpusmill.errors import CorpusmillError, RunFailedError
from corpusmill.planning import made_from, resolved_plan
from corpusmill.run import Progress, ProgressEvent, RunSpec
from corpusmill.steps import BuildStep, ResolvedPlan
from corpusmill.store import layout
from corpusmill.store.draft import Draft
from corpusmill.store.manifest import FileEntry, IndexFileEntry
from corpusmill.store.objects import open_store
from corpusmill.store.tables import file_entry
from corpusmill.store.view import SnapshotView
from ray_actors.failures import MAX_RETRIES, as_error, root_cause


class TableBuildContext:
    """What a build step reads and where it writes (satisfies steps.BuildContext)."""

    def __init__(
        self, step: BuildStep, view: SnapshotView, scratch: Path, seed: int, messages: "queue.SimpleQueue[str | None]"
    ) -> None:
        self.settings = step.settings
        self.scratch = scratch
        self.seed = seed
        self._view = view
        self._messages = messages

    def batches(self, table: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        return self._view.batches(table, columns)

    def rows(self, table: str) -> int:
        return self._view.rows(table)

    def progress(self, message: str) -> None:
        self._messages.put(message)


def run_build(spec: RunSpec, draft: Draft, step_name: str, progress: Progress) -> Draft:
    """Run one build step; the draft with its files. Needs a running Ray (`ray_session`)."""
    started = time.monotonic()
    plan = resolved_plan(spec.settings)
    step = build_step(plan, step_name)
    draft = draft.model_copy(deep=True)
    identity = made_from(step, plan, draft)
    progress(ProgressEvent(step_name, 0, len(step.files), "files"))
    files: dict[str, FileEntry] = {}
    task: Any = ray.remote(_build).options(num_cpus=1, max_retries=MAX_RETRIES)
    try:
        for reference in task.remote(spec, draft, step_name):
            message = json.loads(ray.get(reference))
            if "error" in message:
                raise as_error(*message["error"])
            if "progress" in message:
                progress(ProgressEvent(step_name, 0, len(step.files), "files", message=message["progress"]))
            else:
                files = {name: FileEntry.model_validate(file) for name, file in message["files"].items()}
    except ray.exceptions.RayError as error:
        raise RunFailedError(f"index step {step_name!r} failed: {root_cause(error)}") from error
    for name, file in sorted(files.items()):
        entry = IndexFileEntry(
            step=step_name, fingerprint=plan.fingerprints[step_name], made_from=identity, name=name, file=file
        )
        draft.put_index_file(entry)
    draft.costs = draft.costs.model_copy(update={"seconds": draft.costs.seconds + time.monotonic() - started})
    progress(ProgressEvent(step_name, len(files), len(step.files), "files"))
    return draft


def build_step(plan: ResolvedPlan, name: str) -> BuildStep:
    """The build step of that name. Raises ValueError with the choices."""
    found = {step.name: step for step in plan.of_kind(BuildStep)}
    step = found.get(name)
    if not isinstance(step, BuildStep):
        raise ValueError(f"the plan has no build step {name!r}; build steps: {sorted(found)}")
    return step


def _build(spec: RunSpec, draft: Draft, step_name: str) -> Iterator[str]:
    """JSON messages: {progress} while it works, then {files} or {error}."""
    messages: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    outcome: list[str] = []

    def work() -> None:
        try:
            files = build_files(spec, draft, step_name, messages)
            outcome.append(json.dumps({"files": {name: file.model_dump() for name, file in files.items()}}))
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
    spec: RunSpec, draft: Draft, step_name: str, messages: "queue.SimpleQueue[str | None]"
) -> dict[str, FileEntry]:
    """Run the step here and put its files into the store, by name. Raises RunFailedError on files not promised."""
    store = open_store(spec.index, spec.settings.store)
    plan = resolved_plan(spec.settings)
    step = build_step(plan, step_name)
    view = SnapshotView(store, draft, specs=[spec for step in plan.steps for spec in step.outputs])
    with tempfile.TemporaryDirectory(prefix="corpusmill-index-") as folder:
        scratch = Path(folder)
        step.run(TableBuildContext(step, view, scratch, spec.settings.run.seed, messages))
        made = sorted(path.name for path in scratch.iterdir())
        if made != sorted(step.files):
            raise RunFailedError(f"index step {step_name!r} made the files {made} instead of {sorted(step.files)}")
        return {
            name: file_entry(store, layout.index_file_key(spec.run, step_name, name), scratch / name) for name in made
        }
