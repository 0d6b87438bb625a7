"""`corpusmill snapshots`: what was published, newest first."""

from typing import TYPE_CHECKING

from .common import ConfigOption, IndexArgument, JsonOption, SetOption, emit, load, number, out

if TYPE_CHECKING:
    from corpusmill.store.commit import SnapshotInfo


def command(
    index: IndexArgument, config: ConfigOption = None, assignments: SetOption = None, json: JsonOption = False
) -> None:
    """List the snapshots of an index, newest first, with the references that point at them."""
    from corpusmill.store.commit import list_snapshots, open_index
    from corpusmill.store.objects import open_store

    settings = load(config, assignments).settings
    store = open_store(index, settings.store)
    found = list_snapshots(store)
    if not found:
        open_index(store)  # says what is missing
    if json:
        emit([as_json(info) for info in found])
        return
    console = out()
    for info in found:
        m = info.manifest
        refs = f"  <- {', '.join(info.refs)}" if info.refs else ""
        parent = "–" if m.parent is None else str(m.parent)
        console.print(
            f"{m.number:>6}  {m.digest}  parent {parent:>4}  {m.created}  {number(m.counts.documents)} documents{refs}"
        )


def as_json(info: "SnapshotInfo") -> dict[str, object]:
    m = info.manifest
    return {
        "id": m.number,
        "digest": m.digest,
        "parent": m.parent,
        "created": m.created,
        "refs": list(info.refs),
        "documents": m.counts.documents,
    }
