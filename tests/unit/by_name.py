"""The merge in a few lines, for tests that need merged tables but no Spark: one name (or alias) is one entity."""

from collections import Counter, defaultdict
from collections.abc import Mapping

import pyarrow as pa

from corpusmill.hashing import content_id, hash_text
from corpusmill.methods.flexstructrag.tables import ENTITIES, ENTITY_MEMBERS, ENTITY_NAMES, ENTITY_PARTS, MERGE_LOG
from corpusmill.settings import Settings
from corpusmill.steps import CorpusStep


def by_name(step: CorpusStep, tables: Mapping[str, pa.Table], settings: Settings) -> dict[str, pa.Table]:
    """Outputs of the merge step, every two entities of one normal form joined."""
    local: dict[str, list[dict[str, object]]] = defaultdict(list)
    for row in tables["local_entities"].to_pylist():
        local[row["text_hash"]].append(row)
    groups: dict[str, list[dict[str, object]]] = defaultdict(list)
    for document in tables["documents"].to_pylist():
        for row in local[document["text_hash"]]:
            groups[str(row["normal"])].append({**row, "doc_id": document["doc_id"]})
    rows: dict[str, list[dict[str, object]]] = defaultdict(list)
    for normal, members in sorted(groups.items()):
        ids = {str(m["doc_id"]): content_id("member", str(m["doc_id"]), normal) for m in members}
        entity = content_id("entity", min(ids.values()))
        name = Counter(str(m["name"]) for m in members).most_common(1)[0][0]
        for member in members:
            doc_id = str(member["doc_id"])
            rows["entity_members"].append(
                {
                    "doc_id": doc_id,
                    "text_hash": member["text_hash"],
                    "normal": normal,
                    "member_id": ids[doc_id],
                    "entity_id": entity,
                }
            )
        rows["entity_names"].append({"entity_id": entity, "normal": normal, "alias": False})
        degree = sum(int(str(m["degree"])) for m in members)
        rows["entities"].append(
            {"entity_id": entity, "name": name, "documents": len(ids), "degree": degree, "min_score_e4": 10000}
        )
        for part in sorted({str(m["text"]) for m in members}):
            rows["entity_parts"].append(
                {"entity_id": entity, "name": normal, "part_hash": hash_text(part), "part": part}
            )
    specs = (ENTITIES, ENTITY_MEMBERS, ENTITY_NAMES, ENTITY_PARTS, MERGE_LOG)
    return {spec.name: spec.table(rows[spec.name]) for spec in specs}
