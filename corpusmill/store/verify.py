"""Checks a snapshot down to its bytes: files, digests recomputed from rows, and what points at what."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.digest import RowsDigest, digest_by, rows_digest
from corpusmill.errors import CorruptObjectError
from corpusmill.hashing import hash_text
from corpusmill.store.commit import content_digest
from corpusmill.store.manifest import ArtifactEntry, FileEntry, Manifest, SegmentEntry, TableEntry
from corpusmill.store.objects import ObjectStore
from corpusmill.store.segments import read_segment_index, segment_file
from corpusmill.store.tables import digest_stream, iter_table_file
from corpusmill.store.view import SnapshotView

Check = Callable[[SnapshotView], list[str]]


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong. `kind`: file, index, table, snapshot, reference or method; `where`: a key or name."""

    kind: str
    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind} {self.where}: {self.message}"


def verify(store: ObjectStore, manifest: Manifest, checks: Sequence[Check] = ()) -> list[Problem]:
    """Everything that is wrong with a snapshot; empty when it is sound. `checks` are a method's own.

    Every object is read twice (bytes, then rows), a batch at a time. Where objects are missing or damaged, the checks
    that need their rows are left out. Raises StoreUnavailableError if the store cannot be read.
    """
    problems = [p for file in _files(manifest) if (p := _check_file(store, file)) is not None]
    problems += _check_snapshot(manifest)
    if problems and any(p.kind == "file" for p in problems):
        return problems
    view = SnapshotView(store, manifest)
    for artifact in manifest.artifacts:
        problems += _check_artifact(view, manifest, artifact)
    for entry in manifest.tables:
        if entry.artifact is None:
            problems += _check_table(store, entry)
    problems += _check_lineage(view, manifest)
    problems += _check_references(view, manifest)
    for check in checks:
        problems += [Problem("method", getattr(check, "__name__", "check"), message) for message in check(view)]
    return problems


def _files(manifest: Manifest) -> Iterator[FileEntry]:
    """Every object that the snapshot names, each once."""
    found: dict[str, FileEntry] = {}
    for artifact in manifest.artifacts:
        for segment in artifact.segments:
            found |= {file.key: file for file in (segment.index, *segment.files.values())}
    for entry in manifest.tables:
        found |= {file.key: file for file in entry.files}
    found |= {item.file.key: item.file for item in manifest.index_files}
    yield from found.values()


def _check_file(store: ObjectStore, file: FileEntry) -> Problem | None:
    try:
        with contextlib.closing(store.open(file.key)) as stream:
            size, digest = digest_stream(stream)
    except FileNotFoundError:
        return Problem("file", file.key, "is missing")
    if size != file.bytes:
        return Problem("file", file.key, f"has {size} bytes instead of {file.bytes}")
    if digest != file.blake2b:
        return Problem("file", file.key, f"has digest {digest} instead of {file.blake2b}")
    return None


def _check_snapshot(manifest: Manifest) -> Iterable[Problem]:
    found = content_digest(manifest.tables, manifest.methods, manifest.embedder)
    where = f"snapshot {manifest.number}"
    if found != manifest.digest:
        yield Problem("snapshot", where, f"its tables give digest {found} instead of {manifest.digest}")
    steps = {artifact.step for artifact in manifest.artifacts}
    for entry in manifest.tables:
        if entry.artifact is not None and entry.artifact not in steps:
            yield Problem("table", entry.name, f"lies in artifacts of {entry.artifact!r}, which the snapshot has not")


def _check_table(store: ObjectStore, entry: TableEntry) -> Iterable[Problem]:
    total = RowsDigest()
    for file in entry.files:
        try:
            for batch in iter_table_file(store, file):
                total += rows_digest(batch)
        except CorruptObjectError as error:
            yield Problem("table", entry.name, str(error))
            return
    yield from _compare(entry, total)


def _compare(entry: TableEntry, found: RowsDigest) -> Iterable[Problem]:
    if found.rows != entry.rows:
        yield Problem("table", entry.name, f"has {found.rows} rows instead of {entry.rows}")
    elif found.hex != entry.digest:
        yield Problem("table", entry.name, f"its rows give digest {found.hex} instead of {entry.digest}")


def _check_artifact(view: SnapshotView, manifest: Manifest, artifact: ArtifactEntry) -> list[Problem]:
    """Each segment's rows against its index, and the sums of owned, live texts against the table entries."""
    problems: list[Problem] = []
    totals = dict.fromkeys(artifact.tables, RowsDigest())
    live = view.index_rows(artifact.step)
    place_of = dict(zip(live.column("text_hash").to_pylist(), live.column("segment").to_pylist(), strict=True))
    for place, segment in enumerate(artifact.segments):
        index = read_segment_index(view.store, segment).to_pylist()
        for table in artifact.tables:
            found = _digests(view.store, segment, table)
            problems += _against_index(segment, table, index, found)
            for text_hash, digest in found.items():
                if place_of.get(text_hash) == place:
                    totals[table] += digest
    for entry in manifest.tables:
        if entry.artifact == artifact.step:
            problems += _compare(entry, totals.get(entry.name, RowsDigest()))
    missing = set(view.live_texts().to_pylist()) - place_of.keys()
    if missing:
        message = f"{len(missing)} live texts have no artifact, {min(missing)} among them"
        problems.append(Problem("reference", artifact.step, message))
    return problems


def _check_lineage(view: SnapshotView, manifest: Manifest) -> Iterable[Problem]:
    """What a step made of a text was made from the tables of that text that the snapshot has."""
    producers = {table: artifact.step for artifact in manifest.artifacts for table in artifact.tables}
    held: dict[str, dict[tuple[str, str], str]] = {}
    for artifact in manifest.artifacts:
        wrong: dict[str, str] = {}  # text -> table
        for row in view.index_rows(artifact.step).select(["text_hash", "made_from"]).to_pylist():
            for part in row["made_from"]:
                table, step = part["name"], producers.get(part["name"], "")
                if step and step not in held:
                    held[step] = _owned_digests(view, step)
                if held.get(step, {}).get((row["text_hash"], table)) != part["digest"]:
                    wrong[row["text_hash"]] = table
        if wrong:
            first = min(wrong)
            message = (
                f"{len(wrong)} texts were made from other tables than the snapshot's, {first} from {wrong[first]!r}"
            )
            yield Problem("reference", artifact.step, message)


def _owned_digests(view: SnapshotView, step: str) -> dict[tuple[str, str], str]:
    rows = view.index_rows(step).select(["text_hash", "tables"]).to_pylist()
    return {(row["text_hash"], part["name"]): part["digest"] for row in rows for part in row["tables"]}


def _digests(store: ObjectStore, segment: SegmentEntry, table: str) -> dict[str, RowsDigest]:
    totals: dict[str, RowsDigest] = {}
    for batch in iter_table_file(store, segment_file(segment, table)):
        for text_hash, digest in digest_by(pa.Table.from_batches([batch]), "text_hash").items():
            totals[text_hash] = totals.get(text_hash, RowsDigest()) + digest
    return totals


def _against_index(
    segment: SegmentEntry, table: str, index: list[dict[str, list[dict[str, object]]]], found: dict[str, RowsDigest]
) -> Iterable[Problem]:
    said = {
        str(row["text_hash"]): (part["rows"], part["digest"])
        for row in index
        for part in row["tables"]
        if part["name"] == table
    }
    for text_hash in sorted(said.keys() | found.keys()):
        have = found.get(text_hash, RowsDigest())
        if said.get(text_hash) != (have.rows, have.hex):
            message = f"rows of text {text_hash} in {table!r} are not what the segment's index says"
            yield Problem("index", segment.index.key, message)


def _check_references(view: SnapshotView, manifest: Manifest) -> list[Problem]:
    """Documents have texts, texts have their hash, spans lie inside their text, counts are those of the rows."""
    problems: list[Problem] = []
    names = set(view.tables())
    if "documents" not in names:
        return [Problem("reference", "documents", "the snapshot has no such table")]
    if (found := view.rows("documents")) != manifest.counts.documents:
        problems.append(Problem("reference", "counts", f"documents {manifest.counts.documents} instead of {found}"))
    lengths: dict[str, int] = {}
    if "texts" in names:
        for batch in view.unsorted_batches("texts", ("text_hash", "text")):
            for text_hash, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                lengths[text_hash] = len(text)
                if hash_text(text) != text_hash:
                    problems.append(Problem("reference", "texts", f"the text under {text_hash} has another hash"))
    for text_hash in sorted(set(view.live_texts().to_pylist()) - lengths.keys()):
        problems.append(Problem("reference", "documents", f"text {text_hash} of a document is not in `texts`"))
    for artifact in manifest.artifacts:
        for table in artifact.tables:
            problems += _check_spans(view, artifact, table, lengths)
    return problems


def _check_spans(view: SnapshotView, artifact: ArtifactEntry, table: str, lengths: dict[str, int]) -> Iterable[Problem]:
    """Columns `start` and `end` of an artifact table are a span of the row's text."""
    from corpusmill.store.tables import open_parquet

    if not artifact.segments:
        return
    with open_parquet(view.store, segment_file(artifact.segments[0], table).key) as file:
        if not {"start", "end"} <= set(file.schema_arrow.names):
            return
    for batch in view.unsorted_batches(table, ("text_hash", "start", "end")):
        hashes, starts, ends = batch.columns
        limits = pa.array([lengths.get(h, -1) for h in hashes.to_pylist()], pa.int64())
        bad = pc.or_(pc.or_(pc.less(starts, 0), pc.greater(starts, ends)), pc.greater(ends, limits))
        for row in batch.filter(bad).to_pylist():
            span = f"{row['start']}:{row['end']}"
            yield Problem("reference", table, f"span {span} is not inside text {row['text_hash']}")
