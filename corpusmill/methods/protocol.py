"""What a method is: a plan of steps, and a retriever over the tables and files they made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
from pydantic import BaseModel

from corpusmill.spans import Span
from corpusmill.steps import AnyStep, Models

if TYPE_CHECKING:
    from pathlib import Path

    from corpusmill.settings import Settings


@dataclass(frozen=True)
class Source:
    """Where evidence stands: a span of a document text. One text may belong to several documents."""

    text_hash: str
    span: Span


@dataclass(frozen=True)
class Scope:
    """What a question may use: the hashes of the allowed texts, and the words by which they were asked for.

    `documents` are the ids of the allowed documents (None: all that have one of the texts): two documents may share a
    text of which only one is allowed.
    """

    texts: frozenset[str]
    asked: tuple[str, ...] = ()
    documents: frozenset[str] | None = None

    def __contains__(self, text_hash: object) -> bool:
        return text_hash in self.texts


@dataclass(frozen=True)
class Evidence:
    """One retrieved unit. `kind`: entity, hyperedge, edge, cluster, concept, record, passage, ...; `text` is what the
    generator reads; `sources` are in order of importance."""

    kind: str
    id: str
    score: float
    text: str
    sources: tuple[Source, ...]


@dataclass(frozen=True)
class Retrieval:
    """What a method found. `timings` in seconds by stage; `calls`: all model calls that retrieval made, those of a
    reranking model among them (0: none)."""

    evidence: tuple[Evidence, ...]
    timings: Mapping[str, float] = field(default_factory=dict)
    calls: int = 0


class Snapshot(Protocol):
    """What a retriever may read of a pinned snapshot (store/reader.py implements it)."""

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """A whole table, live rows only, read once and kept."""
        ...

    def index_file(self, step: str, name: str) -> "Path":
        """A local path of a published index file, fetched and checked once."""
        ...

    def text(self, text_hash: str) -> str: ...

    def documents_of(self, text_hash: str) -> Sequence[Mapping[str, object]]:
        """The rows of `documents` that have this text, ordered by doc_id."""
        ...


class Retriever(Protocol):
    modes: tuple[str, ...]
    default_mode: str

    async def retrieve(self, question: str, mode: str, scope: Scope | None = None) -> Retrieval:
        """Evidence for the question. Raises UsageError on an unknown mode.

        With a scope no evidence has a source outside it or quotes a text outside it, and every piece has a source:
        what has none left is dropped. The engine refuses anything else.
        """
        ...


class Method(Protocol):
    """One indexing and retrieval method. Register it in `registry`; nothing else names it."""

    name: str
    summary: str
    modes: tuple[str, ...]
    settings_type: type[BaseModel]

    def plan(self, settings: "Settings", dim: int) -> Sequence[AnyStep]:
        """All steps, shared ones included, in order. `dim` is the embedder's."""
        ...

    def retriever(self, settings: "Settings", snapshot: Snapshot, models: Models) -> Retriever: ...
