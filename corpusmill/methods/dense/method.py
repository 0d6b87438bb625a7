"""dense as a method: chunks, their vectors and both passage indices."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import BaseModel

from corpusmill.methods.common.chunks import chunk_step
from corpusmill.methods.common.passages import passage_steps
from corpusmill.methods.common.vectors import chunk_vector_step
from corpusmill.methods.dense.settings import DenseSettings
from corpusmill.methods.protocol import Method, Retriever, Snapshot
from corpusmill.steps import AnyStep, Models

if TYPE_CHECKING:
    from corpusmill.settings import Settings


class Dense:
    """Passages ranked by cosine; in the mode `hybrid` by cosine and BM25 together."""

    name = "dense"
    summary = "passages by the meaning of their vectors, or with the words too (hybrid); no language model"
    modes: tuple[str, ...] = ("dense", "hybrid")
    settings_type: type[BaseModel] = DenseSettings

    def plan(self, settings: "Settings", dim: int) -> Sequence[AnyStep]:
        return (chunk_step(settings), chunk_vector_step(dim), *passage_steps(settings))

    def retriever(self, settings: "Settings", snapshot: Snapshot, models: Models) -> Retriever:
        from corpusmill.methods.common.passage_retriever import PassageRetriever

        own = settings.method(self.name)
        assert isinstance(own, DenseSettings)
        return PassageRetriever(
            self.name, ("dense", "hybrid"), settings, snapshot, models, top=own.passages, default=own.mode
        )


METHOD: Method = Dense()
