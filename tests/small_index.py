"""A small index written straight through the store: three documents, two texts, chunks and statements."""

from collections.abc import Iterable, Sequence

import pyarrow as pa

from corpusmill.digest import RowsDigest
from corpusmill.hashing import canonical_json, content_id, hash_text
from corpusmill.methods.flexstructrag.tables import STATEMENTS
from corpusmill.schemas import CHUNKS, DOCUMENTS, TEXTS, TableSpec
from corpusmill.store.commit import Published, publish
from corpusmill.store.draft import Draft
from corpusmill.store.layout import data_key, index_file_key
from corpusmill.store.manifest import Counts, FileEntry, IndexFileEntry, Manifest, MethodEntry, TableEntry
from corpusmill.store.objects import ObjectStore
from corpusmill.store.segments import SegmentWriter, TextArtifact, read_segment_index
from corpusmill.store.tables import digest_bytes, write_table_file

TEXTS_OF = {
    "a.txt": "Ada wrote a program. Bob read it.",
    "b.txt": "鲁迅在北京 😀 大学",
    "copy/a.txt": "Ada wrote a program. Bob read it.",
}
STEPS: dict[str, tuple[TableSpec, ...]] = {"texts": (TEXTS,), "chunks": (CHUNKS,), "statements": (STATEMENTS,)}


def document(path: str, text: str | None, **changes: object) -> dict[str, object]:
    row: dict[str, object] = {
        "doc_id": content_id("doc", "source", path),
        "source_id": "source",
        "path": path,
        "uri": f"file:///corpus/{path}",
        "title": path,
        "media_type": "text/plain",
        "size": 1,
        "version": "1",
        "raw_hash": "raw",
        "converter": "c",
        "text_hash": None if text is None else hash_text(text),
        "chars": None if text is None else len(text),
        "metadata": "{}",
        "metadata_hash": "m",
        "labels": [],
        "outcome": "quarantined" if text is None else "indexed",
        "reason": None,
        "attempts": 1,
    }
    return row | changes


def artifact(step: str, text: str, failures: tuple[str, ...] = ()) -> TextArtifact:
    """What the steps of this index make of a text: the text, one chunk, one statement a sentence."""
    h = hash_text(text)
    chunk = content_id("chunk", h, 0, len(text))
    if step == "texts":
        rows: list[dict[str, object]] = [{"text_hash": h, "text": text}]
    elif step == "chunks":
        rows = [{"text_hash": h, "chunk_id": chunk, "ordinal": 0, "start": 0, "end": len(text), "tokens": 5}]
    else:
        rows = [
            {
                "text_hash": h,
                "hyperedge_id": content_id("hyperedge", h, i),
                "ordinal": i,
                "chunk_id": chunk,
                "text": part,
                "start": 0,
                "end": len(part),
                "entities": [{"name": "Ada", "normal": "ada"}],
            }
            for i, part in enumerate(text.split(". "))
        ]
    spec = STEPS[step][0]
    return TextArtifact(h, {spec.name: spec.table(rows)}, failures)


def artifact_entries(store: ObjectStore, draft: Draft) -> None:
    """Table entries of the artifacts: sums over the index rows, each text once (these tests have no dead texts)."""
    for item in draft.artifacts:
        sums = {name: RowsDigest() for name in item.tables}
        seen: set[str] = set()
        for segment in item.segments:
            for row in read_segment_index(store, segment).to_pylist():
                if row["text_hash"] not in seen:
                    seen.add(row["text_hash"])
                    for part in row["tables"]:
                        sums[part["name"]] += RowsDigest.parse(part["rows"], part["digest"])
        for total in sums.values():
            draft.put_table(_entry(STEPS[item.step][0], item.step, total, artifact=item.step))


def build_draft(
    store: ObjectStore, texts: dict[str, str] = TEXTS_OF, *, files: int = 1, segments: int = 1, run: str = "run1"
) -> Draft:
    """Write all data objects of an index of these documents, spread over so many files and segments."""
    draft = Draft()
    rows = [document(path, text) for path, text in texts.items()] + [document("broken.pdf", None, reason="a password")]
    parts = [rows[i::files] for i in range(files)]
    draft.put_table(write_table(store, DOCUMENTS, "ingest", [DOCUMENTS.table(part) for part in parts], run))
    unique = sorted(set(texts.values()), key=hash_text)
    for step, specs in STEPS.items():
        sealed = []
        for i in range(segments):
            writer = SegmentWriter(store, step, f"fp-{step}", specs)
            for text in unique[i::segments]:
                writer.add(artifact(step, text))
            entry = writer.seal()
            if entry is not None:
                sealed.append(entry)
        draft.add_segments(step, f"fp-{step}", tuple(spec.name for spec in specs), sealed)
    artifact_entries(store, draft)
    key = index_file_key(run, "lexical", "bm25.bin")
    store.put(key, b"index bytes")
    file = FileEntry(key=key, bytes=11, blake2b=digest_bytes(b"index bytes"))
    draft.put_index_file(IndexFileEntry(step="lexical", fingerprint="f", made_from="m", name="bm25.bin", file=file))
    draft.counts = Counts(documents=len(rows), indexed=len(texts), quarantined=1, texts=len(unique))
    return draft


def write_table(store: ObjectStore, spec: TableSpec, step: str, parts: Iterable[pa.Table], run: str) -> TableEntry:
    total, files = RowsDigest(), []
    for part in parts:
        file, digest = write_table_file(store, data_key(run, spec.name), part, spec.schema)
        files.append(file)
        total += digest
    return _entry(spec, step, total, files=tuple(files))


def _entry(
    spec: TableSpec, step: str, total: RowsDigest, files: Sequence[FileEntry] = (), artifact: str | None = None
) -> TableEntry:
    return TableEntry(
        name=spec.name,
        step=step,
        fingerprint=f"fp-{step}",
        methods=("flexstructrag",),
        key=spec.key,
        rows=total.rows,
        digest=total.hex,
        artifact=artifact,
        files=tuple(files),
    )


def publish_draft(store: ObjectStore, draft: Draft, parent: Manifest | None = None, config: str = "c1") -> Published:
    return publish(
        store,
        draft,
        run="run1",
        parent=parent,
        config={"run": canonical_json(config)},
        config_fingerprint=config,
        methods=[MethodEntry(name="flexstructrag", fingerprint="fp", settings={})],
        models={"extract": "rules-1"},
        embedder="hash-8",
        dim=8,
        corpusmill_version="0.1.0",
    )
