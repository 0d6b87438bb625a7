"""The concept graph of a snapshot in arrays, and how strongly a question activates it (step 7).

Rows are those of the passage list (methods/common/passages.py), so that all parts of a score speak of the same rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from scipy.sparse import csr_array

from corpusmill.methods.contextrag.logic import residuum, soft_join, t_norm
from corpusmill.methods.contextrag.memberships import ONE
from corpusmill.methods.protocol import Snapshot
from corpusmill.retrieval.vectors import matrix

LEADERS = 3


@dataclass(frozen=True)
class ConceptSpace:
    """`context` float32 [passages, seeds] holds memberships in [0, 1]; `centres` float32
    [seeds, L, dim] unit length, zeros below the seed's own level; `thresholds` float32 [L]."""

    topics: dict[int, int]  # centroid of level 0 -> seed
    context: csr_array
    centres: np.ndarray
    bridge_ids: tuple[str, ...]  # the joins
    bridge_vectors: np.ndarray  # float32 [b, dim]: means of their chunks' vectors; shorter than 1
    parents: np.ndarray  # int64 [b, 2]: their seeds
    thresholds: np.ndarray

    def activation(self, query: np.ndarray) -> np.ndarray:
        """float32 [seeds]: mu(q, v), the t-norm over the seed's levels of (threshold -> similarity) (equation 15)."""
        reached = residuum(self.thresholds, similarity(query, self.centres))
        present = np.any(self.centres != 0, axis=2)
        mu = np.ones(len(self.centres))
        for level in range(len(self.thresholds)):
            mu = np.where(present[:, level], t_norm(mu, reached[:, level]), mu)
        return mu.astype(np.float32)

    def bridge_activation(self, mu: np.ndarray) -> np.ndarray:
        """float32 [b]: a join is as active as the more active of its parents."""
        return mu[self.parents].max(axis=1) if len(self.parents) else np.zeros(0, np.float32)

    def routed(self, mu: np.ndarray) -> np.ndarray:
        """float32 [passages]: max over seeds of mu (x) I, for all passages; what puts candidates forward."""
        out = np.zeros(self.context.shape[0], np.float32)
        values = t_norm(mu[self.context.indices], self.context.data)
        rows = np.repeat(np.arange(len(out)), np.diff(self.context.indptr))
        np.maximum.at(out, rows, values.astype(np.float32))
        return out

    def fuzzy(self, mu: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """float32 [len(rows)]: max over all concepts of mu (x) I (equation 16). Meets are left out: neither their
        activation nor their extent exceeds a parent's, so that they never decide the maximum."""
        own = self.context[rows].toarray()
        best = t_norm(own, mu).max(axis=1, initial=0.0)
        if len(self.parents):
            extents = soft_join(own[:, self.parents[:, 0]], own[:, self.parents[:, 1]])
            best = np.maximum(best, t_norm(extents, self.bridge_activation(mu)).max(axis=1))
        return best.astype(np.float32)

    def leaders(self, bridge: int, among: np.ndarray | None = None) -> list[int]:
        """The strongest passages of a bridge by row, of the allowed ones where `among` (bool [passages]) says so."""
        a, b = self.parents[bridge]
        extent = np.asarray(self.context[:, [a]].maximum(self.context[:, [b]]).todense()).reshape(-1)
        if among is not None:
            extent = np.where(among, extent, 0.0)
        order = np.lexsort((np.arange(len(extent)), -extent))[:LEADERS]
        return [int(row) for row in order if extent[row] > 0]


def similarity(query: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """(1 + cos) / 2 of float32 [dim] or [q, dim] with [seeds, L, dim] (equation 14): [.., seeds, L]."""
    return (1.0 + np.tensordot(query, centres, axes=([-1], [2]))) / 2.0


def open_space(snapshot: Snapshot, rows: dict[str, int], percentile: float) -> ConceptSpace | None:
    """The space of a snapshot whose passages are `rows` (chunk id -> row); None where the graph is empty."""
    concepts = snapshot.table("context_concepts")
    if not concepts.num_rows:
        return None
    facts = concepts.drop_columns(["vector", "centres", "leaders"]).to_pylist()
    order = sorted(range(len(facts)), key=lambda at: (facts[at]["kind"] != "seed", facts[at]["concept_id"]))
    facts = [facts[at] for at in order]
    seeds = sum(fact["kind"] == "seed" for fact in facts)
    place = {fact["concept_id"]: at for at, fact in enumerate(facts)}
    column = {(fact["level"], fact["centroid"]): at for at, fact in enumerate(facts[:seeds])}
    bridges = [at for at, fact in enumerate(facts) if fact["kind"] == "join"]
    dim = concepts.schema.field("vector").type.list_size
    levels = concepts.schema.field("centres").type.list_size // dim
    vectors = matrix(concepts.column("vector"), dim)[order]
    centres = matrix(concepts.column("centres"), dim * levels)[order[:seeds]].reshape(seeds, levels, dim)
    centres = _unit(centres)
    probes = snapshot.table("context_probe_vectors", ["vector"])
    return ConceptSpace(
        topics={centroid: at for (level, centroid), at in column.items() if level == 0},
        context=_context(snapshot.table("context_memberships", ["chunk_id", "attributes"]), rows, column),
        centres=centres,
        bridge_ids=tuple(facts[at]["concept_id"] for at in bridges),
        bridge_vectors=vectors[bridges],
        parents=np.array([[place[p] for p in facts[at]["parents"]] for at in bridges], np.int64).reshape(-1, 2),
        thresholds=thresholds(matrix(probes.column("vector"), dim), centres, percentile),
    )


def thresholds(probes: np.ndarray, centres: np.ndarray, percentile: float) -> np.ndarray:
    """float32 [L]: the percentile of the similarities of sampled questions with the seeds that reach the level."""
    levels = centres.shape[1]
    out = np.zeros(levels, np.float32)
    if not len(probes):
        return out
    found = similarity(probes, centres)
    present = np.any(centres != 0, axis=2)
    for level in range(levels):
        own = found[:, present[:, level], level]
        out[level] = np.percentile(own, percentile) if own.size else 0.0
    return out


def _context(table: pa.Table, rows: dict[str, int], column: dict[tuple[int, int], int]) -> csr_array:
    attributes = table.column("attributes").combine_chunks()
    if isinstance(attributes, pa.ChunkedArray):
        attributes = pa.concat_arrays(attributes.chunks) if attributes.num_chunks else pa.array([], attributes.type)
    sizes = attributes.value_lengths().to_numpy(zero_copy_only=False)
    flat = attributes.flatten()
    places = zip(flat.field("level").to_pylist(), flat.field("centroid").to_pylist(), strict=True)
    columns = np.array([column.get(place, -1) for place in places], np.int64)
    own = np.array([rows[chunk] for chunk in table.column("chunk_id").to_pylist()], np.int64)
    known = columns >= 0
    values = flat.field("value").to_numpy(zero_copy_only=False).astype(np.float32) / ONE
    where = (np.repeat(own, sizes)[known], columns[known])
    return csr_array((values[known], where), shape=(len(rows), len(column)))


def _unit(vectors: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit: np.ndarray = vectors / np.where(norms > 0, norms, 1.0)
    return unit.astype(np.float32)


def top_rows(scores: np.ndarray, k: int, among: np.ndarray | None = None) -> Sequence[int]:
    """Rows of the `k` greatest scores above zero, ties by row; of the allowed ones where `among` says so."""
    values = scores if among is None else np.where(among, scores, 0.0)
    if k < len(values):
        bound = np.partition(values, len(values) - k)[len(values) - k]
        rows = np.flatnonzero((values >= bound) & (values > 0))
    else:
        rows = np.flatnonzero(values > 0)
    return [int(row) for row in rows[np.lexsort((rows, -values[rows]))][:k]]
