"""A question against one pinned snapshot: retrieval by a method, then a cited answer or the word that there is none.

Loads neither Spark nor Ray.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Protocol

from corpusmill.errors import EmbedderMismatchError, UsageError
from corpusmill.methods.protocol import Evidence, Retrieval, Retriever, Snapshot
from corpusmill.methods.registry import get_method, method_names
from corpusmill.retrieval.answering import UNANSWERABLE, Answered, answer_from
from corpusmill.retrieval.citations import MAX_DOCUMENTS, Citation
from corpusmill.retrieval.context import Context, assemble
from corpusmill.retrieval.scope import ScopedSnapshot, refuse_outside, resolve_scope
from corpusmill.steps import Models

if TYPE_CHECKING:
    from corpusmill.settings import Settings
    from corpusmill.store.draft import Draft
    from corpusmill.store.manifest import Manifest


class PinnedSnapshot(Snapshot, Protocol):
    """A snapshot whose manifest is at hand (store.view.SnapshotView)."""

    source: "Manifest | Draft"


@dataclass(frozen=True)
class SourceRef:
    """A span of a document; one text that several documents share gives one for each."""

    doc_id: str
    uri: str
    title: str
    start: int
    end: int


@dataclass(frozen=True)
class EvidenceItem:
    kind: str
    id: str
    score: float
    text: str
    sources: tuple[SourceRef, ...]


@dataclass(frozen=True)
class QueryResult:
    """`tokens`: of the prompt and the reply where a model reported them, else of the context. `notes` are for people:
    removed quotes, an embedded answer."""

    answer: str
    citations: tuple[Citation, ...]
    evidence: tuple[EvidenceItem, ...]
    method: str
    mode: str
    snapshot: int
    tokens: int
    seconds: float
    notes: tuple[str, ...] = ()
    context_tokens: int = 0
    answerable: bool = True

    def to_json(self) -> dict[str, object]:
        """The public JSON shape; scripts rely on these keys."""
        whole = asdict(self)
        for internal in ("notes", "context_tokens", "answerable"):
            del whole[internal]
        whole["seconds"] = round(self.seconds, 3)
        return whole


def _named(section: object) -> str:
    """Back-end and model of an `embedder` section as it is stored; nothing where none is."""
    if not isinstance(section, dict):
        return ""
    return "".join(f"{section[key]} " for key in ("backend", "model") if section.get(key))


class QueryEngine:
    """Answers questions over one snapshot; indices stay open between questions.

    Raises EmbedderMismatchError when the models embed otherwise than the snapshot was embedded, UsageError when the
    snapshot holds no method.
    """

    def __init__(self, view: PinnedSnapshot, settings: "Settings", models: Models) -> None:
        from corpusmill.store.manifest import Manifest

        if not isinstance(view.source, Manifest):
            raise UsageError("only a published snapshot can be queried, this one is a draft")
        self._view = view
        self._manifest = view.source
        self._settings = settings
        self._models = models
        self._retrievers: dict[str, Retriever] = {}
        if self._embeds() and models.embedder.fingerprint != self._manifest.embedder:
            own = settings.embedder.model_dump()
            raise EmbedderMismatchError(
                f"snapshot {self._manifest.number} was embedded by {_named(self._manifest.config.get('embedder'))}"
                f"{self._manifest.embedder[:12]}, the configured embedder is {_named(own)}"
                f"{models.embedder.fingerprint[:12]}; set the `embedder` section to what the index was made with"
            )

    async def query(
        self, question: str, method: str | None = None, mode: str | None = None, documents: Sequence[str] = ()
    ) -> QueryResult:
        """A cited answer, from these documents alone where any are named (ids, paths, URIs or globs).

        Raises UsageError on an empty question, an unknown method or mode, a pattern that no document matches;
        ModelError.
        """
        started = time.perf_counter()
        found = await self._evidence(question, method, mode, documents)
        answered = await answer_from(question, found.context.evidence, found.snapshot, self._models)
        return self._result(found, answered, time.perf_counter() - started)

    async def retrieve(
        self, question: str, method: str | None = None, mode: str | None = None, documents: Sequence[str] = ()
    ) -> QueryResult:
        """The same without an answer: `answer` is empty and nothing is cited. Raises as `query`."""
        started = time.perf_counter()
        found = await self._evidence(question, method, mode, documents)
        return self._result(found, Answered("", (), True, 0, ()), time.perf_counter() - started)

    def retriever(self, method: str | None = None) -> tuple[str, Retriever]:
        """The method's name and its retriever, opened once. Raises UsageError with the choices."""
        present = [entry.name for entry in self._manifest.methods]
        if not present:
            raise UsageError(f"snapshot {self._manifest.number} holds no method's index")
        name = method or self._settings.query.method or present[0]
        if name not in present:
            get_method(name)  # an unknown one is told apart from one that this index lacks
            raise UsageError(f"this index has no method {name!r}; it has: {', '.join(present)}")
        if name not in self._retrievers:
            self._retrievers[name] = get_method(name).retriever(self._settings, self._view, self._models)
        return name, self._retrievers[name]

    def _embeds(self) -> bool:
        """Whether any of the index's methods has vectors; without one the embedder is not even made."""
        present = [entry.name for entry in self._manifest.methods if entry.name in method_names()]
        plans = [get_method(name).plan(self._settings, self._manifest.dim) for name in present]
        return any(step.embeds for plan in plans for step in plan)

    async def _evidence(
        self, question: str, method: str | None, mode: str | None, documents: Sequence[str]
    ) -> "_Found":
        if not question.strip():
            raise UsageError("the question is empty")
        name, retriever = self.retriever(method)
        mode = mode or self._settings.query.mode or retriever.default_mode
        if mode not in retriever.modes:
            raise UsageError(f"unknown mode {mode!r} of method {name}; choices: {', '.join(retriever.modes)}")
        scope = resolve_scope(self._view, documents) if documents else None
        retrieval = await retriever.retrieve(question, mode, scope)
        snapshot: Snapshot = self._view
        if scope is not None:
            refuse_outside(retrieval.evidence, scope, name)
            snapshot = ScopedSnapshot(self._view, scope)
        context = assemble(retrieval.evidence, self._settings.query.context_tokens, snapshot)
        return _Found(name, mode, retrieval, context, snapshot)

    def _result(self, found: "_Found", answered: Answered, seconds: float) -> QueryResult:
        context, retrieval = found.context, found.retrieval
        result = QueryResult(
            answer=answered.text,
            citations=answered.citations,
            evidence=tuple(_item(piece, found.snapshot) for piece in context.evidence),
            method=found.method,
            mode=found.mode,
            snapshot=self._manifest.number,
            tokens=answered.tokens or context.tokens,
            seconds=seconds,
            notes=answered.notes,
            context_tokens=context.tokens,
            answerable=answered.answerable,
        )
        left_out = len(retrieval.evidence) - len(context.evidence)
        if left_out:
            note = f"{left_out} of {len(retrieval.evidence)} pieces of evidence left out (repeats, or a full context)"
            result = replace(result, notes=(*result.notes, note))
        return result


@dataclass(frozen=True)
class _Found:
    """`snapshot` is the one that evidence may be told from: scoped where the question is."""

    method: str
    mode: str
    retrieval: Retrieval
    context: Context
    snapshot: Snapshot


def _item(piece: Evidence, snapshot: Snapshot) -> EvidenceItem:
    return EvidenceItem(piece.kind, piece.id, round(piece.score, 6), piece.text, tuple(_refs(piece, snapshot)))


def _refs(piece: Evidence, snapshot: Snapshot) -> Sequence[SourceRef]:
    refs = []
    for source in piece.sources:
        for row in list(snapshot.documents_of(source.text_hash))[:MAX_DOCUMENTS]:
            title = str(row.get("title") or row["uri"])
            refs.append(SourceRef(str(row["doc_id"]), str(row["uri"]), title, source.span.start, source.span.end))
    return refs


__all__ = ["UNANSWERABLE", "EvidenceItem", "PinnedSnapshot", "QueryEngine", "QueryResult", "SourceRef"]
