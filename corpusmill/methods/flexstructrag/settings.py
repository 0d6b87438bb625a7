"""Settings of FlexStructRAG; defaults are the paper's, except where a comment says why not."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class FlexSettings(BaseModel):
    """Grouped by the step that they change, so that a changed threshold keeps the work before it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # windows and extraction
    g_max: int = Field(3, ge=1)
    g_overlap: int = Field(2, ge=0)
    # hypergraph and graph
    tau_s: int = Field(9, ge=0)
    tau_e: int = Field(3, ge=0)
    # clusters
    alpha: float = Field(0.1, ge=0)
    min_cluster_size: int = Field(2, ge=2)
    min_samples: int = Field(1, ge=1)
    allow_single_cluster: bool = False
    dense_max: int = Field(4000, ge=2)  # statements that the dense form may take (alpha = 0)
    # merge
    tau_merge: float | None = Field(None, ge=-1, le=1)  # None: the calibrated value of the embedder
    exact_block_max: int = Field(16_384, ge=2)
    min_component_similarity: float | None = Field(None, ge=-1, le=1)  # a worse pair splits; None: tau_merge - 0.1
    summary_fan_in: int = Field(16, ge=2)
    # retrieval
    n_hyperedges: int = Field(7, ge=1)
    n_edges: int = Field(3, ge=1)
    n_entities: int = Field(10, ge=1)
    tau_hyperedge: float | None = Field(None, ge=-1, le=1)  # None: calibrated; the paper's 0.9 is its embedder's
    tau_edge: float | None = Field(None, ge=-1, le=1)
    mode: Literal["hypergraph", "graph", "hybrid"] = "hybrid"
    # how passages that fill the context are ranked: by a walk over the merged structure (beyond the paper), or by
    # words and meaning alone
    passage_ranking: Literal["diffusion", "fused"] = "diffusion"
    diffusion_max: int = Field(2_000_000, ge=0)  # statements; a larger index is ranked as "fused"

    @model_validator(mode="after")
    def _windows(self) -> "FlexSettings":
        if self.g_overlap >= self.g_max:
            raise ValueError(f"g_overlap ({self.g_overlap}) must be less than g_max ({self.g_max})")
        return self


SETTINGS = FlexSettings
