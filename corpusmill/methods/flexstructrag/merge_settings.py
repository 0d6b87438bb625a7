"""What changes the merge, with the calibrated threshold of the embedder where none is given."""

from typing import TYPE_CHECKING

from corpusmill.frozen import Frozen
from corpusmill.methods.flexstructrag.calibration import thresholds
from corpusmill.methods.flexstructrag.settings import FlexSettings

if TYPE_CHECKING:
    from corpusmill.settings import Settings

# How far under the threshold two members of one entity may be. Measured on homonyms made of the shared MuSiQue titles
# (benchmarks/merge.py): precision of joined pairs 0.61 -> 0.95 at equal recall.
SLACK = 0.1


class MergeSettings(Frozen):
    """What changes the merge; `tau_merge` is resolved, so that the fingerprint covers it.

    `split_max` bounds the distinct texts of a component that is looked at for a split in one task; a larger one is
    kept whole and reported by its weakest pair.
    """

    tau_merge: float
    exact_block_max: int
    min_component_similarity: float
    bucket: int = 4096
    tables: int = 8
    split_max: int = 131_072
    seed: int = 0


def merge_settings(settings: "Settings") -> MergeSettings:
    """The merge settings of a run, with the calibrated threshold of its embedder where none is given."""
    own = settings.method("flexstructrag")
    assert isinstance(own, FlexSettings)
    embedder = settings.embedder
    tau, floor = own.tau_merge, own.min_component_similarity
    if tau is None:
        tau = thresholds(f"{embedder.backend}/{embedder.model}" if embedder.model else embedder.backend).tau_merge
    return MergeSettings(
        tau_merge=tau,
        exact_block_max=own.exact_block_max,
        min_component_similarity=max(-1.0, round(tau - SLACK, 4)) if floor is None else floor,
    )
