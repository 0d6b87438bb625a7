"""Similarity thresholds by embedding model: what was measured for the known ones, and the tool that measures others.

The paper's 0.9 belongs to its own embedder. Here:

- a retrieval threshold is the cosine that a random question-item pair passes once in 1,000. Measured for the shipped
  embedders over all pairs of the 100 MuSiQue training questions and 2,000 statements; statement-statement pairs of
  different texts, which the tool uses where there are no questions, give nearly the same (0.44 for 0.46);
- the merge threshold is for texts without the entity's own name (masking.py), chosen by precision and recall on
  MuSiQue's titles and on homonyms made of them (`benchmarks/merge.py`). The tool, which has no such gold, takes the
  cosine that pairs of different entities pass once in 10.

Thresholds are fixed settings: they are measured by a command, never inside a run.
"""

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from corpusmill.errors import UsageError
from corpusmill.methods.flexstructrag.masking import without_name
from corpusmill.methods.protocol import Snapshot
from corpusmill.models.contracts import Embedder
from corpusmill.retrieval.vectors import matrix

if TYPE_CHECKING:
    from corpusmill.settings import EmbedderSettings

RETRIEVAL_PASS = 1 / 1_000
MERGE_PASS = 1 / 10
_FEWEST = 50  # rows of a table below which nothing is measured


class Thresholds(NamedTuple):
    """Cosines. `calibrated` is false for an embedder that nobody measured: the merge is then careful (0.9), and
    retrieval takes its best few without a threshold."""

    tau_merge: float
    tau_hyperedge: float
    tau_edge: float
    calibrated: bool = True


CALIBRATED = {
    "minilm": Thresholds(tau_merge=0.40, tau_hyperedge=0.46, tau_edge=0.46),
    "hash": Thresholds(tau_merge=0.46, tau_hyperedge=0.40, tau_edge=0.40),
}
UNKNOWN = Thresholds(tau_merge=0.90, tau_hyperedge=0.0, tau_edge=0.0, calibrated=False)


def thresholds(embedder: str) -> Thresholds:
    """The thresholds of an embedder: its back-end name (`minilm`, `hash`) or `backend/model`.

    An embedder that was not measured gets `UNKNOWN`; `corpusmill index --calibrate` measures it.
    """
    return CALIBRATED.get(embedder, UNKNOWN)


def embedder_name(settings: "EmbedderSettings") -> str:
    """What `thresholds` knows an embedder by: `backend`, or `backend/model`."""
    return f"{settings.backend}/{settings.model}" if settings.model else settings.backend


async def calibrate(view: Snapshot, embedder: Embedder, sample: int = 1_000, seed: int = 0) -> Thresholds:
    """Measure the thresholds on an index that `embedder` made: `sample` statements, edges and pairs of entities.

    Raises UsageError on an index too small to tell (under 50 statements or entities).
    """
    rng = random.Random(seed)
    hyperedge = await _pass(view, embedder, "statements", "statement_vectors", sample, rng)
    edges = view.table("edge_vectors", ["unit_id"]).num_rows
    edge = hyperedge if edges < _FEWEST else await _pass(view, embedder, "edges", "edge_vectors", sample, rng)
    return Thresholds(await _merge(view, embedder, sample, rng), hyperedge, edge)


async def _pass(view: Snapshot, embedder: Embedder, table: str, vectors: str, sample: int, rng: random.Random) -> float:
    """The cosine that one in 1,000 pairs (a unit's text as a question, a unit of another text) passes."""
    stored = view.table(vectors, ["text_hash", "vector"])
    units = view.table(table, ["text_hash", "text"])
    _enough(table, units.num_rows)
    asked = units.take(sorted(rng.sample(range(units.num_rows), min(sample, units.num_rows))))
    given = stored.take(sorted(rng.sample(range(stored.num_rows), min(sample, stored.num_rows))))
    left = await embedder.embed(asked.column("text").to_pylist(), "query")
    cosines = left @ matrix(given.column("vector"), embedder.dim).T
    own, other = (np.array(part.column("text_hash").to_pylist()) for part in (asked, given))
    return _quantile(cosines[own[:, None] != other[None, :]], RETRIEVAL_PASS)


async def _merge(view: Snapshot, embedder: Embedder, sample: int, rng: random.Random) -> float:
    """The cosine that one in 10 pairs of different entities passes, each text without its name as in the merge."""
    entities = view.table("local_entities", ["text_hash", "normal", "name", "text"]).to_pylist()
    _enough("local_entities", len(entities))
    pairs = []
    for _ in range(20 * sample):
        left, right = rng.sample(entities, 2)
        if left["normal"] != right["normal"] and left["text_hash"] != right["text_hash"]:
            pairs.append((left, right))
        if len(pairs) == sample:
            break
    if not pairs:
        raise UsageError("all entities of the index are of one text; index more documents to calibrate the merge")
    sides = [
        await embedder.embed([without_name(pair[side]["text"], pair[side]["name"]) for pair in pairs], "passage")
        for side in (0, 1)
    ]
    return _quantile(np.einsum("ij,ij->i", sides[0], sides[1]), MERGE_PASS)


def _enough(table: str, rows: int) -> None:
    if rows < _FEWEST:
        raise UsageError(f"calibration needs at least {_FEWEST} rows of {table}, the index has {rows}")


def _quantile(cosines: Sequence[float] | np.ndarray, passing: float) -> float:
    if not len(cosines):
        raise UsageError("all units of the index are of one text; index more documents to calibrate")
    return round(float(np.quantile(np.asarray(cosines, np.float64), 1.0 - passing)), 3)
