"""The document steps of FlexStructRAG, in order; each has only the settings that change what it makes."""

from typing import TYPE_CHECKING

import pyarrow as pa

from corpusmill.methods.common.vectors import vector_step
from corpusmill.methods.flexstructrag.clusters import ClusterSettings, cluster_statements
from corpusmill.methods.flexstructrag.edges import AnchorSettings, relate_anchors
from corpusmill.methods.flexstructrag.extraction import WindowSettings, extract
from corpusmill.methods.flexstructrag.hypergraph import SummarySettings, entity_texts
from corpusmill.methods.flexstructrag.masking import without_name
from corpusmill.methods.flexstructrag.settings import FlexSettings
from corpusmill.methods.flexstructrag.tables import (
    CLUSTERS,
    EDGE_STATS,
    EDGES,
    EXTRACTION_STATS,
    LOCAL_ENTITIES,
    STATEMENTS,
)
from corpusmill.methods.flexstructrag.tasks import EXTRACT, MERGE_SUMMARY, RELATE, SUMMARISE_ENTITY
from corpusmill.steps import DocumentStep, Text

if TYPE_CHECKING:
    from corpusmill.settings import Settings

STATEMENT_VECTORS = "statement_vectors"
EDGE_VECTORS = "edge_vectors"
ENTITY_VECTORS = "entity_vectors"


def document_steps(settings: "Settings", dim: int) -> tuple[DocumentStep, ...]:
    """extract, hypergraph, edges, three vector tables, clusters. They read `chunks`; `dim` is the embedder's."""
    own = settings.method("flexstructrag")
    assert isinstance(own, FlexSettings)
    return (
        DocumentStep(
            name="extract",
            version=1,
            settings=WindowSettings(g_max=own.g_max, g_overlap=own.g_overlap),
            inputs=("chunks",),
            outputs=(STATEMENTS, EXTRACTION_STATS),
            roles=(EXTRACT.role,),
            task_fingerprints=(EXTRACT.fingerprint,),
            run=extract,
        ),
        DocumentStep(
            name="hypergraph",
            version=1,
            settings=SummarySettings(tau_s=own.tau_s),
            inputs=("statements",),
            outputs=(LOCAL_ENTITIES,),
            roles=(SUMMARISE_ENTITY.role,),
            task_fingerprints=(SUMMARISE_ENTITY.fingerprint, MERGE_SUMMARY.fingerprint),
            run=entity_texts,
        ),
        DocumentStep(
            name="edges",
            version=1,
            settings=AnchorSettings(tau_e=own.tau_e),
            inputs=("statements",),
            outputs=(EDGES, EDGE_STATS),
            roles=(RELATE.role,),
            task_fingerprints=(RELATE.fingerprint,),
            run=relate_anchors,
        ),
        vector_step(STATEMENT_VECTORS, "statements", statement_units, dim),
        vector_step(EDGE_VECTORS, "edges", edge_units, dim),
        vector_step(ENTITY_VECTORS, "local_entities", entity_units, dim, version=2),
        DocumentStep(
            name="clusters",
            version=1,
            settings=ClusterSettings(
                alpha=own.alpha,
                min_cluster_size=own.min_cluster_size,
                min_samples=own.min_samples,
                allow_single_cluster=own.allow_single_cluster,
                dense_max=own.dense_max,
            ),
            inputs=("statements", STATEMENT_VECTORS),
            outputs=(CLUSTERS,),
            run=cluster_statements,
        ),
    )


def statement_units(text: Text, table: pa.Table) -> list[tuple[str, str]]:
    """A hyperedge is embedded as its text with the names of its entities (section 8)."""
    return [
        (row["hyperedge_id"], "\n".join([row["text"], ", ".join(entity["name"] for entity in row["entities"])]))
        for row in table.to_pylist()
    ]


def edge_units(text: Text, table: pa.Table) -> list[tuple[str, str]]:
    """An edge is embedded as its text with the names of its two ends (section 8)."""
    return [(row["edge_id"], f"{row['text']}\n{row['source_name']}, {row['target_name']}") for row in table.to_pylist()]


def entity_units(text: Text, table: pa.Table) -> list[tuple[str, str]]:
    """A local entity is embedded as its text without its name: the members of a block share the name, so that it is no
    evidence, and two things of one name would look alike by it (measured: benchmarks/merge.py)."""
    return [(row["local_id"], without_name(row["text"], row["name"])) for row in table.to_pylist()]
