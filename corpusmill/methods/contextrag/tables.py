"""Tables of ContextRAG. All are of the whole corpus; `codebook` names the content address of the codebook behind them.

Memberships are integers of 1/10000 (corpusmill.methods.contextrag.memberships.ONE), so that sums do not depend on
their order.
"""

import pyarrow as pa

from corpusmill.digest import NOT_DIGESTED
from corpusmill.schemas import TableSpec, required


def codebook_table(dim: int) -> TableSpec:
    """Step 2. The centroids of each level, those of level l on the residuals of the levels before it."""
    return TableSpec(
        "context_codebook",
        pa.schema(
            [
                required("codebook", pa.string()),
                required("level", pa.int16()),
                required("centroid", pa.int16()),
                required("occupancy", pa.int64()),  # vectors of the training sample
                required("active", pa.bool_()),  # an empty or singleton centroid gives no attribute
                pa.field("vector", pa.list_(pa.float32(), dim), nullable=False, metadata=NOT_DIGESTED),
            ]
        ),
        ("level", "centroid"),
    )


# How the codebook was trained, by level. Shares and norms in 1/10000.
TRAINING = TableSpec(
    "context_training",
    pa.schema(
        [
            required("codebook", pa.string()),
            required("level", pa.int16()),
            required("asked", pa.int32()),
            required("centroids", pa.int32()),
            required("trained_on", pa.int64()),
            required("scale", pa.float64()),  # of the fixed-point arithmetic: a power of two
            required("explained_e4", pa.int32()),
            required("residual_e4", pa.int32()),  # mean norm of what is left after this level
        ]
    ),
    ("level",),
)

# Step 3. One row a chunk: its code and nearest distance, and its memberships that are not zero.
MEMBERSHIPS = TableSpec(
    "context_memberships",
    pa.schema(
        [
            required("text_hash", pa.string()),
            required("chunk_id", pa.string()),
            required("codes", pa.list_(pa.int16())),  # the nearest centroid of each level
            required("distances_e4", pa.list_(pa.int32())),  # to those centroids: the norm of what each level leaves
            required(
                "attributes",
                pa.list_(
                    pa.struct(
                        [
                            required("level", pa.int16()),
                            required("centroid", pa.int16()),
                            required("value", pa.int32()),
                        ]
                    )
                ),
            ),
        ]
    ),
    ("text_hash", "chunk_id"),
)

LEADER = pa.struct(
    [
        required("text_hash", pa.string()),
        required("chunk_id", pa.string()),
        required("value", pa.int32()),
    ]
)


def concepts_table(dim: int, levels: int) -> TableSpec:
    """Step 5. Nodes of the concept graph. A seed has a centroid, a join or meet two parents."""
    return TableSpec(
        "context_concepts",
        pa.schema(
            [
                required("concept_id", pa.string()),  # content_id("concept", codebook, kind, level, centroid | parents)
                required("codebook", pa.string()),
                required("kind", pa.string()),  # seed, meet or join (a bridge)
                required("level", pa.int16()),  # of a seed; -1
                required("centroid", pa.int16()),  # of a seed; -1
                required("parents", pa.list_(pa.string())),
                required("mass", pa.int64()),  # sum of its extent
                required("chunks", pa.int64()),  # with a membership above zero
                required("leaders", pa.list_(LEADER)),  # the strongest chunks of its extent
                # the membership-weighted mean of its chunks
                pa.field("vector", pa.list_(pa.float32(), dim), nullable=False, metadata=NOT_DIGESTED),
                # of a seed: the mean reconstruction of its chunks down to each level; zeros below its own
                pa.field("centres", pa.list_(pa.float32(), dim * levels), nullable=False, metadata=NOT_DIGESTED),
            ]
        ),
        ("concept_id",),
    )


# Child to parent in the order of extents, and seeds that share retrieval windows more often than by chance.
LINKS = TableSpec(
    "context_links",
    pa.schema(
        [
            required("kind", pa.string()),  # lattice or cooccurrence
            required("source", pa.string()),
            required("target", pa.string()),
            required("weight_e4", pa.int64()),  # lattice: share of the child's mass; cooccurrence: times chance
        ]
    ),
    ("kind", "source", "target"),
)

# What the report shows of a level of the codebook over the corpus of this snapshot.
LEVELS = TableSpec(
    "context_levels",
    pa.schema(
        [
            required("level", pa.int16()),
            required("centroids", pa.int32()),
            required("occupied", pa.int32()),
            required("singletons", pa.int32()),
            required("largest", pa.int64()),
            required("median", pa.int64()),
            required("residual_e4", pa.int32()),  # mean over the corpus
            required("drift_e4", pa.int32()),  # the same over that of the training sample
            required("spread", pa.list_(pa.int32())),  # memberships at 5, 25, 50, 75, 95 % of those above zero, sampled
        ]
    ),
    ("level",),
)

# Step 6. The members nearest the centroid of each of the most populated clusters of level 0, with their texts.
TOPICS = TableSpec(
    "context_topics",
    pa.schema(
        [
            required("topic", pa.int16()),  # centroid of level 0
            required("place", pa.int32()),  # by distance to the centroid
            required("members", pa.int64()),  # chunks of the cluster
            required("text_hash", pa.string()),
            required("chunk_id", pa.string()),
            required("start", pa.int64()),
            required("end", pa.int64()),
            required("text", pa.string()),
        ]
    ),
    ("topic", "place"),
)

# Chunks whose sentences stand for questions when activation thresholds are calibrated.
PROBES = TableSpec(
    "context_probes",
    pa.schema([required("chunk_id", pa.string()), required("text", pa.string())]),
    ("chunk_id",),
)

MEMBER = pa.struct(
    [
        required("text_hash", pa.string()),
        required("chunk_id", pa.string()),
        required("start", pa.int64()),
        required("end", pa.int64()),
    ]
)


def summaries_table(dim: int) -> TableSpec:
    """Step 6. Virtual chunks: the summary of a cluster and the chunks that it was made of."""
    return TableSpec(
        "context_summaries",
        pa.schema(
            [
                required("summary_id", pa.string()),  # content_id("summary", text, chunk ids)
                required("topic", pa.int16()),
                required("members", pa.int64()),
                required("text", pa.string()),
                required("sources", pa.list_(MEMBER)),
                pa.field("vector", pa.list_(pa.float32(), dim), nullable=False, metadata=NOT_DIGESTED),
            ]
        ),
        ("summary_id",),
    )


def probe_vectors_table(dim: int) -> TableSpec:
    """Sentences of chunks, embedded as questions."""
    return TableSpec(
        "context_probe_vectors",
        pa.schema(
            [
                required("chunk_id", pa.string()),
                required("text", pa.string()),
                pa.field("vector", pa.list_(pa.float32(), dim), nullable=False, metadata=NOT_DIGESTED),
            ]
        ),
        ("chunk_id",),
    )
