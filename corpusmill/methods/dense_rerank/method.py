"""dense-rerank as a method: the index of dense, and a reranker at query time."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import BaseModel

from corpusmill.methods.common.chunks import chunk_step
from corpusmill.methods.common.passages import passage_steps
from corpusmill.methods.common.vectors import chunk_vector_step
from corpusmill.methods.dense_rerank.settings import DenseRerankSettings
from corpusmill.methods.protocol import Method, Retriever, Snapshot
from corpusmill.steps import AnyStep, Models

if TYPE_CHECKING:
    from corpusmill.settings import Settings


class DenseRerank:
    """The best passages by cosine (or, in the mode `hybrid`, by cosine and BM25), in the reranker's order."""

    name = "dense-rerank"
    summary = "the best passages by their vectors, or with the words too (hybrid), in the order of a reranker"
    modes: tuple[str, ...] = ("dense", "hybrid")
    settings_type: type[BaseModel] = DenseRerankSettings

    def plan(self, settings: "Settings", dim: int) -> Sequence[AnyStep]:
        return (chunk_step(settings), chunk_vector_step(dim), *passage_steps(settings))

    def retriever(self, settings: "Settings", snapshot: Snapshot, models: Models) -> Retriever:
        from corpusmill.methods.common.passage_retriever import PassageRetriever

        own = settings.method(self.name)
        assert isinstance(own, DenseRerankSettings)
        return PassageRetriever(
            self.name,
            ("dense", "hybrid"),
            settings,
            snapshot,
            models,
            top=own.passages,
            candidates=own.candidates,
            default=own.mode,
        )


METHOD: Method = DenseRerank()
