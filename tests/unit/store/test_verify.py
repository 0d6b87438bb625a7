import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from corpusmill.digest import rows_digest
from corpusmill.hashing import hash_text
from corpusmill.schemas import CHUNKS, DOCUMENTS
from corpusmill.store.commit import content_digest
from corpusmill.store.local import LocalStore
from corpusmill.store.manifest import FileEntry, Manifest, TableEntry
from corpusmill.store.segments import SegmentWriter, TextArtifact, read_segment_table
from corpusmill.store.tables import digest_bytes, write_table_file
from corpusmill.store.verify import verify
from corpusmill.store.view import SnapshotView
from tests.small_index import (
    STEPS,
    TEXTS_OF,
    artifact,
    artifact_entries,
    build_draft,
    document,
    publish_draft,
    write_table,
)

ADA = hash_text(TEXTS_OF["a.txt"])


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "index"))


@pytest.mark.parametrize(("files", "segments"), [(1, 1), (2, 2)])
def test_a_sound_index(store: LocalStore, files: int, segments: int) -> None:
    manifest = publish_draft(store, build_draft(store, files=files, segments=segments)).manifest
    assert verify(store, manifest) == []


def _objects(manifest: Manifest) -> list[FileEntry]:
    files = [f for t in manifest.tables for f in t.files] + [f.file for f in manifest.index_files]
    for held in manifest.artifacts:
        for segment in held.segments:
            files += [segment.index, *segment.files.values()]
    return files


def test_every_file_is_checked(store: LocalStore) -> None:
    manifest = publish_draft(store, build_draft(store)).manifest
    files = _objects(manifest)
    assert len(files) == 1 + 1 + 3 * 2
    for file in files:
        path = store.local_path(file.key)
        whole = path.read_bytes()
        os.truncate(path, len(whole) - 1)
        assert [(p.kind, p.where) for p in verify(store, manifest)] == [("file", file.key)]
        path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
        (problem,) = verify(store, manifest)
        assert "has digest" in str(problem)
        path.unlink()
        (problem,) = verify(store, manifest)
        assert problem.message == "is missing"
        path.write_bytes(whole)
    assert verify(store, manifest) == []


def _rewritten(store: LocalStore, file: FileEntry, change: Callable[[pa.Table], pa.Table]) -> FileEntry:
    """Another table under the same key, with its file entry: only the rows can tell."""
    import pyarrow.parquet as pq

    table = pq.read_table(store.local_path(file.key))
    path = store.local_path(file.key)
    path.unlink()
    changed, _ = write_table_file(store, file.key, change(table), table.schema)
    return changed


def _other_cell(table: pa.Table, column: str) -> pa.Table:
    rows = table.to_pylist()
    old = rows[0][column]
    if isinstance(old, bool):
        new: object = not old
    elif isinstance(old, int):
        new = old + 1
    elif isinstance(old, list):
        new = [] if old else ["x"]
    else:
        new = f"{old or ''}x"
    return pa.Table.from_pylist([{**rows[0], column: new}, *rows[1:]], schema=table.schema)


@pytest.mark.parametrize("column", DOCUMENTS.schema.names)
def test_an_altered_cell_of_a_file_table(store: LocalStore, column: str) -> None:
    manifest = publish_draft(store, build_draft(store)).manifest
    entry = manifest.table("documents")
    file = _rewritten(store, entry.files[0], lambda table: _other_cell(table, column))
    altered = _with_table(manifest, entry.model_copy(update={"files": (file,)}))
    assert ("table", "documents") in [(p.kind, p.where) for p in verify(store, altered)]


@pytest.mark.parametrize(("table", "column"), [(s[0].name, c) for s in STEPS.values() for c in s[0].schema.names])
def test_an_altered_cell_of_an_artifact(store: LocalStore, table: str, column: str) -> None:
    manifest = publish_draft(store, build_draft(store)).manifest
    (step,) = (a for a in manifest.artifacts if table in a.tables)
    segment = step.segments[0]
    file = _rewritten(store, segment.files[table], lambda rows: _other_cell(rows, column))
    changed = step.model_copy(
        update={"segments": (segment.model_copy(update={"files": {**segment.files, table: file}}),)}
    )
    others = tuple(a for a in manifest.artifacts if a.step != step.step)
    problems = verify(store, manifest.model_copy(update={"artifacts": (*others, changed)}))
    assert {"index", "table"} <= {p.kind for p in problems}


def _with_table(manifest: Manifest, entry: TableEntry) -> Manifest:
    return manifest.model_copy(update={"tables": tuple(entry if t.name == entry.name else t for t in manifest.tables)})


def test_a_manifest_that_says_something_else(store: LocalStore) -> None:
    manifest = publish_draft(store, build_draft(store)).manifest
    entry = manifest.table("chunks")
    more = _with_table(manifest, entry.model_copy(update={"rows": entry.rows + 1}))
    assert {p.kind for p in verify(store, more)} == {"snapshot", "table"}
    assert {p.kind for p in verify(store, manifest.model_copy(update={"digest": "0"}))} == {"snapshot"}
    other_embedder = manifest.model_copy(update={"embedder": "other"})
    assert {p.kind for p in verify(store, other_embedder)} == {"snapshot"}


def test_a_text_made_from_tables_of_another_build(store: LocalStore) -> None:
    draft = build_draft(store)
    draft.artifacts = [a for a in draft.artifacts if a.step != "statements"]
    digests = {"chunks": rows_digest(artifact("chunks", TEXTS_OF["b.txt"]).tables["chunks"])}
    writer = SegmentWriter(store, "statements", "fp-statements", STEPS["statements"])
    for name in ("a.txt", "b.txt"):
        writer.add(replace(artifact("statements", TEXTS_OF[name]), made_from=digests))
    sealed = writer.seal()
    assert sealed is not None
    draft.add_segments("statements", "fp-statements", ("statements",), [sealed])
    artifact_entries(store, draft)
    (problem,) = verify(store, publish_draft(store, draft).manifest)
    message = f"1 texts were made from other tables than the snapshot's, {ADA} from 'chunks'"
    assert str(problem) == f"reference statements: {message}"


def test_cross_references(store: LocalStore) -> None:
    """A document without its text, a text under another's hash, a chunk beyond its text: all with true digests."""
    draft = build_draft(store)
    rows = [document("a.txt", TEXTS_OF["a.txt"]), document("lost.txt", "nobody wrote this text")]
    draft.put_table(write_table(store, DOCUMENTS, "ingest", [DOCUMENTS.table(rows)], "run1"))
    draft.counts = draft.counts.model_copy(update={"documents": 3})
    chunks = draft.artifacts[[a.step for a in draft.artifacts].index("chunks")].segments[0]
    good = read_segment_table(store, chunks, "chunks", [ADA]).to_pylist()
    writer = SegmentWriter(store, "chunks", "fp-chunks", (CHUNKS,))
    writer.add(TextArtifact(ADA, {"chunks": CHUNKS.table([{**good[0], "end": 1000}])}))
    sealed = writer.seal()
    assert sealed is not None
    draft.artifacts = [a for a in draft.artifacts if a.step != "chunks"]
    draft.add_segments("chunks", "fp-chunks", ("chunks",), [sealed])
    texts = SegmentWriter(store, "texts", "fp-texts", STEPS["texts"])
    texts.add(TextArtifact(ADA, {"texts": STEPS["texts"][0].table([{"text_hash": ADA, "text": "forged"}])}))
    forged = texts.seal()
    assert forged is not None
    draft.artifacts = [a for a in draft.artifacts if a.step != "texts"]
    draft.add_segments("texts", "fp-texts", ("texts",), [forged])
    draft.artifacts = [a for a in draft.artifacts if a.step != "statements"]
    draft.tables = [t for t in draft.tables if t.name != "statements"]
    artifact_entries(store, draft)
    lost = hash_text("nobody wrote this text")
    said = [str(p) for p in verify(store, publish_draft(store, draft).manifest)]
    assert f"reference documents: text {lost} of a document is not in `texts`" in said
    assert f"reference texts: the text under {ADA} has another hash" in said
    assert f"reference chunks: span 0:1000 is not inside text {ADA}" in said
    assert "reference counts: documents 3 instead of 2" in said
    assert f"reference chunks: 1 live texts have no artifact, {lost} among them" in said


def test_checks_of_a_method(store: LocalStore) -> None:
    manifest = publish_draft(store, build_draft(store)).manifest

    def every_chunk_is_long(view: SnapshotView) -> list[str]:
        return [f"chunk {row['chunk_id']} is short" for row in view.table("chunks").to_pylist() if row["end"] < 20]

    (problem,) = verify(store, manifest, [every_chunk_is_long])
    assert (problem.kind, problem.where) == ("method", "every_chunk_is_long")


def test_unused_bytes_are_no_problem(store: LocalStore) -> None:
    manifest = publish_draft(store, build_draft(store)).manifest
    store.put("data/run0/left-by-a-dead-run.parquet", b"x")
    assert verify(store, manifest) == []
    assert content_digest(manifest.tables, manifest.methods, manifest.embedder) == manifest.digest
    assert digest_bytes(b"") != manifest.digest
