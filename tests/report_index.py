"""A small published index for the command line and the report: a hypergraph, entities, a partial and a broken document."""

from pathlib import Path

import pyarrow as pa

from corpusmill.digest import RowsDigest, rows_digest
from corpusmill.hashing import content_id, hash_text
from corpusmill.methods.flexstructrag.tables import CLUSTERS, ENTITIES, LOCAL_ENTITIES, STATEMENTS
from corpusmill.models.contracts import Usage
from corpusmill.schemas import CHUNKS, DOCUMENTS, TEXTS, TableSpec
from corpusmill.settings import Settings
from corpusmill.store.commit import Published, current, publish
from corpusmill.store.draft import Draft
from corpusmill.store.layout import data_key
from corpusmill.store.manifest import Counts, MethodEntry, TableEntry
from corpusmill.store.objects import ObjectStore, open_store
from corpusmill.store.segments import SegmentWriter, TextArtifact
from corpusmill.store.tables import write_table_file

CORPUS = {
    "a.md": "Marie Curie discovered polonium. She named it after Poland.",
    "b.md": "Polonium is a chemical element. Marie Curie won two prizes.",
    "हिन्दी.md": "मैरी क्यूरी ने पोलोनियम की खोज की। यह एक रासायनिक तत्व है।",
}
BROKEN = {"c.pdf": "the file is protected by a password"}
SETTINGS = Settings()
STEPS: dict[str, tuple[TableSpec, ...]] = {
    "texts": (TEXTS,),
    "chunks": (CHUNKS,),
    "extraction": (STATEMENTS, LOCAL_ENTITIES, CLUSTERS),
}


def document_row(path: str, text: str | None, reason: str | None = None) -> dict[str, object]:
    return {
        "doc_id": content_id("document", "corpus", path),
        "source_id": "corpus",
        "path": path,
        "uri": f"/corpus/{path}",
        "title": path,
        "media_type": "text/markdown",
        "size": len(text or ""),
        "version": f"v-{len(text or '')}",
        "raw_hash": hash_text(text or path),
        "converter": "converter-1",
        "text_hash": None if text is None else hash_text(text),
        "chars": None if text is None else len(text),
        "metadata": '{"language":"en"}',
        "metadata_hash": "m",
        "labels": [],
        "outcome": "quarantined" if text is None else "indexed",
        "reason": reason,
        "attempts": 1,
    }


def report_index(
    folder: Path, corpus: dict[str, str] | None = None, partial: str = "b.md", method: str | None = "flexstructrag"
) -> Published:
    """Publish the corpus as the next snapshot of the index in `folder`; a window of the document `partial` failed.

    It has some of the method's tables, not all: with `method` None the snapshot does not claim to be that method's.
    """
    store = open_store(str(folder))
    texts = CORPUS if corpus is None else corpus
    draft = Draft()
    rows = [document_row(path, text) for path, text in texts.items()]
    rows += [document_row(path, None, reason) for path, reason in BROKEN.items()]
    _put_table(store, draft, DOCUMENTS, rows, step="ingest")
    _put_artifacts(store, draft, texts, partial)
    _put_table(store, draft, ENTITIES, _entities(texts), step="merge")
    draft.counts = Counts(
        documents=len(rows),
        indexed=len(texts),
        partial=int(partial in texts),
        quarantined=len(BROKEN),
        texts=len(set(texts.values())),
    )
    draft.partial_texts = int(partial in texts)
    draft.spend(Usage(calls=6, cached=2, prompt_tokens=4200, completion_tokens=900), embedded_texts=12)
    return publish(
        store,
        draft,
        run="20261201T000000-aaaaaa",
        parent=current(store),
        config=SETTINGS.model_dump(mode="json"),
        config_fingerprint="configuration",
        methods=[MethodEntry(name=method, fingerprint="f", settings={})] if method else [],
        models={"extract": "embedded"},
        embedder="minilm",
        dim=384,
        corpusmill_version="0.0",
    )


def _put_artifacts(store: ObjectStore, draft: Draft, texts: dict[str, str], partial: str) -> None:
    for step, specs in STEPS.items():
        writer = SegmentWriter(store, step, f"{step}-1", specs)
        totals = {spec.name: RowsDigest() for spec in specs}
        for path, text in texts.items():
            tables = {spec.name: spec.table(_rows(spec.name, text)) for spec in specs}
            for name, table in tables.items():
                totals[name] += rows_digest(table)
            failed = ("window 1: not JSON",) if step == "extraction" and path == partial else ()
            writer.add(TextArtifact(hash_text(text), tables, failed))
        segment = writer.seal()
        draft.add_segments(step, f"{step}-1", tuple(totals), [segment] if segment else [])
        for spec in specs:
            draft.put_table(_entry(spec, step, totals[spec.name], artifact=step))


def _rows(table: str, text: str) -> list[dict[str, object]]:
    """Rows of one text: a sentence is a statement, its first word an entity."""
    text_hash = hash_text(text)
    if table == "texts":
        return [{"text_hash": text_hash, "text": text}]
    if table == "chunks":
        chunk = content_id("chunk", text_hash, "c", 0, len(text))
        size = len(text.split())
        return [{"text_hash": text_hash, "chunk_id": chunk, "ordinal": 0, "start": 0, "end": len(text), "tokens": size}]
    sentences = [part.strip() for part in text.replace("।", ".").split(".") if part.strip()]
    if table == "statements":
        return [_statement(text, text_hash, number, part) for number, part in enumerate(sentences)]
    if table == "local_entities":
        names = [part.split()[0].casefold() for part in sentences]
        return [_local_entity(text_hash, name, names.count(name)) for name in sorted(set(names))]
    members = [content_id("hyperedge", text_hash, number) for number in range(len(sentences))]
    spans = [{"start": 0, "end": len(text)}]
    identity = content_id("cluster", text_hash, *members)
    return [{"text_hash": text_hash, "cluster_id": identity, "ordinal": 0, "members": members, "spans": spans}]


def _statement(text: str, text_hash: str, number: int, sentence: str) -> dict[str, object]:
    at = text.index(sentence)
    name = sentence.split()[0]
    return {
        "text_hash": text_hash,
        "hyperedge_id": content_id("hyperedge", text_hash, number),
        "ordinal": number,
        "chunk_id": "c",
        "text": sentence,
        "start": at,
        "end": at + len(sentence),
        "entities": [{"name": name, "normal": name.casefold()}],
    }


def _local_entity(text_hash: str, normal: str, degree: int) -> dict[str, object]:
    return {
        "text_hash": text_hash,
        "local_id": content_id("local_entity", text_hash, normal),
        "normal": normal,
        "name": normal,
        "degree": degree,
        "text": normal,
        "summarised": False,
        "aliases": [],
    }


def _entities(texts: dict[str, str]) -> list[dict[str, object]]:
    words = [text.split()[0] for text in texts.values()]
    return [
        {
            "entity_id": content_id("entity", name),
            "name": name,
            "documents": words.count(name),
            "degree": 2 * words.count(name),
            "min_score_e4": 10_000 if words.count(name) == 1 else 7_300,
        }
        for name in sorted(set(words))
    ]


def _put_table(store: ObjectStore, draft: Draft, spec: TableSpec, rows: list[dict[str, object]], step: str) -> None:
    table: pa.Table = spec.table(sorted(rows, key=lambda row: tuple(str(row[column]) for column in spec.key)))
    file, digest = write_table_file(store, data_key("20261201T000000-aaaaaa", spec.name), table, spec.schema)
    draft.put_table(_entry(spec, step, digest).model_copy(update={"files": (file,)}))


def _entry(spec: TableSpec, step: str, digest: RowsDigest, artifact: str | None = None) -> TableEntry:
    return TableEntry(
        name=spec.name,
        step=step,
        fingerprint=f"{step}-1",
        methods=("flexstructrag",),
        key=spec.key,
        rows=digest.rows,
        digest=digest.hex,
        artifact=artifact,
    )
