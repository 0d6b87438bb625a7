"""Passages: the chunks of every text, searchable by words and by meaning. Steps and search that all methods share."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

from corpusmill.methods.protocol import Scope, Snapshot
from corpusmill.retrieval.fusion import fuse
from corpusmill.retrieval.lexical import K1, LEXICAL_FILES, B, LexicalIndex, build_lexical
from corpusmill.retrieval.tokenizer import TOKENIZER_VERSION
from corpusmill.retrieval.vectors import VECTOR_FILES, IndexSizes, VectorIndex, build_vectors
from corpusmill.spans import Span
from corpusmill.steps import BuildContext, BuildStep

if TYPE_CHECKING:
    from corpusmill.settings import Settings

LEXICAL_STEP = "chunk_bm25"
VECTOR_STEP = "chunk_index"
POOL = 100  # candidates that each side gives to the fusion

PASSAGES_SCHEMA = pa.schema(
    [
        pa.field("text_hash", pa.string(), nullable=False),
        pa.field("chunk_id", pa.string(), nullable=False),
        pa.field("start", pa.int64(), nullable=False),
        pa.field("end", pa.int64(), nullable=False),
    ]
)


class LexicalSettings(BaseModel):
    """What changes the lexical index."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tokenizer: int = TOKENIZER_VERSION
    k1: float = K1
    b: float = B
    titles: bool = True


@dataclass(frozen=True)
class Passage:
    """A chunk with a score; `row` is its number in the snapshot's passage list."""

    row: int
    chunk_id: str
    text_hash: str
    span: Span
    score: float


def lexical_step() -> BuildStep:
    """The lexical index over chunks, and the list of passages; embeds nothing."""
    return BuildStep(
        name=LEXICAL_STEP,
        version=1,
        settings=LexicalSettings(),
        inputs=("chunks", "texts", "documents"),
        files=(*LEXICAL_FILES, "passages.parquet"),
        run=_build_lexical,
    )


def passage_steps(settings: "Settings") -> tuple[BuildStep, ...]:
    """The lexical and the vector index over chunks."""
    return (lexical_step(), vector_index_step(VECTOR_STEP, "chunk_vectors", settings))


def vector_index_step(name: str, table: str, settings: "Settings") -> BuildStep:
    """A FAISS index over a vector table (schemas.vector_table); search it with `open_vectors`."""
    sizes = settings.vector_index
    return BuildStep(
        name=name,
        version=1,
        settings=IndexSizes(
            flat_max=sizes.flat_max, ivf_max=sizes.ivf_max, train_max=sizes.train_max, seed=settings.run.seed
        ),
        inputs=(table,),
        files=VECTOR_FILES,
        run=BuildVectors(table),
    )


@dataclass(frozen=True)
class BuildVectors:
    """Indexes one vector table."""

    table: str

    def __call__(self, context: BuildContext) -> None:
        sizes = context.settings
        if not isinstance(sizes, IndexSizes):
            raise TypeError(f"a vector index step needs IndexSizes, got {type(sizes).__name__}")
        rows = context.rows(self.table)
        context.progress(f"{rows} vectors of {self.table}")
        batches = context.batches(self.table, ["text_hash", "unit_id", "vector"])
        build_vectors(batches, rows, context.scratch, sizes, context.seed)


def open_vectors(snapshot: Snapshot, step: str, nprobe: int) -> VectorIndex:
    """The vector index that the step `step` built."""
    return VectorIndex(lambda name: snapshot.index_file(step, name), nprobe)


def _build_lexical(context: BuildContext) -> None:
    """Row i of the index is row i of passages.parquet, in the order of the chunk table's key.

    A passage is indexed with the titles of its documents: two documents with one text give it both.
    """
    titles = _titles(context)
    context.scratch.mkdir(parents=True, exist_ok=True)
    with pq.ParquetWriter(context.scratch / "passages.parquet", PASSAGES_SCHEMA) as writer:
        rows = build_lexical(_passage_texts(context, titles, writer), context.scratch)
    context.progress(f"{LEXICAL_STEP}: {rows} passages")


def _titles(context: BuildContext) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    for batch in context.batches("documents", ["text_hash", "title"]):
        for text_hash, title in zip(
            batch.column("text_hash").to_pylist(), batch.column("title").to_pylist(), strict=True
        ):
            if text_hash and title:
                found.setdefault(text_hash, set()).add(title)
    return {text_hash: "\n".join(sorted(titles)) for text_hash, titles in found.items()}


def _passage_texts(context: BuildContext, titles: Mapping[str, str], writer: pq.ParquetWriter) -> Iterator[str]:
    """Merge join of chunks and texts, both ordered by text_hash: one text in memory at a time."""
    texts = _pairs(context, "texts", ["text_hash", "text"])
    current, text = "", ""
    for batch in context.batches("chunks", ["text_hash", "ordinal", "chunk_id", "start", "end"]):
        writer.write_table(pa.Table.from_batches([batch]).select(PASSAGES_SCHEMA.names).cast(PASSAGES_SCHEMA))
        columns = (batch.column(name).to_pylist() for name in ("text_hash", "start", "end"))
        for text_hash, start, end in zip(*columns, strict=True):
            while current != text_hash:
                found = next(texts, None)
                if found is None or found[0] > text_hash:
                    raise ValueError(f"chunks name a text {text_hash} that is not in `texts`, or is out of order")
                current, text = found
            title = titles.get(text_hash)
            body = text[start:end]
            yield f"{title}\n{body}" if title and not body.startswith(title) else body


def _pairs(context: BuildContext, table: str, columns: Sequence[str]) -> Iterator[tuple[str, str]]:
    for batch in context.batches(table, columns):
        yield from zip(*(batch.column(name).to_pylist() for name in columns), strict=True)


class PassageSearch:
    """Lexical, dense and hybrid search over the passages of a snapshot; indices are opened at first use.

    With a scope only passages of its texts are found, and as many as without one where there are so many. Word
    statistics stay those of the whole index.
    """

    def __init__(self, snapshot: Snapshot, nprobe: int = 16) -> None:
        self._snapshot = snapshot
        self._nprobe = nprobe
        self._table: pa.Table | None = None
        self._lexical: LexicalIndex | None = None
        self._vectors: VectorIndex | None = None
        self._rows: dict[str, int] | None = None
        self._of_text: dict[str, list[int]] | None = None
        self._allowed: tuple[frozenset[str], np.ndarray] | None = None
        self._vector_rows: np.ndarray | None = None

    @property
    def lexical(self) -> LexicalIndex:
        if self._lexical is None:
            self._lexical = LexicalIndex(lambda name: self._snapshot.index_file(LEXICAL_STEP, name))
        return self._lexical

    @property
    def vectors(self) -> VectorIndex:
        if self._vectors is None:
            self._vectors = open_vectors(self._snapshot, VECTOR_STEP, self._nprobe)
        return self._vectors

    @property
    def table(self) -> pa.Table:
        """All passages (PASSAGES_SCHEMA), row i being row i of the lexical index."""
        if self._table is None:
            self._table = pq.read_table(self._snapshot.index_file(LEXICAL_STEP, "passages.parquet"), memory_map=True)
        return self._table

    def vectors_of(self, rows: np.ndarray) -> np.ndarray:
        """float32 [len(rows), dim]: the stored vectors of passages."""
        if self._vector_rows is None:
            numbers = {unit: at for at, unit in enumerate(self.vectors.unit_ids())}
            self._vector_rows = np.array([numbers[own] for own in self.table.column("chunk_id").to_pylist()], np.int64)
        return self.vectors.vectors(self._vector_rows[rows])

    def passage(self, row: int, score: float) -> Passage:
        own = {name: self.table.column(name)[row].as_py() for name in PASSAGES_SCHEMA.names}
        return Passage(row, own["chunk_id"], own["text_hash"], Span(own["start"], own["end"]), score)

    def row_of(self, chunk_id: str) -> int:
        """The row of a chunk. Raises KeyError on an unknown one."""
        if self._rows is None:
            ids = self.table.column("chunk_id").to_pylist()
            self._rows = {own: row for row, own in enumerate(ids)}
        return self._rows[chunk_id]

    def rows_at(self, text_hash: str, span: Span) -> list[int]:
        """Rows of the passages of a text that a span touches, in text order."""
        if self._of_text is None:
            self._of_text = {}
            for row, own in enumerate(self.table.column("text_hash").to_pylist()):
                self._of_text.setdefault(own, []).append(row)
        rows = self._of_text.get(text_hash, [])
        if len(rows) <= 1:
            return rows
        own = self.table.take(pa.array(rows))
        touched = pc.and_(
            pc.less(own.column("start"), max(span.end, span.start + 1)), pc.greater(own.column("end"), span.start)
        )
        return [row for row, is_touched in zip(rows, touched.to_pylist(), strict=True) if is_touched]

    def allowed(self, scope: Scope | None) -> np.ndarray | None:
        """bool [passages]: those of the scope's texts; None without a scope. That of the last scope is kept."""
        if scope is None:
            return None
        if self._allowed is None or self._allowed[0] != scope.texts:
            among = pc.is_in(self.table.column("text_hash"), value_set=pa.array(sorted(scope.texts), pa.string()))
            self._allowed = (scope.texts, among.to_numpy())
        return self._allowed[1]

    def bm25(self, question: str, k: int, scope: Scope | None = None) -> list[Passage]:
        """The best `k` by BM25, ties by row."""
        found = self.lexical.search(question, k, self.allowed(scope))
        return [self.passage(row, score) for row, score in found]

    def dense(self, vector: np.ndarray, k: int, scope: Scope | None = None) -> list[Passage]:
        """The best `k` by cosine with the question's vector (float32 [dim], unit length)."""
        hits = self.vectors.search(vector, k, texts=None if scope is None else scope.texts)
        return [self.passage(self.row_of(chunk), score) for _, chunk, score in hits]

    def scores(
        self, question: str, vector: np.ndarray | None, pool: int = POOL, scope: Scope | None = None
    ) -> dict[int, float]:
        """row -> fused score in [0, 1] of the best `pool` of either side (see retrieval.fusion).

        `vector` None: the embedder does not know the question's script, and words decide alone.
        """
        texts = None if scope is None else scope.texts
        hits = [] if vector is None else self.vectors.search(vector, pool, texts=texts)
        dense = {self.row_of(chunk): score for _, chunk, score in hits}
        return fuse(dense, dict(self.lexical.search(question, pool, self.allowed(scope))))

    def hybrid(self, question: str, vector: np.ndarray | None, k: int, scope: Scope | None = None) -> list[Passage]:
        """The best `k` by the fused score, ties by row."""
        fused = self.scores(question, vector, scope=scope)
        best = sorted(fused.items(), key=lambda item: (-item[1], item[0]))[:k]
        return [self.passage(row, score) for row, score in best]
