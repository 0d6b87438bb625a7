"""Settings of ContextRAG; defaults are the paper's, except where a comment says why not."""

from typing import Literal

from pydantic import BaseModel, Field, model_validator

from corpusmill.frozen import Frozen


class ContextSettings(Frozen):
    """Grouped by the step that they change, so that a changed weight keeps the codebook and the graph."""

    # codebook (residual k-means)
    levels: tuple[int, ...] = (96, 24, 12)
    points_per_centroid: int = Field(32, ge=1)  # a level has fewer centroids where its vectors are fewer
    iterations: int = Field(25, ge=1)
    train_max: int = Field(200_000, ge=1)  # vectors of the training sample
    train_memory_mb: int = Field(1024, ge=1)
    # memberships; raw ones are nearly uniform in many dimensions (median 0.01 of 96), so that no meet has any mass
    membership: Literal["relative", "raw"] = "relative"
    membership_keep: int = Field(3, ge=1)
    # concept graph
    pairs_per_seed: int = Field(8, ge=0)
    min_meet_share: float = Field(0.1, ge=0, le=1)
    max_jaccard: float = Field(0.95, gt=0, le=1)
    window: int = Field(10, ge=1)  # neighbours of a chunk that make its retrieval window
    windows_max: int = Field(20_000, ge=1)  # windows counted; of a larger corpus a sample
    cooccurrence: float = Field(2.0, gt=0)  # times chance
    # summaries
    summaries: int = Field(30, ge=0)
    summary_tokens: int = Field(700, ge=50)
    probes: int = Field(256, ge=1)  # sampled sentences that stand for questions when the activation is calibrated
    # retrieval
    mode: Literal["hybrid", "fast", "structure"] = "hybrid"
    bm25_weight: float = Field(0.3, ge=0)
    cosine_weight: float = Field(0.5, ge=0)
    fuzzy_weight: float = Field(0.2, ge=0)
    # how the three parts are made comparable: `minmax` over the candidates of a question; `paper` scales BM25 alone
    scaling: Literal["minmax", "paper"] = "minmax"
    activation_percentile: float = Field(95.0, gt=0, le=100)
    # of a bridge: `mean` of the cosines of its chunks, or the cosine with the `direction` of their mean, which many
    # vectors that agree on little push above each single chunk's
    bridge_cosine: Literal["mean", "direction"] = "mean"
    summary_boost: float = Field(1.2, gt=0)
    bridge_boost: float = Field(1.3, gt=0)
    reformulations: Literal["auto", "always", "never"] = "auto"  # auto: where a language model makes them
    candidates: int = Field(100, ge=1)  # that each part of the score puts forward
    pool: int = Field(25, ge=1)  # of each ranking and of their fusion
    # `apart`: pool and top count passages, and a summary or bridge takes no passage's place; `shared`: all compete
    slots: Literal["apart", "shared"] = "apart"
    rrf_k: int = Field(60, ge=1)
    rerank: bool = True
    top: int = Field(12, ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> "ContextSettings":
        if not self.levels or any(size < 1 for size in self.levels):
            raise ValueError(f"levels must name at least one centroid a level, got {self.levels}")
        if not self.bm25_weight + self.cosine_weight + self.fuzzy_weight:
            raise ValueError("one of bm25_weight, cosine_weight and fuzzy_weight must be above 0")
        return self


SETTINGS: type[BaseModel] = ContextSettings
