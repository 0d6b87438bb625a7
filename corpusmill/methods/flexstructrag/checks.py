"""Cross-references of FlexStructRAG's tables, for `verify`: each check returns what is wrong, in words."""

from collections.abc import Callable, Iterator
from itertools import islice

from corpusmill.methods.protocol import Snapshot

MAX_PROBLEMS = 20  # of one check; what is wrong once is usually wrong often


def edge_ends(snapshot: Snapshot) -> Iterator[str]:
    """Both ends of an edge are local entities of its text, and distinct; its statement exists."""
    known = _pairs(snapshot, "local_entities", "text_hash", "normal")
    statements = _pairs(snapshot, "statements", "text_hash", "hyperedge_id")
    for row in snapshot.table("edges").to_pylist():
        where = f"edge {row['edge_id']} of text {row['text_hash']}"
        for end in ("source", "target"):
            if (row["text_hash"], row[end]) not in known:
                yield f"{where}: its {end} {row[end]!r} is no local entity"
        if row["source"] == row["target"]:
            yield f"{where}: both ends are {row['source']!r}"
        if (row["text_hash"], row["hyperedge_id"]) not in statements:
            yield f"{where}: its statement {row['hyperedge_id']} does not exist"


def statement_entities(snapshot: Snapshot) -> Iterator[str]:
    """A statement names at least one entity, each a local entity of its text, and lies in a chunk of it."""
    known = _pairs(snapshot, "local_entities", "text_hash", "normal")
    chunks = _pairs(snapshot, "chunks", "text_hash", "chunk_id")
    for row in snapshot.table("statements", ["text_hash", "hyperedge_id", "chunk_id", "entities"]).to_pylist():
        where = f"statement {row['hyperedge_id']} of text {row['text_hash']}"
        if not row["entities"]:
            yield f"{where}: names no entity"
        for entity in row["entities"]:
            if (row["text_hash"], entity["normal"]) not in known:
                yield f"{where}: {entity['normal']!r} is no local entity"
        if (row["text_hash"], row["chunk_id"]) not in chunks:
            yield f"{where}: its chunk {row['chunk_id']} does not exist"


def cluster_members(snapshot: Snapshot) -> Iterator[str]:
    """A cluster's members are statements of its text."""
    known = _pairs(snapshot, "statements", "text_hash", "hyperedge_id")
    for row in snapshot.table("clusters", ["text_hash", "cluster_id", "members"]).to_pylist():
        for member in row["members"]:
            if (row["text_hash"], member) not in known:
                yield f"cluster {row['cluster_id']} of text {row['text_hash']}: its member {member} is no statement"


def member_entities(snapshot: Snapshot) -> Iterator[str]:
    """A member's canonical entity and its local entity exist; every local entity of a live document is a member."""
    entities = set(snapshot.table("entities", ["entity_id"]).column("entity_id").to_pylist())
    local = _pairs(snapshot, "local_entities", "text_hash", "normal")
    joined = set()
    for row in snapshot.table("entity_members").to_pylist():
        where = f"member {row['member_id']} of document {row['doc_id']}"
        if row["entity_id"] not in entities:
            yield f"{where}: its entity {row['entity_id']} does not exist"
        if (row["text_hash"], row["normal"]) not in local:
            yield f"{where}: {row['normal']!r} is no local entity of its text"
        joined.add((row["text_hash"], row["normal"]))
    for text_hash, normal in sorted(local - joined):
        yield f"local entity {normal!r} of text {text_hash} belongs to no canonical entity"


def spans_inside(snapshot: Snapshot) -> Iterator[str]:
    """Spans of statements, edges and clusters lie inside their text and are not empty."""
    lengths: dict[str, int] = {}
    for table, kind in (("statements", "hyperedge_id"), ("edges", "edge_id")):
        for row in snapshot.table(table, ["text_hash", kind, "start", "end"]).to_pylist():
            yield from _outside(snapshot, lengths, row["text_hash"], f"{kind} {row[kind]}", row["start"], row["end"])
    for row in snapshot.table("clusters", ["text_hash", "cluster_id", "spans"]).to_pylist():
        for span in row["spans"]:
            name = f"cluster {row['cluster_id']}"
            yield from _outside(snapshot, lengths, row["text_hash"], name, span["start"], span["end"])


def vectors_match(snapshot: Snapshot) -> Iterator[str]:
    """Each statement and each edge has exactly one vector."""
    for table, column, vectors in (
        ("statements", "hyperedge_id", "statement_vectors"),
        ("edges", "edge_id", "edge_vectors"),
    ):
        units = _pairs(snapshot, table, "text_hash", column)
        embedded = _pairs(snapshot, vectors, "text_hash", "unit_id")
        for text_hash, unit in sorted(units ^ embedded):
            missing = "no vector" if (text_hash, unit) in units else "a vector without a row"
            yield f"{table}: {unit} of text {text_hash} has {missing}"


FLEX_CHECKS: tuple[Callable[[Snapshot], Iterator[str]], ...] = (
    statement_entities,
    edge_ends,
    cluster_members,
    member_entities,
    spans_inside,
    vectors_match,
)
CHECKS = FLEX_CHECKS  # the name by which `verify` finds a method's checks


def problems(snapshot: Snapshot) -> list[str]:
    """What all checks find, at most 20 of each."""
    return [problem for check in FLEX_CHECKS for problem in islice(check(snapshot), MAX_PROBLEMS)]


def _pairs(snapshot: Snapshot, table: str, left: str, right: str) -> set[tuple[str, str]]:
    rows = snapshot.table(table, [left, right])
    return set(zip(rows.column(left).to_pylist(), rows.column(right).to_pylist(), strict=True))


def _outside(
    snapshot: Snapshot, lengths: dict[str, int], text_hash: str, name: str, start: int, end: int
) -> Iterator[str]:
    if text_hash not in lengths:
        lengths[text_hash] = len(snapshot.text(text_hash))
    if not 0 <= start < end <= lengths[text_hash]:
        yield f"{name} of text {text_hash}: span {start}..{end} is not inside its {lengths[text_hash]} characters"
