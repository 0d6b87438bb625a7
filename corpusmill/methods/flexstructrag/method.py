"""FlexStructRAG as a method: its plan and its retriever."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import BaseModel

from corpusmill.methods.common.chunks import chunk_step
from corpusmill.methods.common.passages import passage_steps, vector_index_step
from corpusmill.methods.common.vectors import chunk_vector_step
from corpusmill.methods.flexstructrag.merge import merge_step
from corpusmill.methods.flexstructrag.settings import FlexSettings
from corpusmill.methods.flexstructrag.steps import document_steps
from corpusmill.methods.flexstructrag.summaries import summary_step
from corpusmill.methods.protocol import Method, Retriever, Snapshot
from corpusmill.steps import AnyStep, Models

if TYPE_CHECKING:
    from corpusmill.settings import Settings


class FlexStructRAG:
    """Per-document hypergraph, graph and clusters, merged over documents (arXiv 2604.16312)."""

    name = "flexstructrag"
    summary = "statements as hyperedges, an entity graph and clusters of statements; hypergraph, graph and hybrid modes"
    modes: tuple[str, ...] = ("hypergraph", "graph", "hybrid")
    settings_type: type[BaseModel] = FlexSettings

    def plan(self, settings: "Settings", dim: int) -> Sequence[AnyStep]:
        return (
            chunk_step(settings),
            chunk_vector_step(dim),
            *document_steps(settings, dim),
            merge_step(settings),
            summary_step(settings),
            *passage_steps(settings),
            vector_index_step("statement_index", "statement_vectors", settings),
            vector_index_step("edge_index", "edge_vectors", settings),
        )

    def retriever(self, settings: "Settings", snapshot: Snapshot, models: Models) -> Retriever:
        from corpusmill.methods.flexstructrag.retriever import FlexRetriever

        return FlexRetriever(settings, snapshot, models)


METHOD: Method = FlexStructRAG()
