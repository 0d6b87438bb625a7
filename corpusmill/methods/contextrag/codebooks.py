"""A codebook as tables of a snapshot and as plain arrays, and back."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from corpusmill.methods.contextrag.memberships import ONE
from corpusmill.methods.contextrag.quantiser import Codebook
from corpusmill.methods.contextrag.tables import TRAINING, codebook_table
from corpusmill.retrieval.vectors import matrix


def to_arrays(book: Codebook, sizes: Sequence[int]) -> list[np.ndarray]:
    """For each level its centroids and occupancy; last what `fit` measured: explained, norms, then scale and rows."""
    facts = np.array([*book.explained, *book.residual_norms, book.scale, book.rows], np.float64)
    return [*book.levels, *book.occupancy, np.array(sizes, np.int64), facts]


def from_arrays(parts: Sequence[np.ndarray]) -> Codebook:
    """The inverse of `to_arrays`."""
    depth = (len(parts) - 2) // 2
    facts = parts[-1].tolist()
    return Codebook(
        levels=tuple(parts[:depth]),
        sizes=tuple(parts[-2].tolist()),
        occupancy=tuple(parts[depth : 2 * depth]),
        explained=tuple(facts[:depth]),
        residual_norms=tuple(facts[depth : 2 * depth]),
        scale=facts[-2],
        rows=int(facts[-1]),
    )


def to_tables(book: Codebook) -> tuple[pa.Table, pa.Table]:
    """Rows of `context_codebook` and of `context_training`."""
    centroids: list[dict[str, object]] = []
    training: list[dict[str, object]] = []
    for level, (vectors, occupancy, active) in enumerate(zip(book.levels, book.occupancy, book.active, strict=True)):
        centroids += [
            {
                "codebook": book.digest,
                "level": level,
                "centroid": at,
                "occupancy": int(occupancy[at]),
                "active": bool(active[at]),
                "vector": vector,
            }
            for at, vector in enumerate(vectors)
        ]
        training.append(
            {
                "codebook": book.digest,
                "level": level,
                "asked": book.sizes[level],
                "centroids": len(vectors),
                "trained_on": book.rows,
                "scale": book.scale,
                "explained_e4": round(ONE * book.explained[level]),
                "residual_e4": round(ONE * book.residual_norms[level]),
            }
        )
    return codebook_table(book.dim).table(centroids), TRAINING.table(training)


def from_tables(centroids: pa.Table, training: pa.Table) -> Codebook | None:
    """The codebook of these tables; None where they are empty: there was nothing to train on."""
    if not centroids.num_rows:
        return None
    rows = centroids.drop_columns(["vector"]).to_pylist()
    vectors = matrix(centroids.column("vector"), centroids.schema.field("vector").type.list_size)
    facts = sorted(training.to_pylist(), key=lambda row: row["level"])
    levels, occupancy = [], []
    for fact in facts:
        places = sorted((row["centroid"], at) for at, row in enumerate(rows) if row["level"] == fact["level"])
        order = [at for _, at in places]
        levels.append(vectors[order])
        occupancy.append(np.array([rows[at]["occupancy"] for at in order], np.int64))
    return Codebook(
        levels=tuple(levels),
        sizes=tuple(fact["asked"] for fact in facts),
        occupancy=tuple(occupancy),
        explained=tuple(fact["explained_e4"] / ONE for fact in facts),
        residual_norms=tuple(fact["residual_e4"] / ONE for fact in facts),
        scale=facts[0]["scale"],
        rows=facts[0]["trained_on"],
    )
