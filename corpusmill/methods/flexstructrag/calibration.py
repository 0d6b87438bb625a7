"""Similarity thresholds by embedding model: what was measured for the known ones, and the tool that measures others.

The paper's 0.9 belongs to its own embedder. Here a retrieval threshold is the cosine that a random query-item pair
passes once in 1,000; the merge threshold is the cosine that two *different* things of one name pass once in 100: texts
of two random entities in which both names are replaced by one common name, so that the shared name alone is no
evidence. Thresholds are fixed settings: they are measured by a command, never inside a run.
"""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from corpusmill.settings import EmbedderSettings

RETRIEVAL_PASS = 1 / 1_000
MERGE_PASS = 1 / 100
_COMMON_NAME = "Xan"  # stands for both names of a pair; no language's word


class Thresholds(NamedTuple):
    """Cosines. `calibrated` is false for an embedder that nobody measured: the merge is then careful (0.9), and
    retrieval takes its best few without a threshold."""

    tau_merge: float
    tau_hyperedge: float
    tau_edge: float
    calibrated: bool = True


CALIBRATED = {
    "minilm": Thresholds(tau_merge=0.60, tau_hyperedge=0.40, tau_edge=0.40),
    "hash": Thresholds(tau_merge=0.50, tau_hyperedge=0.30, tau_edge=0.30),
}
UNKNOWN = Thresholds(tau_merge=0.90, tau_hyperedge=0.0, tau_edge=0.0, calibrated=False)


def thresholds(embedder: str) -> Thresholds:
    """The thresholds of an embedder: its back-end name (`minilm`, `hash`) or `backend/model`.

    An embedder that was not measured gets `UNKNOWN`; `corpusmill index --calibrate` measures it.
    """
    return CALIBRATED.get(embedder, CALIBRATED.get(embedder.partition("/")[0], UNKNOWN))


def embedder_name(settings: "EmbedderSettings") -> str:
    """What `thresholds` knows an embedder by: `backend`, or `backend/model`."""
    return f"{settings.backend}/{settings.model}" if settings.model else settings.backend
