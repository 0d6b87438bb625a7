"""The files of one run in the store: its specification, what its stages hand on, its state and report."""

from datetime import UTC, datetime
from typing import Literal

from pydantic import BaseModel, ConfigDict

from corpusmill.processes import ProcessMark
from corpusmill.run import IngestResult, RunSpec
from corpusmill.store import layout
from corpusmill.store.draft import Draft
from corpusmill.store.objects import ObjectStore

RunStatus = Literal["running", "published", "unchanged", "failed", "budget"]


class RunState(BaseModel):
    """How a run stands; `heartbeat` is renewed every few seconds while it runs. `process` is the one that runs it (None
    in states of an earlier corpusmill)."""

    model_config = ConfigDict(extra="forbid")

    run: str
    status: RunStatus
    stage: str
    started: str
    heartbeat: str
    source: str | None = None
    snapshot: int | None = None
    message: str | None = None
    done: int = 0
    total: int | None = None
    process: ProcessMark | None = None


class StageFailure(BaseModel):
    """`type` is the name of an exception of corpusmill.errors."""

    model_config = ConfigDict(extra="forbid")

    type: str
    message: str


class StageProgress(BaseModel):
    model_config = ConfigDict(extra="forbid")

    done: int
    total: int | None
    unit: str


class StageReport(BaseModel):
    """How one stage's program stands, told by itself: `done`, or failed with `error`, or at work, last seen `at`."""

    model_config = ConfigDict(extra="forbid")

    stage: str
    at: str
    done: bool = False
    error: StageFailure | None = None
    progress: StageProgress | None = None

    @property
    def ended(self) -> bool:
        return self.done or self.error is not None


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class RunFiles:
    """Reads and writes runs/<run>/*."""

    def __init__(self, store: ObjectStore, run: str) -> None:
        self._store = store
        self._run = run

    def spec(self) -> RunSpec:
        return RunSpec.model_validate_json(self._get("spec.json"))

    def put_spec(self, spec: RunSpec) -> None:
        self._put("spec.json", spec)

    def ingest(self) -> IngestResult:
        return IngestResult.model_validate_json(self._get("ingest.json"))

    def put_ingest(self, result: IngestResult) -> None:
        self._put("ingest.json", result)

    def draft(self) -> Draft:
        return Draft.model_validate_json(self._get("draft.json"))

    def put_draft(self, draft: Draft) -> None:
        self._put("draft.json", draft)

    def state(self) -> RunState:
        return RunState.model_validate_json(self._get("state.json"))

    def put_state(self, state: RunState) -> None:
        self._put("state.json", state)

    def stage(self, name: str) -> StageReport | None:
        """What the program of a stage said last; None before it has said anything."""
        try:
            return StageReport.model_validate_json(self._get(f"stages/{name}.json"))
        except FileNotFoundError:
            return None

    def put_stage(self, name: str, report: StageReport) -> None:
        self._put(f"stages/{name}.json", report)

    def put_report(self, html: str) -> str:
        """Store the report page; returns its key."""
        key = layout.run_key(self._run, "report.html")
        self._store.put(key, html.encode())
        return key

    def _get(self, name: str) -> bytes:
        return self._store.get(layout.run_key(self._run, name))

    def _put(self, name: str, value: BaseModel) -> None:
        self._store.put(layout.run_key(self._run, name), value.model_dump_json().encode())
