"""Rows of FlexStructRAG's tables by id, over a pinned snapshot. Tables are read once, rows when asked for."""

from collections import Counter
from collections.abc import Container, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.methods.protocol import Snapshot, Source
from corpusmill.spans import Span

Row = dict[str, object]


class ById:
    """A table's rows by the value of a string column (several rows may share one)."""

    def __init__(self, table: pa.Table, column: str) -> None:
        self._table = table
        values = table.column(column).combine_chunks()
        self._order = pc.array_sort_indices(values).to_numpy()
        self._sorted = values.take(pa.array(self._order))

    def rows(self, value: str) -> list[Row]:
        """Rows with that value, in table order."""
        low, high = self._bound(value, right=False), self._bound(value, right=True)
        found: list[Row] = self._table.take(pa.array(np.sort(self._order[low:high]))).to_pylist()
        return found

    def row(self, value: str) -> Row:
        """The one row with that value. Raises KeyError."""
        rows = self.rows(value)
        if not rows:
            raise KeyError(f"no row for {value!r}")
        return rows[0]

    def _bound(self, value: str, right: bool) -> int:
        low, high = 0, len(self._sorted)
        key = value.encode()
        while low < high:
            middle = (low + high) // 2
            own = self._sorted[middle].as_py().encode()
            if own < key or (right and own == key):
                low = middle + 1
            else:
                high = middle
        return low


class StructureLookup:
    """The retriever's view of entities, statements, edges and clusters."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    @property
    def statements(self) -> int:
        """How many statements there are."""
        return int(self._statement_table.num_rows)

    @cached_property
    def _statement_table(self) -> pa.Table:
        return self._snapshot.table("statements")

    @cached_property
    def _statements(self) -> ById:
        return ById(self._statement_table, "hyperedge_id")

    @cached_property
    def _statements_by_text(self) -> ById:
        return ById(self._statement_table, "text_hash")

    @cached_property
    def _edges(self) -> ById:
        return ById(self._snapshot.table("edges"), "edge_id")

    @cached_property
    def _names(self) -> ById:
        return ById(self._snapshot.table("entity_names"), "normal")

    @cached_property
    def _entities(self) -> ById:
        return ById(self._snapshot.table("entities"), "entity_id")

    @cached_property
    def _texts(self) -> ById:
        return ById(self._snapshot.table("entity_texts"), "entity_id")

    @cached_property
    def _members(self) -> ById:
        return ById(self._snapshot.table("entity_members"), "entity_id")

    @cached_property
    def _members_by_text(self) -> ById:
        return ById(self._snapshot.table("entity_members"), "text_hash")

    @cached_property
    def _local_by_text(self) -> ById:
        return ById(self._snapshot.table("local_entities"), "text_hash")

    @cached_property
    def _clusters(self) -> ById:
        return ById(self._snapshot.table("clusters"), "cluster_id")

    @cached_property
    def _cluster_members(self) -> ById:
        table = self._snapshot.table("clusters", ["cluster_id", "members"])
        lists = table.column("members").combine_chunks()
        owner = table.column("cluster_id").take(pc.list_parent_indices(lists))
        return ById(pa.table({"hyperedge_id": pc.list_flatten(lists), "cluster_id": owner}), "hyperedge_id")

    def named(self, normal: str, alias: bool) -> list[str]:
        """Ids of entities with that normal form as a name (or as an alias)."""
        return sorted({str(row["entity_id"]) for row in self._names.rows(normal) if row["alias"] == alias})

    def degree(self, entity_id: str) -> int:
        return int(str(self._entities.row(entity_id)["degree"]))

    def entity_text(self, entity_id: str) -> str:
        """The merged text, led by the entity's name where it does not say it."""
        rows = self._texts.rows(entity_id)
        name = str(self._entities.row(entity_id)["name"])
        text = str(rows[0]["text"]) if rows else ""
        return text if name in text else f"{name}\n{text}".strip()

    def stands_in(self, entity_id: str, texts: Container[str]) -> bool:
        """Whether one of the entity's members is of these texts."""
        return any(str(member["text_hash"]) in texts for member in self._members.rows(entity_id))

    def stands_only_in(self, entity_id: str, texts: Container[str]) -> bool:
        """Whether all of the entity's members are of these texts."""
        return all(str(member["text_hash"]) in texts for member in self._members.rows(entity_id))

    def local_text(self, entity_id: str, texts: Container[str]) -> str:
        """What documents with these texts alone say of the entity, led by the name that they use most."""
        wanted = {
            (str(member["text_hash"]), str(member["normal"]))
            for member in self._members.rows(entity_id)
            if str(member["text_hash"]) in texts
        }
        rows = [
            row
            for text_hash in sorted({text_hash for text_hash, _ in wanted})
            for row in self._local_by_text.rows(text_hash)
            if (text_hash, str(row["normal"])) in wanted
        ]
        names = Counter(str(row["name"]) for row in rows)
        name = min(names, key=lambda own: (-names[own], own), default="")
        text = "\n".join(dict.fromkeys(str(row["text"]) for row in rows))
        return text if name in text else f"{name}\n{text}".strip()

    def statement(self, hyperedge_id: str) -> Row:
        return self._statements.row(hyperedge_id)

    def edge(self, edge_id: str) -> Row:
        return self._edges.row(edge_id)

    def cluster(self, cluster_id: str) -> tuple[str, list[Span]]:
        """(text hash, spans)."""
        row = self._clusters.row(cluster_id)
        spans = row["spans"]
        assert isinstance(spans, list)
        return str(row["text_hash"]), [Span(span["start"], span["end"]) for span in spans]

    def clusters_of(self, hyperedge_id: str) -> list[str]:
        return [str(row["cluster_id"]) for row in self._cluster_members.rows(hyperedge_id)]

    def entities_of(self, hyperedge_id: str) -> list[str]:
        """Canonical entities that a statement names, over all documents with its text."""
        row = self.statement(hyperedge_id)
        forms = set(_forms(row))
        members = self._members_by_text.rows(str(row["text_hash"]))
        return sorted({str(m["entity_id"]) for m in members if m["normal"] in forms})

    def statements_of(self, entity_id: str) -> list[Row]:
        """Statements that name the entity: of each text once, in order of text and extraction."""
        wanted: dict[str, set[str]] = {}
        for member in self._members.rows(entity_id):
            wanted.setdefault(str(member["text_hash"]), set()).add(str(member["normal"]))
        return [
            row
            for text_hash in sorted(wanted)
            for row in self._statements_by_text.rows(text_hash)
            if wanted[text_hash].intersection(_forms(row))
        ]

    @staticmethod
    def source(row: Row) -> Source:
        """The span of a statement's or an edge's row."""
        return Source(str(row["text_hash"]), Span(int(str(row["start"])), int(str(row["end"]))))


def _forms(row: Row) -> Sequence[str]:
    entities = row["entities"]
    assert isinstance(entities, list)
    return [entity["normal"] for entity in entities]
