"""Vector search by FAISS, by size: exact up to `flat_max` vectors, IVF up to `ivf_max`, IVF with 8-bit codes above.

Inner product on unit vectors is the cosine. `vectors.faiss` holds the index, `ids.parquet` names row i: text_hash,
unit_id, in the order of the table's key. Training takes a seeded sample and one thread, so equal tables give equal
indices on one machine. Zero vectors (empty texts) stay in and never score above 0.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

from corpusmill.retrieval.files import FileOf

VECTOR_FILES = ("vectors.faiss", "ids.parquet")
IDS_SCHEMA = pa.schema(
    [pa.field("text_hash", pa.string(), nullable=False), pa.field("unit_id", pa.string(), nullable=False)]
)
Hit = tuple[str, str, float]  # text_hash, unit_id, cosine


class IndexSizes(BaseModel):
    """What of the vector index settings changes the built files; `nprobe` is chosen when a query runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    flat_max: int
    ivf_max: int
    train_max: int
    seed: int = 0


def index_kind(rows: int, settings: IndexSizes) -> str:
    """The FAISS factory string for that many vectors; about 4 sqrt(n) lists, at least 39 training vectors a list."""
    if rows <= settings.flat_max:
        return "Flat"
    lists = max(1, min(int(4 * rows**0.5), min(rows, settings.train_max) // 39))
    return f"IVF{lists},{'Flat' if rows <= settings.ivf_max else 'SQ8'}"


def matrix(column: pa.ChunkedArray | pa.Array, dim: int) -> np.ndarray:
    """A fixed-size list column of float32 as [n, dim], without a copy where Arrow allows it."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            parts = [matrix(chunk, dim) for chunk in column.chunks]
            return np.concatenate(parts) if parts else np.zeros((0, dim), np.float32)
    flat = column.flatten().to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(flat, dtype=np.float32).reshape(-1, dim)


def build_vectors(
    batches: Iterable[pa.RecordBatch], rows: int, folder: Path, settings: IndexSizes, seed: int = 0
) -> int:
    """Index the batches (columns text_hash, unit_id, vector) into `folder`. Raises ValueError on other than `rows`.

    Memory: the index itself, one batch, and for IVF the rows before the training sample is full.
    """
    import faiss

    folder.mkdir(parents=True, exist_ok=True)
    remaining = (batch for batch in batches if batch.num_rows)
    first = next(remaining, None)
    dim = 1 if first is None else first.schema.field("vector").type.list_size
    with one_thread(), pq.ParquetWriter(folder / "ids.parquet", IDS_SCHEMA) as ids:
        index = faiss.index_factory(dim, index_kind(rows, settings), faiss.METRIC_INNER_PRODUCT)
        stream = _stream(chain(() if first is None else (first,), remaining), dim, ids)
        if not index.is_trained:
            stream = _train(index, stream, rows, settings, seed, folder / "_train.f32")
        for vectors in stream:
            index.add(vectors)
    if index.ntotal != rows:
        raise ValueError(f"expected {rows} vectors to index, read {index.ntotal}")
    faiss.write_index(index, str(folder / "vectors.faiss"))
    return rows


def _stream(batches: Iterable[pa.RecordBatch], dim: int, ids: pq.ParquetWriter) -> Iterator[np.ndarray]:
    for batch in batches:
        ids.write_table(pa.Table.from_batches([batch]).select(["text_hash", "unit_id"]).cast(IDS_SCHEMA))
        yield matrix(batch.column("vector"), dim)


def _train(
    index: Any, stream: Iterator[np.ndarray], rows: int, settings: IndexSizes, seed: int, spool: Path
) -> Iterator[np.ndarray]:
    """Train on a seeded sample of all rows: one pass to a local spool file, then read back for adding."""
    dim = index.d
    with spool.open("wb") as out:
        for vectors in stream:
            out.write(vectors.tobytes())
    stored = np.memmap(spool, np.float32, "r").reshape(-1, dim)
    chosen = np.arange(len(stored))
    if len(stored) > settings.train_max:
        chosen = np.sort(np.random.default_rng(seed).choice(len(stored), settings.train_max, replace=False))
    index.cp.seed = seed + 1
    index.train(np.ascontiguousarray(stored[chosen]))
    for at in range(0, len(stored), 65_536):
        yield np.ascontiguousarray(stored[at : at + 65_536])
    del stored
    spool.unlink()


@contextmanager
def one_thread() -> Iterator[None]:
    """FAISS on one thread: sums in a fixed order."""
    import faiss

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(1)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


class VectorIndex:
    """An opened index, memory-mapped where its kind allows it."""

    def __init__(self, file: FileOf, nprobe: int) -> None:
        import faiss

        path = str(file("vectors.faiss"))
        self._index = faiss.read_index(path, faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)
        self._ids = pq.read_table(file("ids.parquet"), memory_map=True)
        inverted = faiss.try_extract_index_ivf(self._index)
        if inverted is not None:
            inverted.nprobe = nprobe

    def __len__(self) -> int:
        return int(self._index.ntotal)

    @property
    def dim(self) -> int:
        return int(self._index.d)

    def search(self, query: np.ndarray, k: int, above: float = 0.0) -> list[Hit]:
        """The best `k` (text_hash, unit_id, cosine) for float32 [dim] with a cosine > `above`, ties by ids."""
        if k <= 0 or not len(self) or not np.any(query):
            return []
        with one_thread():
            wide = min(len(self), k + 32)  # room to order ties at the edge by id
            scores, rows = self._index.search(np.ascontiguousarray(query.reshape(1, -1), np.float32), wide)
        found = [(float(s), int(r)) for s, r in zip(scores[0], rows[0], strict=True) if r >= 0 and s > above]
        taken = self._ids.take(pa.array([row for _, row in found], pa.int64()))
        pairs = zip(taken.column("text_hash").to_pylist(), taken.column("unit_id").to_pylist(), found, strict=True)
        hits = [(text, unit, score) for text, unit, (score, _) in pairs]
        return sorted(hits, key=lambda hit: (-hit[2], hit[0], hit[1]))[:k]

    def vectors(self, rows: np.ndarray) -> np.ndarray:
        """float32 [len(rows), dim]: stored vectors (decoded from their codes where quantised)."""
        out: np.ndarray = self._index.reconstruct_batch(np.asarray(rows, np.int64))
        return out
