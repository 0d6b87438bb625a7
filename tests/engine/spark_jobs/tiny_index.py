"""A small index in a local store, up to the census: documents, and entity artifacts in segments."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from corpusmill.hashing import content_id, hash_text
from corpusmill.methods.flexstructrag.tables import LOCAL_ENTITIES
from corpusmill.names import normal_form
from corpusmill.planning import TEXT_FINGERPRINT, resolved_plan
from corpusmill.run import RunSpec
from corpusmill.schemas import DOCUMENTS, TEXTS, TableSpec
from corpusmill.settings import Settings
from corpusmill.steps import DocumentStep, TextStep
from corpusmill.store.draft import Draft
from corpusmill.store.layout import data_key
from corpusmill.store.manifest import SegmentEntry, TableEntry
from corpusmill.store.objects import ObjectStore, open_store
from corpusmill.store.segments import TextArtifact, write_segment
from corpusmill.store.tables import write_table_file


@dataclass(frozen=True)
class Entity:
    name: str
    text: str
    vector: np.ndarray
    degree: int = 1
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Document:
    path: str
    text: str
    entities: tuple[Entity, ...]
    labels: tuple[str, ...] = ()
    outcome: str = "indexed"

    @property
    def doc_id(self) -> str:
        return content_id("doc", self.path)

    @property
    def text_hash(self) -> str:
        return hash_text(self.text)


def document_row(document: Document) -> dict[str, object]:
    return {
        "doc_id": document.doc_id,
        "source_id": "s",
        "path": document.path,
        "uri": f"file:///{document.path}",
        "version": "1",
        "converter": "c",
        "text_hash": document.text_hash,
        "chars": len(document.text),
        "metadata": "{}",
        "metadata_hash": "m",
        "labels": list(document.labels),
        "outcome": document.outcome,
        "attempts": 1,
    }


def entity_tables(document: Document, vectors: TableSpec) -> dict[str, pa.Table]:
    """`local_entities` and `entity_vectors` of a document's text."""
    entities, rows = [], []
    for entity in document.entities:
        normal = normal_form(entity.name)
        local = content_id("local_entity", document.text_hash, normal)
        entities.append(
            {
                "text_hash": document.text_hash,
                "local_id": local,
                "normal": normal,
                "name": entity.name,
                "degree": entity.degree,
                "text": entity.text,
                "summarised": bool(entity.aliases),
                "aliases": list(entity.aliases),
            }
        )
        rows.append(
            {
                "text_hash": document.text_hash,
                "unit_id": local,
                "input_hash": hash_text(f"{entity.name}\n{entity.text}"),
                "vector": entity.vector.tolist(),
            }
        )
    return {LOCAL_ENTITIES.name: LOCAL_ENTITIES.table(entities), vectors.name: vectors.table(rows)}


def put_documents(store: ObjectStore, draft: Draft, documents: Sequence[Document]) -> None:
    table = DOCUMENTS.table([document_row(document) for document in documents])
    file, digest = write_table_file(store, data_key("r", "documents"), table, DOCUMENTS.schema)
    draft.put_table(
        TableEntry(
            name="documents",
            step="ingest",
            fingerprint="",
            methods=("flexstructrag",),
            key=DOCUMENTS.key,
            rows=digest.rows,
            digest=digest.hex,
            files=(file,),
        )
    )


def put_segment(
    store: ObjectStore, draft: Draft, settings: Settings, step: str, artifacts: Iterable[TextArtifact]
) -> SegmentEntry:
    """Write one segment of a step's artifacts and join it to the draft."""
    plan = resolved_plan(settings)
    if step == TEXTS.name:
        fingerprint, specs = TEXT_FINGERPRINT, (TEXTS,)
    else:
        fingerprint, specs = plan.fingerprints[step], next(s for s in plan.steps if s.name == step).outputs
    segment = write_segment(store, step, fingerprint, specs, artifacts)
    draft.add_segments(step, fingerprint, tuple(spec.name for spec in specs), [segment])
    return segment


def tiny_index(
    folder: Path, documents: Sequence[Document], settings: Settings, per_segment: int = 2
) -> tuple[RunSpec, Draft]:
    """Documents and the artifacts of their texts, in segments of a few texts each; other steps' tables are empty."""
    store = open_store(str(folder))
    draft = Draft()
    put_documents(store, draft, documents)
    plan = resolved_plan(settings)
    texts = list({d.text_hash: d for d in documents}.values())
    for start in range(0, len(texts), per_segment):
        part = texts[start : start + per_segment]
        rows = [
            TextArtifact(d.text_hash, {"texts": TEXTS.table([{"text_hash": d.text_hash, "text": d.text}])})
            for d in part
        ]
        put_segment(store, draft, settings, "texts", rows)
        made = {d.text_hash: entity_tables(d, plan.spec("entity_vectors")) for d in part}
        for step in plan.steps:
            if isinstance(step, TextStep | DocumentStep):
                names = {spec.name for spec in step.outputs}
                chosen = [
                    TextArtifact(h, {name: table for name, table in tables.items() if name in names})
                    for h, tables in made.items()
                ]
                put_segment(store, draft, settings, step.name, chosen)
    return RunSpec(run="r", index=str(folder), source=None, source_id="s", settings=settings), draft
