"""`corpusmill documents`: every document of an index and how it ended."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from .common import (
    ConfigOption,
    IndexArgument,
    JsonOption,
    SetOption,
    SnapshotOption,
    emit_array,
    load,
    open_index,
    out,
)

if TYPE_CHECKING:
    from corpusmill.store.view import SnapshotView

Outcome = Literal["indexed", "partial", "empty", "quarantined"]
_SHOWN = ("doc_id", "uri", "outcome", "reason")
_ORDER = ("source_id", "path")


def command(
    index: IndexArgument,
    outcome: Annotated[
        Outcome | None, typer.Option("--outcome", help="Only documents that ended so.", case_sensitive=False)
    ] = None,
    snapshot: SnapshotOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    json: JsonOption = False,
) -> None:
    """List the documents with their outcome: indexed, partial, empty, or quarantined with a reason."""
    settings = load(config, assignments).settings
    rows = outcomes(open_index(index, settings, snapshot).view, outcome)
    if json:
        emit_array(rows)
        return
    console = out()
    for row in rows:
        reason = f"  {row['reason']}" if row["reason"] else ""
        console.print(f"{row['outcome']:<11}  {row['doc_id']}  {row['uri']}{reason}")


def outcomes(view: "SnapshotView", wanted: str | None = None) -> Iterator[dict[str, object]]:
    """{doc_id, uri, outcome, reason} of each document, by source and path; an incomplete artifact makes it `partial`.

    Sorted within bounded memory, whatever their number.
    """
    from corpusmill.store.sorting import sorted_batches

    partial = view.partial_texts()
    rows = view.unsorted_batches("documents", [*_SHOWN, *_ORDER, "text_hash"])
    for batch in sorted_batches(rows, (*_ORDER, "doc_id")):
        for row in batch.to_pylist():
            if row["outcome"] == "indexed" and row["text_hash"] in partial:
                row["outcome"], row["reason"] = "partial", "; ".join(partial[row["text_hash"]])
            if wanted in (None, row["outcome"]):
                yield {name: row[name] for name in _SHOWN}
