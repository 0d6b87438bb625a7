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
import pyarrow.compute as pc
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


def _faiss() -> Any:
    """The library, of whose parameter classes its own type stubs know nothing."""
    import faiss

    return faiss


class VectorIndex:
    """An opened index, memory-mapped where its kind allows it."""

    def __init__(self, file: FileOf, nprobe: int) -> None:
        import faiss

        path = str(file("vectors.faiss"))
        self._index = faiss.read_index(path, faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)
        self._ids = pq.read_table(file("ids.parquet"), memory_map=True)
        inverted = faiss.try_extract_index_ivf(self._index)
        self._lists = int(inverted.nlist) if inverted is not None else 0
        self._nprobe = nprobe
        if inverted is not None:
            inverted.nprobe = nprobe
        self._allowed: tuple[frozenset[str], np.ndarray] | None = None

    def __len__(self) -> int:
        return int(self._index.ntotal)

    @property
    def dim(self) -> int:
        return int(self._index.d)

    def search(self, query: np.ndarray, k: int, above: float = 0.0, texts: frozenset[str] | None = None) -> list[Hit]:
        """The best `k` (text_hash, unit_id, cosine) for float32 [dim] with a cosine > `above`, ties by ids.

        `texts`: only units of these text hashes count, and `k` of them are found where there are `k`.
        """
        if k <= 0 or not len(self) or not np.any(query):
            return []
        asked = np.ascontiguousarray(query.reshape(1, -1), np.float32)
        wide = k + 32  # room to order ties at the edge by id
        with one_thread():
            if texts is None:
                scores, rows = self._index.search(asked, min(len(self), wide))
            else:
                scores, rows = self._search_among(asked, wide, self._mask(texts))
        found = [(float(s), int(r)) for s, r in zip(scores[0], rows[0], strict=True) if r >= 0 and s > above]
        taken = self._ids.take(pa.array([row for _, row in found], pa.int64()))
        pairs = zip(taken.column("text_hash").to_pylist(), taken.column("unit_id").to_pylist(), found, strict=True)
        hits = [(text, unit, score) for text, unit, (score, _) in pairs]
        return sorted(hits, key=lambda hit: (-hit[2], hit[0], hit[1]))[:k]

    def _mask(self, texts: frozenset[str]) -> np.ndarray:
        """bool [n]: rows of units of these texts; that of the last scope is kept."""
        if self._allowed is None or self._allowed[0] != texts:
            among = pc.is_in(self._ids.column("text_hash"), value_set=pa.array(sorted(texts), pa.string()))
            self._allowed = (texts, among.to_numpy())
        return self._allowed[1]

    def _search_among(self, asked: np.ndarray, wide: int, allowed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """FAISS search over the rows of a mask. The fewer there are, the more inverted lists are read, and all of
        them where that finds too few."""
        faiss = _faiss()
        count = int(allowed.sum())
        if not count:
            return np.zeros((1, 0), np.float32), np.zeros((1, 0), np.int64)
        wide = min(count, wide)
        selector = faiss.IDSelectorBitmap(np.packbits(allowed, bitorder="little"))
        if not self._lists:
            scores, rows = self._index.search(asked, wide, params=faiss.SearchParameters(sel=selector))
            return scores, rows
        nprobe = min(self._lists, -(-self._nprobe * len(self) // count))
        for lists in dict.fromkeys((nprobe, self._lists)):
            own = faiss.SearchParametersIVF(sel=selector, nprobe=lists)
            scores, rows = self._index.search(asked, wide, params=own)
            if (rows[0] >= 0).all():
                break
        return scores, rows

    def neighbours(self, rows: np.ndarray, k: int, batch: int = 1024) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """For each batch of the stored vectors with the numbers `rows`: their places in `rows`, and int64 [m, k] the
        numbers of their nearest, themselves included; where there are fewer, their own number again."""
        for start in range(0, len(rows), batch):
            own = np.asarray(rows[start : start + batch], np.int64)
            with one_thread():
                _, found = self._index.search(self.vectors(own), k)
            yield np.arange(start, start + len(own)), np.where(found >= 0, found, own[:, None])

    def unit_ids(self) -> list[str]:
        """The unit of each stored vector, in the order of the rows."""
        ids: list[str] = self._ids.column("unit_id").to_pylist()
        return ids

    def vectors(self, rows: np.ndarray) -> np.ndarray:
        """float32 [len(rows), dim]: stored vectors (decoded from their codes where quantised)."""
        out: np.ndarray = self._index.reconstruct_batch(np.asarray(rows, np.int64))
        return out
