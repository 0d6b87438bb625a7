"""Tables of FlexStructRAG. Document tables hold no doc_id: they belong to every document that has the text."""

import pyarrow as pa

from corpusmill.schemas import SPAN, TableSpec, required

ENTITY_REF = pa.struct([required("name", pa.string()), required("normal", pa.string())])

# Section 3. One extracted item; a hyperedge. `start`/`end` is its supporting span (ref), inside its chunk.
STATEMENTS = TableSpec(
    "statements",
    pa.schema(
        [
            required("text_hash", pa.string()),
            required("hyperedge_id", pa.string()),  # content_id("hyperedge", text_hash, start, end, text)
            required("ordinal", pa.int32()),  # k_index: extraction order over the document, without gaps
            required("chunk_id", pa.string()),
            required("text", pa.string()),
            required("start", pa.int64()),
            required("end", pa.int64()),
            required("entities", pa.list_(ENTITY_REF)),  # at least one; distinct normal forms, in order of mention
        ]
    ),
    ("text_hash", "ordinal"),
)

# What became of the items of a text's windows: those given are kept (rows of `statements`), or dropped for the reason.
EXTRACTION_STATS = TableSpec(
    "extraction_stats",
    pa.schema(
        [
            required("text_hash", pa.string()),
            required("windows", pa.int32()),
            required("failed_windows", pa.int32()),
            required("items", pa.int32()),
            required("dropped_quotes", pa.int32()),  # not found in the chunk
            required("dropped_entities", pa.int32()),  # names without a letter or digit, or too long
            required("dropped_items", pa.int32()),  # no text or no entity left
            required("repeated_items", pa.int32()),  # same span and text as an earlier one
        ]
    ),
    ("text_hash",),
)

# Section 4. A local entity: what a document's statements point to; never rewritten by a merge.
LOCAL_ENTITIES = TableSpec(
    "local_entities",
    pa.schema(
        [
            required("text_hash", pa.string()),
            required("local_id", pa.string()),  # content_id("local_entity", text_hash, normal)
            required("normal", pa.string()),
            required("name", pa.string()),
            required("degree", pa.int32()),  # hyperdegree
            required("text", pa.string()),
            required("summarised", pa.bool_()),
            required("aliases", pa.list_(pa.string())),  # surface forms; empty unless summarised
        ]
    ),
    ("text_hash", "normal"),
)

# Section 5. A pairwise relation found around an anchor.
EDGES = TableSpec(
    "edges",
    pa.schema(
        [
            required("text_hash", pa.string()),
            required("edge_id", pa.string()),  # content_id("edge", text_hash, source, target, normal text)
            required("ordinal", pa.int32()),
            required("source", pa.string()),  # normal forms of two distinct local entities
            required("target", pa.string()),
            required("source_name", pa.string()),
            required("target_name", pa.string()),
            required("text", pa.string()),
            required("start", pa.int64()),  # ref of the supporting statement
            required("end", pa.int64()),
            required("hyperedge_id", pa.string()),  # the supporting statement
        ]
    ),
    ("text_hash", "ordinal"),
)

# What became of the relations that the model gave around the anchors of a text.
EDGE_STATS = TableSpec(
    "edge_stats",
    pa.schema(
        [
            required("text_hash", pa.string()),
            required("anchors", pa.int32()),
            required("relations", pa.int32()),
            required("dropped_ends", pa.int32()),  # an end is no entity of the text, or both are the same
            required("dropped_support", pa.int32()),  # no statement has that number, or no text
            required("repeated_relations", pa.int32()),
        ]
    ),
    ("text_hash",),
)

# Section 6. A cluster of hyperedges; `spans` are the members' refs in extraction order, overlaps once.
CLUSTERS = TableSpec(
    "clusters",
    pa.schema(
        [
            required("text_hash", pa.string()),
            required("cluster_id", pa.string()),  # content_id("cluster", text_hash, *members)
            required("ordinal", pa.int32()),  # by first member
            required("members", pa.list_(pa.string())),  # hyperedge ids in extraction order
            required("spans", pa.list_(SPAN)),
        ]
    ),
    ("text_hash", "ordinal"),
)

# Section 7. The only table that a merge changes: local entity of a document -> canonical entity.
ENTITY_MEMBERS = TableSpec(
    "entity_members",
    pa.schema(
        [
            required("doc_id", pa.string()),
            required("text_hash", pa.string()),
            required("normal", pa.string()),
            required("member_id", pa.string()),  # content_id("member", doc_id, normal)
            required("entity_id", pa.string()),  # content_id("entity", least member_id of its component)
        ]
    ),
    ("doc_id", "normal"),
)

# Why members joined: a maximum spanning forest of the compatible pairs of each block (a name shared within one label
# set). `kept` is false for a pair that a split of its component cut.
MERGE_LOG = TableSpec(
    "merge_log",
    pa.schema(
        [
            required("block", pa.string()),
            required("a", pa.string()),  # member ids, a < b
            required("b", pa.string()),
            required("a_doc", pa.string()),
            required("b_doc", pa.string()),
            required("score_e4", pa.int32()),  # cosine of the two summaries, in ten-thousandths
            required("kept", pa.bool_()),
        ]
    ),
    ("block", "a", "b"),
)

# Canonical entities: name (most frequent surface form over documents), how often, how tight.
ENTITIES = TableSpec(
    "entities",
    pa.schema(
        [
            required("entity_id", pa.string()),
            required("name", pa.string()),
            required("documents", pa.int64()),
            required("degree", pa.int64()),  # hyperedges over all member documents
            required("min_score_e4", pa.int32()),  # least score of the kept pairs that hold it together; 10000 alone
        ]
    ),
    ("entity_id",),
)

# Names by which a query finds an entity: its members' normal forms, then aliases.
ENTITY_NAMES = TableSpec(
    "entity_names",
    pa.schema([required("entity_id", pa.string()), required("normal", pa.string()), required("alias", pa.bool_())]),
    ("entity_id", "normal"),
)

# Distinct texts of an entity's members, the parts of its merged text.
ENTITY_PARTS = TableSpec(
    "entity_parts",
    pa.schema(
        [
            required("entity_id", pa.string()),
            required("name", pa.string()),  # normal form of the least member: edits elsewhere do not change it
            required("part_hash", pa.string()),
            required("part", pa.string()),
        ]
    ),
    ("entity_id", "part_hash"),
)

ENTITY_TEXTS = TableSpec(
    "entity_texts",
    pa.schema(
        [
            required("entity_id", pa.string()),
            required("text", pa.string()),
            required("parts", pa.int64()),
            required("summarised", pa.bool_()),
        ]
    ),
    ("entity_id",),
)
