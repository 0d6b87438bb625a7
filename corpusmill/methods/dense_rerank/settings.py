"""Settings of the method dense-rerank; which reranker it is, the section `rerank` says."""

from typing import Literal

from pydantic import Field, model_validator

from corpusmill.frozen import Frozen


class DenseRerankSettings(Frozen):
    candidates: int = Field(25, ge=1)  # passages that are reranked
    passages: int = Field(12, ge=1)  # that a question gets
    mode: Literal["dense", "hybrid"] = "dense"

    @model_validator(mode="after")
    def _enough(self) -> "DenseRerankSettings":
        if self.passages > self.candidates:
            raise ValueError(f"passages ({self.passages}) must not exceed candidates ({self.candidates})")
        return self


SETTINGS = DenseRerankSettings
