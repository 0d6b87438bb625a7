"""`corpusmill show`: the stored text and metadata of one document."""

import json as json_module
from typing import TYPE_CHECKING, Annotated

import typer

from corpusmill.errors import UsageError

from .common import ConfigOption, IndexArgument, JsonOption, SetOption, SnapshotOption, emit, load, open_index, out

if TYPE_CHECKING:
    from corpusmill.store.view import SnapshotView

DETAILS = ("title", "source_id", "path", "media_type", "size", "version", "raw_hash", "text_hash", "chars")


def command(
    index: IndexArgument,
    doc_id: Annotated[str, typer.Argument(metavar="DOC_ID", help="An id, or its first characters, or the exact URI.")],
    snapshot: SnapshotOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Print a document as the index holds it: the text that all offsets and quotes refer to, and its metadata."""
    settings = load(config, assignments).settings
    opened = open_index(index, settings, snapshot)
    row = find_document(opened.view, doc_id, opened.store.uri)
    text = opened.view.text(str(row["text_hash"])) if row["text_hash"] else ""
    metadata = json_module.loads(str(row["metadata"]))
    details = {key: row[key] for key in DETAILS}
    value = {"doc_id": row["doc_id"], "uri": row["uri"], "text": text, "metadata": metadata}
    if json:
        more = {"outcome": row["outcome"], "reason": row["reason"], "labels": row["labels"], **details}
        emit({**value, **more})
        return
    console = out()
    for key in ("doc_id", "uri", "outcome", "reason", "labels", *DETAILS):
        if row[key] not in (None, [], ""):
            console.print(f"{key:<11} {row[key]}")
    for key, item in metadata.items():
        console.print(f"{key:<11} {item}")
    console.print()
    print(text)


def find_document(view: "SnapshotView", wanted: str, place: str) -> dict[str, object]:
    """The row of a document by id, by the only id that starts so, or by URI. Raises UsageError otherwise."""
    row = view.document(wanted)
    if row is not None:
        return row
    found: list[str] = []
    for batch in view.unsorted_batches("documents", ["doc_id", "uri"]):
        for item in batch.to_pylist():
            if item["uri"] == wanted or (len(wanted) >= 4 and item["doc_id"].startswith(wanted)):
                found.append(item["doc_id"])
    if len(found) == 1:
        return view.document(found[0]) or {}
    if found:
        raise UsageError(f"{wanted!r} fits {len(found)} documents of {place}: {', '.join(sorted(found)[:5])}")
    raise UsageError(f"no document {wanted!r} in {place}; list them with: corpusmill documents {place}")
