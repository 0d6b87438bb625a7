"""Which documents a question may use: named by ids or patterns, and then held to wherever documents are told."""

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import translate
from pathlib import Path

import pyarrow as pa

from corpusmill.errors import UsageError
from corpusmill.methods.protocol import Evidence, Scope, Snapshot

_COLUMNS = ("doc_id", "path", "uri", "text_hash")


def resolve_scope(snapshot: Snapshot, patterns: Sequence[str]) -> Scope:
    """The texts of the documents that any of the patterns names.

    A pattern is a document id, a path or a URI, or a glob over paths and URIs (`*` also matches `/`; case counts).
    Raises UsageError naming the first pattern that no document matches, or if none of the documents has a text.
    """
    table = snapshot.table("documents", _COLUMNS)
    rows = list(zip(*(table.column(name).to_pylist() for name in _COLUMNS), strict=True))
    documents: set[str] = set()
    texts: set[str] = set()
    for pattern in dict.fromkeys(patterns):
        glob = re.compile(translate(pattern))
        matched = [
            (doc_id, text_hash)
            for doc_id, path, uri, text_hash in rows
            if pattern in (doc_id, path, uri) or glob.match(path) or glob.match(uri)
        ]
        if not matched:
            raise UsageError(
                f"no document matches {pattern!r}: give a document id, or a path or URI, in which * stands for anything"
            )
        documents.update(doc_id for doc_id, _ in matched)
        texts.update(text_hash for _, text_hash in matched if text_hash is not None)
    if not texts:
        asked = ", ".join(map(repr, patterns))
        raise UsageError(f"the {len(documents)} documents that match {asked} have no text; `documents` says why")
    return Scope(frozenset(texts), tuple(patterns), frozenset(documents))


def refuse_outside(evidence: Iterable[Evidence], scope: Scope, method: str) -> None:
    """Raises RuntimeError on evidence with a source outside the scope, or with none: the method has a fault."""
    for piece in evidence:
        outside = [source.text_hash for source in piece.sources if source.text_hash not in scope]
        if outside or not piece.sources:
            what = f"the text {outside[0]}, which is outside" if outside else "no text of"
            raise RuntimeError(
                f"method {method!r} returned {piece.kind} {piece.id} with {what} the scope {list(scope.asked)}"
            )


class ScopedSnapshot:
    """A snapshot that knows only the scope's documents, also where a text is shared with others."""

    def __init__(self, inner: Snapshot, scope: Scope) -> None:
        self._inner = inner
        self._scope = scope

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        return self._inner.table(name, columns)

    def index_file(self, step: str, name: str) -> Path:
        return self._inner.index_file(step, name)

    def text(self, text_hash: str) -> str:
        """Raises KeyError on a text outside the scope."""
        if text_hash not in self._scope:
            raise KeyError(f"the text {text_hash} is outside the scope {list(self._scope.asked)}")
        return self._inner.text(text_hash)

    def documents_of(self, text_hash: str) -> Sequence[Mapping[str, object]]:
        known = self._scope.documents
        rows = self._inner.documents_of(text_hash)
        return [row for row in rows if known is None or row["doc_id"] in known]
