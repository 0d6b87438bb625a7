"""Codebook and memberships (steps 2 and 3): the functions of their steps. No model is called."""

import asyncio
import heapq
from typing import Literal

import numpy as np
import pyarrow as pa

from corpusmill.frozen import Frozen
from corpusmill.methods.common.vectors import CHUNK_VECTORS
from corpusmill.methods.contextrag import codebooks
from corpusmill.methods.contextrag.memberships import ONE, memberships
from corpusmill.methods.contextrag.quantiser import Codebook, encode, fit, sample_limit
from corpusmill.methods.contextrag.tables import MEMBERSHIPS, TRAINING
from corpusmill.retrieval.vectors import matrix
from corpusmill.steps import BuildContext, StepContext, StepOutput


class CodebookSettings(Frozen):
    """What changes the codebook."""

    levels: tuple[int, ...]
    points_per_centroid: int
    iterations: int
    train_max: int
    train_memory_mb: int
    seed: int
    dim: int


class MembershipSettings(Frozen):
    form: Literal["relative", "raw"]
    keep: int
    dim: int


def train_codebook(context: BuildContext) -> None:
    """`context_codebook` and `context_training` from the chunk vectors, or a sample of them that fits the memory."""
    own = context.settings
    assert isinstance(own, CodebookSettings)
    limit = sample_limit(own.dim, own.train_memory_mb, own.train_max)
    vectors = _sample(context, limit, own.dim)
    context.progress(f"codebook of {own.levels} centroids from {len(vectors)} of {context.rows(CHUNK_VECTORS)} chunks")
    if not len(vectors):
        return
    parts = context.cluster(fit_arrays, vectors, own.levels, own.points_per_centroid, own.iterations, own.seed)
    table, training = codebooks.to_tables(codebooks.from_arrays(parts))
    context.put("context_codebook", table)
    context.put(TRAINING.name, training)


def fit_arrays(
    vectors: np.ndarray, levels: tuple[int, ...], points_per_centroid: int, iterations: int, seed: int
) -> list[np.ndarray]:
    """`quantiser.fit` as arrays, which is how results come back from the clustering pool."""
    book = fit(vectors, levels, points_per_centroid=points_per_centroid, seed=seed, iterations=iterations)
    return codebooks.to_arrays(book, levels)


def _sample(context: BuildContext, limit: int, dim: int) -> np.ndarray:
    """float32 [n, dim]: the vectors of the `limit` least chunk ids, in their order. Ids are hashes of contents: this is
    a uniform sample which knows nothing of files, rows or machines."""
    kept: list[tuple[str, np.ndarray]] = []
    for batch in context.batches(CHUNK_VECTORS, ["unit_id", "vector"]):
        kept.extend(zip(batch.column("unit_id").to_pylist(), matrix(batch.column("vector"), dim), strict=True))
        if len(kept) > 2 * limit:
            kept = heapq.nsmallest(limit, kept, key=lambda item: item[0])
    kept = sorted(kept, key=lambda item: item[0])[:limit]
    return np.stack([vector for _, vector in kept]) if kept else np.zeros((0, dim), np.float32)


async def assign(rows: pa.Table, ctx: StepContext) -> StepOutput:
    """`context_memberships` of a block of chunk vectors, by the codebook that stands beside it."""
    own = ctx.settings
    assert isinstance(own, MembershipSettings)
    book = codebooks.from_tables(ctx.sides["context_codebook"], ctx.sides[TRAINING.name])
    if book is None:
        return StepOutput({MEMBERSHIPS.name: MEMBERSHIPS.empty()})
    table = await asyncio.to_thread(membership_rows, book, rows, own)
    return StepOutput({MEMBERSHIPS.name: table})


def membership_rows(book: Codebook, rows: pa.Table, own: MembershipSettings) -> pa.Table:
    """MEMBERSHIPS rows of the chunk vectors in `rows`."""
    vectors = matrix(rows.column("vector"), own.dim)
    encoding = encode(book, vectors)
    distances = np.rint(encoding.distances * ONE).astype(np.int64)
    found = [(c.tolist(), v.tolist()) for c, v in memberships(book, vectors, own.form, own.keep)]
    ids = zip(rows.column("text_hash").to_pylist(), rows.column("unit_id").to_pylist(), strict=True)
    out: list[dict[str, object]] = [
        {
            "text_hash": text_hash,
            "chunk_id": chunk_id,
            "codes": encoding.codes[row].tolist(),
            "distances_e4": distances[row].tolist(),
            "attributes": [
                {"level": level, "centroid": centroid, "value": value}
                for level, (centroids, values) in enumerate(found)
                for centroid, value in sorted(zip(centroids[row], values[row], strict=True))
                if value > 0
            ],
        }
        for row, (text_hash, chunk_id) in enumerate(ids)
    ]
    return MEMBERSHIPS.table(out)
