"""What a run is: the specification that every stage reads, and what the stages report."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

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


Progress = Callable[[ProgressEvent], None]


def silent(event: ProgressEvent) -> None:
    """A progress sink that shows nothing."""
