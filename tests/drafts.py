"""A draft as ingest leaves it, made without Spark: texts and chunks in segments, documents, and what is to be built."""

from collections.abc import Sequence

from corpusmill.building import document_steps
from corpusmill.hashing import content_id, hash_text
from corpusmill.planning import TEXT_FINGERPRINT, resolved_plan
from corpusmill.run import TODO, IngestResult, RunSpec
from corpusmill.schemas import DOCUMENTS, TEXTS, TableSpec
from corpusmill.steps import Text, TextContext, TextStep
from corpusmill.store import layout
from corpusmill.store.draft import Draft
from corpusmill.store.manifest import Counts, FileEntry, TableEntry
from corpusmill.store.objects import ObjectStore, open_store
from corpusmill.store.segments import TextArtifact, write_segment
from corpusmill.store.tables import write_table_file


def ingested(spec: RunSpec, texts: Sequence[str], segments: int = 2) -> IngestResult:
    """The result of an ingest of `texts`, each a document of its own, over so many segments and todo files."""
    store = open_store(spec.index, spec.settings.store)
    plan = resolved_plan(spec.settings)
    draft = Draft(counts=Counts(documents=len(texts), indexed=len(texts), texts=len(texts)))
    steps = [step for step in plan.steps if isinstance(step, TextStep)]
    todo: list[FileEntry] = []
    for part in range(segments):
        mine = {hash_text(text): text for text in texts[part::segments]}
        if not mine:
            continue
        have = {"texts": _seal(store, draft, "texts", TEXT_FINGERPRINT, [TEXTS], _texts(mine))}
        for step in steps:
            context = TextContext(step.settings, plan.fingerprints[step.name])
            made = [TextArtifact(h, step.run(Text(h, text), {}, context)) for h, text in mine.items()]
            have[step.name] = _seal(store, draft, step.name, plan.fingerprints[step.name], step.outputs, made)
        missing = [step.name for step in document_steps(plan)]
        rows = TODO.table(
            [
                {"segment": have["texts"], "text_hash": h, "missing": missing, "have": list(have.items())}
                for h in sorted(mine)
            ]
        )
        todo.append(write_table_file(store, layout.data_key(spec.run, TODO.name), rows, TODO.schema)[0])
    _put_documents(store, spec, draft, texts)
    return IngestResult(draft=draft, todo=todo, todo_texts=sum(file.rows for file in todo))


def _texts(mine: dict[str, str]) -> list[TextArtifact]:
    return [TextArtifact(h, {"texts": TEXTS.table([{"text_hash": h, "text": text}])}) for h, text in mine.items()]


def _seal(
    store: ObjectStore,
    draft: Draft,
    step: str,
    fingerprint: str,
    specs: Sequence[TableSpec],
    artifacts: list[TextArtifact],
) -> str:
    entry = write_segment(store, step, fingerprint, specs, artifacts)
    draft.add_segments(step, fingerprint, tuple(spec.name for spec in specs), [entry])
    return entry.id


def _put_documents(store: ObjectStore, spec: RunSpec, draft: Draft, texts: Sequence[str]) -> None:
    rows: list[dict[str, object]] = [
        {
            "doc_id": content_id("doc", spec.source_id, str(number)),
            "source_id": spec.source_id,
            "path": str(number),
            "uri": f"memory:{number}",
            "version": hash_text(text),
            "converter": "none",
            "text_hash": hash_text(text),
            "chars": len(text),
            "metadata": "{}",
            "metadata_hash": hash_text("{}"),
            "labels": [],
            "outcome": "indexed",
            "attempts": 1,
        }
        for number, text in enumerate(texts)
    ]
    key = layout.data_key(spec.run, "documents")
    file, digest = write_table_file(store, key, DOCUMENTS.table(rows), DOCUMENTS.schema)
    draft.put_table(
        TableEntry(
            name="documents",
            step="documents",
            fingerprint="",
            methods=spec.settings.run.methods,
            key=DOCUMENTS.key,
            rows=digest.rows,
            digest=digest.hex,
            files=(file,),
        )
    )
