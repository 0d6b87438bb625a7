"""Section 7: local entities of one name are one thing only if their summaries are alike; components of such pairs.

A block is a name (normal form, or an alias's) within one label set. Its evidence is the maximum spanning forest of its
compatible pairs, a function of its members alone. Distinct texts are compared once: members with one embedded text are
linked to the least of them. A block above `exact_block_max` distinct texts is cut by seeded tables of random
hyperplanes into runs that a task can hold, and the forest of their forests is its evidence. Components over all
evidence are canonical entities, after a component with too unlike a pair was split (graph/splitting.py).
"""

from functools import partial
from typing import TYPE_CHECKING

from corpusmill.methods.flexstructrag import merge_maps as maps
from corpusmill.methods.flexstructrag.merge_settings import MergeSettings, merge_settings
from corpusmill.methods.flexstructrag.tables import (
    ENTITIES,
    ENTITY_MEMBERS,
    ENTITY_NAMES,
    ENTITY_PARTS,
    MERGE_LOG,
)
from corpusmill.steps import Components, CorpusOp, CorpusStep, FlatMap, GroupMap, Sql

if TYPE_CHECKING:
    from corpusmill.settings import Settings


def merge_step(settings: "Settings") -> CorpusStep:
    """Local entities of all documents -> canonical entities, their names and parts, and the merge log."""
    return merge_step_of(merge_settings(settings))


def merge_step_of(own: MergeSettings) -> CorpusStep:
    return CorpusStep(
        name="merge",
        version=2,
        settings=own,
        inputs=("local_entities", "entity_vectors"),
        outputs=(ENTITY_MEMBERS, MERGE_LOG, ENTITIES, ENTITY_NAMES, ENTITY_PARTS),
        ops=(*_blocks(own), *_evidence(own), *_components(own), *_entities()),
    )


def _blocks(own: MergeSettings) -> tuple[CorpusOp, ...]:
    """Members, each under all its names; distinct texts of each block."""
    return (
        Sql(
            "members",
            """SELECT d.doc_id, d.labels, e.text_hash, e.local_id, e.normal, e.name AS surface, e.degree, e.aliases,
                      v.input_hash
               FROM documents d
               JOIN local_entities e ON e.text_hash = d.text_hash
               LEFT JOIN (SELECT text_hash, unit_id, input_hash FROM entity_vectors) v
                 ON v.text_hash = e.text_hash AND v.unit_id = e.local_id
               WHERE d.outcome = 'indexed'""",
        ),
        FlatMap("named", "members", maps.name_members, maps.NAMED),
        Sql(
            "texts_of_block",
            """SELECT *, count(*) OVER (PARTITION BY block) AS size FROM (
                 SELECT block, input_hash, min(member_id) AS member_id, min_by(doc_id, member_id) AS doc_id,
                        min_by(text_hash, member_id) AS text_hash, min_by(local_id, member_id) AS local_id,
                        count(*) AS members
                 FROM named WHERE input_hash IS NOT NULL GROUP BY block, input_hash)""",
        ),
        Sql(
            "duplicates",
            """SELECT n.block, t.member_id AS a, n.member_id AS b, t.doc_id AS a_doc, n.doc_id AS b_doc,
                      n.input_hash AS a_text, n.input_hash AS b_text, CAST(10000 AS INT) AS score_e4
               FROM named n JOIN texts_of_block t ON n.block = t.block AND n.input_hash = t.input_hash
               WHERE t.members > 1 AND n.member_id <> t.member_id""",
        ),
        Sql(
            "comparable",
            """SELECT t.block, t.size, t.member_id, t.doc_id, t.input_hash, v.vector
               FROM texts_of_block t
               JOIN entity_vectors v ON v.text_hash = t.text_hash AND v.unit_id = t.local_id
               WHERE t.size > 1""",
        ),
    )


def _evidence(own: MergeSettings) -> tuple[CorpusOp, ...]:
    """The maximum spanning forest of each block's compatible pairs."""
    return (
        FlatMap("grouped", "comparable", partial(maps.group_texts, settings=own), maps.GROUPED),
        Sql(
            "runs",
            f"""SELECT concat(grp, '.', run) AS grp, block, large, member_id, doc_id, input_hash, vector FROM (
                  SELECT *, explode(IF(place > 0 AND place % {own.bucket} = 0,
                                       array(place DIV {own.bucket}, place DIV {own.bucket} - 1),
                                       array(place DIV {own.bucket}))) AS run
                  FROM (SELECT *, row_number() OVER (PARTITION BY grp ORDER BY turn, member_id) - 1 AS place
                        FROM grouped WHERE large))
                UNION ALL
                SELECT grp, block, large, member_id, doc_id, input_hash, vector FROM grouped WHERE NOT large""",
        ),
        GroupMap("found", ("runs",), "grp", partial(maps.forest_of_run, settings=own), maps.FOUND),
        Sql("found_in_buckets", "SELECT * FROM found WHERE large"),
        GroupMap("joined", ("found_in_buckets",), "block", maps.forest_of_forests, maps.FOUND),
        Sql(
            "evidence",
            """SELECT block, a, b, a_doc, b_doc, a_text, b_text, score_e4 FROM found WHERE NOT large
               UNION ALL SELECT block, a, b, a_doc, b_doc, a_text, b_text, score_e4 FROM joined
               UNION ALL SELECT block, a, b, a_doc, b_doc, a_text, b_text, score_e4 FROM duplicates""",
        ),
    )


def _components(own: MergeSettings) -> tuple[CorpusOp, ...]:
    """Components over the evidence, and the parts that a floor cuts them into.

    With two distinct texts there is one score, which passed the threshold: nothing to look at unless the floor is
    above the threshold.
    """
    least = 2 if own.min_component_similarity > own.tau_merge else 3
    return (
        Components("linked", "evidence"),
        Sql(
            "texts_of_component",
            """SELECT *, count(*) OVER (PARTITION BY component) AS size FROM (
                 SELECT l.component, n.input_hash, min(n.member_id) AS member_id,
                        min_by(n.text_hash, n.member_id) AS text_hash, min_by(n.local_id, n.member_id) AS local_id
                 FROM linked l JOIN named n ON n.member_id = l.node
                 WHERE NOT n.alias GROUP BY l.component, n.input_hash)""",
        ),
        Sql(
            "component_vectors",
            f"""SELECT t.component, t.input_hash, v.vector FROM texts_of_component t
                JOIN entity_vectors v ON v.text_hash = t.text_hash AND v.unit_id = t.local_id
                WHERE t.size BETWEEN {least} AND {own.split_max}""",
        ),
        Sql(
            "linked_evidence",
            f"""SELECT e.*, l.component, coalesce(c.looked_at, false) AS looked_at
                FROM evidence e JOIN linked l ON l.node = e.a
                LEFT JOIN (SELECT DISTINCT component, true AS looked_at FROM texts_of_component
                           WHERE size BETWEEN {least} AND {own.split_max}) c ON c.component = l.component""",
        ),
        Sql("component_evidence", "SELECT * FROM linked_evidence WHERE looked_at"),
        GroupMap(
            "looked_at",
            ("component_evidence", "component_vectors"),
            "component",
            partial(maps.split_component, settings=own),
            maps.JUDGED,
        ),
        Sql(
            "judged",
            """SELECT * FROM looked_at UNION ALL
               SELECT block, a, b, a_doc, b_doc, score_e4, true AS kept, true AS holds,
                      component AS a_part, component AS b_part
               FROM linked_evidence WHERE NOT looked_at""",
        ),
        Sql("merge_log", "SELECT block, a, b, a_doc, b_doc, score_e4, kept FROM judged"),
    )


def _entities() -> tuple[CorpusOp, ...]:
    """Members, names, parts and counts of canonical entities."""
    return (
        Sql(
            "members_in_parts",
            """SELECT n.*, coalesce(p.part, n.member_id) AS part FROM named n
               LEFT JOIN (SELECT a AS node, a_part AS part FROM judged
                          UNION SELECT b AS node, b_part AS part FROM judged) p ON p.node = n.member_id""",
        ),
        FlatMap("assigned", "members_in_parts", maps.assign_entities, maps.ASSIGNED),
        Sql(
            "entity_members",
            "SELECT doc_id, text_hash, normal, member_id, entity_id FROM assigned WHERE NOT alias",
        ),
        Sql(
            "entity_titles",
            """SELECT entity_id, min_by(surface, struct(-uses, surface)) AS name FROM (
                 SELECT entity_id, surface, count(*) AS uses FROM assigned WHERE NOT alias GROUP BY entity_id, surface)
               GROUP BY entity_id""",
        ),
        Sql(
            "entities",
            """SELECT c.entity_id, t.name, c.documents, c.degree, coalesce(s.least, CAST(10000 AS INT)) AS min_score_e4
               FROM (SELECT entity_id, min(part) AS part, count(DISTINCT doc_id) AS documents,
                            sum(CAST(degree AS BIGINT)) AS degree
                     FROM assigned WHERE NOT alias GROUP BY entity_id) c
               JOIN entity_titles t ON t.entity_id = c.entity_id
               LEFT JOIN (SELECT a_part, min(score_e4) AS least FROM judged WHERE holds GROUP BY a_part) s
                 ON s.a_part = c.part""",
        ),
        Sql(
            "entity_names",
            "SELECT entity_id, name AS normal, bool_and(alias) AS alias FROM assigned GROUP BY entity_id, name",
        ),
        Sql(
            "entity_sentences",
            """SELECT DISTINCT m.entity_id, n.name, e.text AS part
               FROM (SELECT DISTINCT entity_id, text_hash, local_id FROM assigned WHERE NOT alias) m
               JOIN local_entities e ON e.text_hash = m.text_hash AND e.local_id = m.local_id
               JOIN (SELECT entity_id, min_by(normal, member_id) AS name FROM assigned WHERE NOT alias
                     GROUP BY entity_id) n ON n.entity_id = m.entity_id""",
        ),
        FlatMap("entity_parts", "entity_sentences", maps.hash_parts, ENTITY_PARTS.schema),
    )
