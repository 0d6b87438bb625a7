"""ContextRAG as a method: its plan and its retriever."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import BaseModel

from corpusmill.methods.common.chunks import chunk_step
from corpusmill.methods.common.passages import VECTOR_STEP, passage_steps
from corpusmill.methods.common.vectors import CHUNK_VECTORS, chunk_vector_step
from corpusmill.methods.contextrag.concepts import GraphSettings, build_graph
from corpusmill.methods.contextrag.fuzzy_context import CodebookSettings, MembershipSettings, assign, train_codebook
from corpusmill.methods.contextrag.settings import ContextSettings
from corpusmill.methods.contextrag.tables import LEVELS, LINKS, MEMBERSHIPS, TRAINING, codebook_table, concepts_table
from corpusmill.methods.contextrag.topics import probe_step, summary_step, topic_step
from corpusmill.methods.protocol import Method, Retriever, Snapshot
from corpusmill.steps import AnyStep, BuildStep, MapStep, Models

if TYPE_CHECKING:
    from corpusmill.settings import Settings

CODEBOOK = "context_codebook"


def topology_steps(settings: "Settings", own: ContextSettings, dim: int) -> tuple[AnyStep, ...]:
    """Codebook, memberships and concept graph: nothing here asks a language model."""
    codebook = BuildStep(
        name=CODEBOOK,
        version=1,
        settings=CodebookSettings(
            levels=own.levels,
            points_per_centroid=own.points_per_centroid,
            iterations=own.iterations,
            train_max=own.train_max,
            train_memory_mb=own.train_memory_mb,
            seed=settings.run.seed,
            dim=dim,
        ),
        inputs=(CHUNK_VECTORS,),
        outputs=(codebook_table(dim), TRAINING),
        pinned=True,
        run=train_codebook,
    )
    memberships = MapStep(
        name=MEMBERSHIPS.name,
        version=1,
        settings=MembershipSettings(form=own.membership, keep=own.membership_keep, dim=dim),
        inputs=(CHUNK_VECTORS, CODEBOOK, TRAINING.name),
        outputs=(MEMBERSHIPS,),
        by="text_hash",
        batch_rows=1024,
        run=assign,
    )
    graph = BuildStep(
        name="context_graph",
        version=1,
        settings=GraphSettings(
            pairs_per_seed=own.pairs_per_seed,
            min_meet_share=own.min_meet_share,
            max_jaccard=own.max_jaccard,
            window=own.window,
            windows_max=own.windows_max,
            cooccurrence=own.cooccurrence,
            nprobe=settings.vector_index.nprobe,
            dim=dim,
            levels=len(own.levels),
        ),
        inputs=(CHUNK_VECTORS, CODEBOOK, TRAINING.name, MEMBERSHIPS.name),
        outputs=(concepts_table(dim, len(own.levels)), LINKS, LEVELS),
        indices=(VECTOR_STEP,),
        run=build_graph,
    )
    return (codebook, memberships, graph)


class ContextRAG:
    """Clusters, fuzzy concepts and cluster summaries over chunks (arXiv 2605.19735)."""

    name = "contextrag"
    summary = "a fuzzy concept graph over clusters of chunks, built without a model, and at most 30 summaries"
    modes: tuple[str, ...] = ("hybrid", "fast", "structure")
    settings_type: type[BaseModel] = ContextSettings

    def plan(self, settings: "Settings", dim: int) -> Sequence[AnyStep]:
        own = settings.method("contextrag")
        assert isinstance(own, ContextSettings)
        return (
            chunk_step(settings),
            chunk_vector_step(dim),
            *passage_steps(settings),
            *topology_steps(settings, own, dim),
            topic_step(own),
            summary_step(own, dim),
            probe_step(own, dim),
        )

    def retriever(self, settings: "Settings", snapshot: Snapshot, models: Models) -> Retriever:
        from corpusmill.methods.contextrag.retriever import ContextRetriever

        return ContextRetriever(settings, snapshot, models)


METHOD: Method = ContextRAG()
