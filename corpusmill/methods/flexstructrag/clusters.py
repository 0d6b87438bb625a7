"""Clusters of a document's statements (section 6): HDBSCAN on cosine and place, grounded in the members' spans."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from corpusmill.graph.tree_clustering import band_width, cluster_sequence
from corpusmill.hashing import content_id
from corpusmill.methods.common.vectors import vector_matrix
from corpusmill.methods.flexstructrag.hypergraph import Row, read_statements
from corpusmill.methods.flexstructrag.tables import CLUSTERS
from corpusmill.spans import Span, union
from corpusmill.steps import StepContext, StepOutput, Text


class ClusterSettings(BaseModel):
    """`dense_max` bounds the neighbours that each statement is compared with, and so the time of alpha near 0."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    alpha: float
    min_cluster_size: int
    min_samples: int
    allow_single_cluster: bool
    dense_max: int


async def cluster_statements(text: Text, tables: Mapping[str, pa.Table], ctx: StepContext) -> StepOutput:
    """`clusters` of one text. A text too long for the dense form that alpha asks for is partial: it has no clusters."""
    assert isinstance(ctx.settings, ClusterSettings)
    settings = ctx.settings
    statements = read_statements(tables["statements"])
    n = len(statements)
    if n < 2:
        return StepOutput({CLUSTERS.name: CLUSTERS.empty()})
    width = band_width(settings.alpha, settings.min_samples, n)
    if width >= settings.dense_max:
        reason = (
            f"clusters of {n} statements at alpha {settings.alpha} compare each with {width} others, over "
            f"methods.flexstructrag.dense_max ({settings.dense_max}); raise it, or raise alpha"
        )
        return StepOutput({CLUSTERS.name: CLUSTERS.empty()}, (reason,))
    vectors = vector_matrix(tables["statement_vectors"], [row["hyperedge_id"] for row in statements])
    labels = await ctx.models.cluster(
        cluster_sequence,
        vectors,
        settings.alpha,
        settings.min_cluster_size,
        settings.min_samples,
        settings.allow_single_cluster,
    )
    rows = cluster_rows(text.text_hash, statements, labels.tolist())
    return StepOutput({CLUSTERS.name: CLUSTERS.table(rows)})


def cluster_rows(text_hash: str, statements: Sequence[Row], labels: Sequence[int]) -> list[dict[str, object]]:
    """Rows of `clusters`: `labels` number them by first member, -1 is noise."""
    members: dict[int, list[Row]] = {}
    for row, label in zip(statements, labels, strict=True):
        if label >= 0:
            members.setdefault(label, []).append(row)
    out: list[dict[str, object]] = []
    for ordinal, label in enumerate(sorted(members)):
        ids = [row["hyperedge_id"] for row in members[label]]
        spans = reference_spans([Span(row["start"], row["end"]) for row in members[label]])
        out.append(
            {
                "text_hash": text_hash,
                "cluster_id": content_id("cluster", text_hash, *ids),
                "ordinal": ordinal,
                "members": ids,
                "spans": [{"start": span.start, "end": span.end} for span in spans],
            }
        )
    return out


def reference_spans(refs: Sequence[Span]) -> list[Span]:
    """The members' spans in extraction order; overlapping and repeated ones joined, at the place of the first."""
    joined = union(refs)
    starts = [span.start for span in joined]
    return list(dict.fromkeys(joined[bisect_right(starts, ref.start) - 1] for ref in refs))
