"""What a run is: the specification that every stage reads, and what the stages report."""

import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from corpusmill.errors import UsageError
from corpusmill.models.contracts import Usage
from corpusmill.schemas import TableSpec, required
from corpusmill.settings import Settings
from corpusmill.store.draft import Draft
from corpusmill.store.manifest import FileEntry

# A live text that lacks a complete artifact of a document step. `segment` holds the text (rows are in its order, so
# that a reader opens few files); `missing`: steps without a complete artifact; `have` names the segments of the text
# and of each step that is complete for it, and of a text step that is not: builders must take what there is.
TODO = TableSpec(
    "todo",
    pa.schema(
        [
            required("segment", pa.string()),
            required("text_hash", pa.string()),
            required("missing", pa.list_(pa.string())),
            required("have", pa.map_(pa.string(), pa.string())),  # step -> id of the segment
        ]
    ),
    ("segment", "text_hash"),
)
TODO_SCHEMA = TODO.schema
_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class RunSpec(BaseModel):
    """One indexing run. Stages may run in other processes and on other machines: this is all they are told."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: str
    index: str  # URI of the index
    source: str | None  # None: no listing; all documents of the parent stay
    source_id: str
    settings: Settings
    parent: int | None = None  # snapshot number
    refit: bool = False  # train pinned steps anew


def run_name(given: str | None = None) -> str:
    """The name of a run: the one given, or one made of the time, so that names sort by it.

    Raises UsageError on a name that would not do in a path and as the id of a job.
    """
    if given is None:
        return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}"
    if not _RUN_NAME.fullmatch(given):
        raise UsageError(f"run name {given!r}: a name has 1 to 100 letters, digits, dots, dashes and underscores")
    return given


class PlanCounts(BaseModel):
    """Documents of this source by what happened to them; `quarantined` counts all live quarantined rows."""

    model_config = ConfigDict(extra="forbid")

    new: int = 0
    changed: int = 0
    moved: int = 0
    deleted: int = 0
    unchanged: int = 0
    quarantined: int = 0
    empty: int = 0
    converted: int = 0  # documents read and converted by this run


class IngestResult(BaseModel):
    """What ingest hands on. `todo` files have TODO_SCHEMA rows: texts that lack a complete document-step artifact."""

    model_config = ConfigDict(extra="forbid")

    draft: Draft = Field(default_factory=Draft)
    counts: PlanCounts = PlanCounts()
    todo: list[FileEntry] = Field(default_factory=list)
    todo_texts: int = 0


@dataclass(frozen=True)
class ProgressEvent:
    """`done` of `total` (None: unknown) units of a stage; usage so far of the stage."""

    stage: str
    done: int
    total: int | None = None
    unit: str = "documents"
    usage: Usage = field(default_factory=Usage)
    embedded_texts: int = 0
    message: str | None = None

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> "ProgressEvent":
        """From `dataclasses.asdict` of an event, as it crosses processes in JSON."""
        return cls(**{**told, "usage": Usage(**told.get("usage", {}))})


Progress = Callable[[ProgressEvent], None]


def silent(event: ProgressEvent) -> None:
    """A progress sink that shows nothing."""
