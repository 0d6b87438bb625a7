"""The census, the merge and connected components on a real local Spark over a small store."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from corpusmill.digest import rows_digest
from corpusmill.errors import ConfigError, GraphFramesNeededError, RunFailedError
from corpusmill.graph.components import string_components
from corpusmill.graph.forest import compatible_forest
from corpusmill.hashing import content_id, hash_text
from corpusmill.methods.flexstructrag.masking import without_name
from corpusmill.methods.flexstructrag.merge import merge_step_of
from corpusmill.methods.flexstructrag.merge_maps import block_id, member_id
from corpusmill.methods.flexstructrag.merge_settings import MergeSettings
from corpusmill.methods.flexstructrag.tables import STATEMENTS
from corpusmill.models.embedders import build_embedder
from corpusmill.models.factory import model_fingerprints
from corpusmill.names import normal_form
from corpusmill.planning import resolved_plan
from corpusmill.schemas import TableSpec
from corpusmill.settings import Settings, SparkSettings
from corpusmill.steps import CorpusStep, DocumentStep, ResolvedPlan, TextStep, resolve
from corpusmill.store.draft import Draft
from corpusmill.store.manifest import Manifest
from corpusmill.store.objects import open_store
from corpusmill.store.segments import TextArtifact
from corpusmill.store.view import SnapshotView
from spark_jobs.census import census
from spark_jobs.components import connected_components
from spark_jobs.corpus import named_columns, run_corpus
from tests.engine.spark_jobs.tiny_index import Document, Entity, entity_tables, put_documents, put_segment, tiny_index

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.engine
SETTINGS = Settings(spark=SparkSettings(partitions=2))
DIM = 384
MERGE = MergeSettings(tau_merge=0.8, exact_block_max=20, min_component_similarity=0.3, bucket=8, tables=6)


@pytest.fixture(scope="module")
def spark() -> Iterator["SparkSession"]:
    from spark_jobs.session import spark_session

    session = spark_session(SETTINGS, "test corpus")
    yield session
    session.stop()


def _plan(own: MergeSettings) -> ResolvedPlan:
    """The plan up to the merge, with merge settings small enough to reach every branch of it."""
    steps = [step for step in resolved_plan(SETTINGS).steps if isinstance(step, TextStep | DocumentStep)]
    return resolve([*steps, merge_step_of(own)], model_fingerprints(SETTINGS))


def _unit(rng: np.random.Generator, centre: np.ndarray, noise: float) -> np.ndarray:
    v = centre + noise * rng.normal(size=DIM) / np.sqrt(DIM)
    return (v / np.linalg.norm(v)).astype(np.float32)


def _corpus() -> list[Document]:
    """Names shared by few and by many documents, chains of near texts, aliases, copies, two label sets."""
    rng = np.random.default_rng(5)
    centres = rng.normal(size=(4, DIM)) / np.sqrt(DIM)
    documents = []
    for k in range(48):
        hub = Entity(
            "Apple", f"apple {k % 40}", _unit(np.random.default_rng(k % 40), centres[k % 2], 0.6), degree=k % 3 + 1
        )
        angle = 0.35 * (k % 9)
        chain = np.zeros(DIM, np.float32)
        chain[0], chain[1] = np.cos(angle), np.sin(angle)
        entities = [hub, Entity("Chain", f"chain {k % 9}", chain)]
        if k % 6 == 0:
            other = Entity("Apple Inc.", f"inc {k}", _unit(rng, centres[1], 0.3), aliases=("APPLE", "A.I."))
            entities.append(other)
        documents.append(Document(f"d{k}", f"text {k}", tuple(entities), labels=("secret",) if k % 8 == 7 else ()))
    documents.append(Document("copy", "text 3", documents[3].entities))
    documents.append(Document("unread", "text u", documents[4].entities, outcome="quarantined"))
    return documents


def _reference_log(documents: list[Document], own: MergeSettings) -> set[tuple[str, str, str, int]]:
    """The evidence by the in-memory forest, block by block."""
    blocks: dict[str, dict[str, Entity]] = {}
    for document in documents:
        for entity in document.entities if document.outcome == "indexed" else ():
            member = member_id(document.doc_id, normal_form(entity.name))
            for name in {normal_form(form) for form in (entity.name, *entity.aliases)}:
                blocks.setdefault(block_id(name, document.labels), {})[member] = entity
    log = set()
    for block, members in blocks.items():
        found = compatible_forest(
            np.stack([entity.vector for entity in members.values()]),
            list(members),
            own.tau_merge,
            keys=[hash_text(f"{entity.name}\n{entity.text}") for entity in members.values()],
            exact_max=own.exact_block_max,
            bucket=own.bucket,
            tables=own.tables,
            block=block,
        )
        log |= {(block, a, b, score) for a, b, score in found}
    return log


def test_merge_equals_the_reference_whatever_the_partitions_and_the_order(
    spark: "SparkSession", tmp_path: Path
) -> None:
    documents, plan = _corpus(), _plan(MERGE)
    spec, draft = tiny_index(tmp_path / "a", documents, SETTINGS, per_segment=20)
    made = run_corpus(spark, spec, draft, ["merge"], None, plan)
    many = Settings(spark=SparkSettings(partitions=17))
    spec, draft = tiny_index(tmp_path / "b", documents[::-1], many, per_segment=7)
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "17")
    again = run_corpus(spark, spec, draft, ["merge"], None, plan)
    spark.conf.set("spark.sql.shuffle.partitions", before)
    assert {t.name: (t.rows, t.digest) for t in made.tables} == {t.name: (t.rows, t.digest) for t in again.tables}

    view = SnapshotView(open_store(str(tmp_path / "a")), made)
    log = view.table("merge_log").to_pylist()
    assert {(r["block"], r["a"], r["b"], r["score_e4"]) for r in log} == _reference_log(documents, MERGE)
    assert 0 < sum(not row["kept"] for row in log) < len(log)
    _check_entities(view, documents, log)


def _check_entities(view: SnapshotView, documents: list[Document], log: list[dict[str, object]]) -> None:
    """Members, names, counts and parts follow from the kept pairs of the log."""
    members = view.table("entity_members").to_pylist()
    live = [d for d in documents if d.outcome == "indexed"]
    assert len(members) == sum(len(d.entities) for d in live)
    kept = [row for row in log if row["kept"]]
    joined = string_components([str(r["a"]) for r in kept], [str(r["b"]) for r in kept])
    least = dict(zip(*joined.to_pydict().values(), strict=True))
    for row in members:
        assert row["member_id"] == member_id(row["doc_id"], row["normal"])
        assert row["entity_id"] == content_id("entity", least.get(row["member_id"], row["member_id"]))
    labels = {d.doc_id: d.labels for d in live}
    of_entity: dict[str, list[dict[str, object]]] = {}
    for row in members:
        of_entity.setdefault(row["entity_id"], []).append(row)
    for entity in view.table("entities").to_pylist():
        own = of_entity[entity["entity_id"]]
        assert len({labels[str(row["doc_id"])] for row in own}) == 1
        assert entity["documents"] == len({row["doc_id"] for row in own})
        assert entity["min_score_e4"] >= 8000
    names = {(r["entity_id"], r["normal"]): r["alias"] for r in view.table("entity_names").to_pylist()}
    for row in members:
        assert names[row["entity_id"], row["normal"]] is False
    assert any(names.values())
    parts = view.table("entity_parts").to_pylist()
    assert len({(r["entity_id"], r["part_hash"]) for r in parts}) == len(parts)
    assert all(r["part_hash"] == hash_text(r["part"]) for r in parts)
    least_of = {entity: min(own, key=lambda row: str(row["member_id"])) for entity, own in of_entity.items()}
    assert all(r["name"] == least_of[r["entity_id"]]["normal"] for r in parts)


FRUIT = (
    "Apple is a round fruit that grows on trees; it is eaten raw, baked in pies and pressed into cider.",
    "The apple is the sweet, edible fruit of a tree of the rose family, grown in orchards for its crisp flesh.",
)
COMPANY = (
    "Apple is an American technology company that designs the iPhone, the Mac and their software in Cupertino.",
    "Apple was founded by Steve Jobs and Steve Wozniak; the company sells smartphones, computers and services.",
    "Apple, the technology company from California, reported record revenue from iPhone sales and its App Store.",
)


def test_apple_the_fruit_and_apple_the_company_stay_two(spark: "SparkSession", tmp_path: Path) -> None:
    async def embed() -> np.ndarray:
        embedder = build_embedder(SETTINGS.embedder, threads=1)
        try:
            return await embedder.embed([without_name(text, "Apple") for text in (*FRUIT, *COMPANY)], "passage")
        finally:
            await embedder.aclose()

    vectors = asyncio.run(embed())
    documents = [
        Document(f"{k}.md", text, (Entity("Apple", text, vector),))
        for k, (text, vector) in enumerate(zip((*FRUIT, *COMPANY), vectors, strict=True))
    ]
    spec, draft = tiny_index(tmp_path, documents, SETTINGS)
    made = run_corpus(spark, spec, draft, ["merge"], None)
    groups: dict[str, set[str]] = {}
    paths = {d.doc_id: d.path for d in documents}
    for row in SnapshotView(open_store(str(tmp_path)), made).table("entity_members").to_pylist():
        groups.setdefault(row["entity_id"], set()).add(paths[row["doc_id"]])
    assert sorted(map(sorted, groups.values())) == [["0.md", "1.md"], ["2.md", "3.md", "4.md"]]

    manifest = Manifest(
        number=1, parent=None, commit="c", run="r", created="", corpusmill="", digest="", config={},
        config_fingerprint="", methods=(), models={}, embedder="", dim=DIM, artifacts=tuple(made.artifacts),
        tables=tuple(made.tables), index_files=(), counts=made.counts,
    )  # fmt: skip
    spec, draft = tiny_index(tmp_path, documents, SETTINGS)
    assert run_corpus(spark, spec, draft, ["merge"], manifest).tables[-1].files == made.tables[-1].files
    with pytest.raises(ConfigError, match="no corpus step 'mrege'; corpus steps: merge"):
        run_corpus(spark, spec, draft, ["mrege"], None)


def test_census_counts_live_texts_by_the_segment_that_owns_them(spark: "SparkSession", tmp_path: Path) -> None:
    vector = np.eye(1, DIM, dtype=np.float32)[0]

    def document(name: str, *texts: str, outcome: str = "indexed") -> Document:
        return Document(name, f"text of {name}", tuple(Entity(t, t, vector) for t in texts), outcome=outcome)

    kept, partial, dead = document("kept", "One"), document("partial", "Two", "Three"), document("dead", "Four")
    empty = document("empty", outcome="empty")
    spec, draft = tiny_index(tmp_path, [kept, empty], SETTINGS)
    store, plan = open_store(str(tmp_path)), resolved_plan(SETTINGS)
    put_documents(store, draft, [kept, partial, empty])

    def artifact(source: Document, *failures: str) -> TextArtifact:
        tables = entity_tables(source, plan.spec("entity_vectors"))
        return TextArtifact(source.text_hash, {"local_entities": tables["local_entities"]}, failures)

    put_segment(store, draft, SETTINGS, "hypergraph", [artifact(partial, "window 1: nonsense")])
    put_segment(store, draft, SETTINGS, "hypergraph", [artifact(dead)])
    put_segment(store, draft, SETTINGS, "hypergraph", [artifact(document("kept", "Lost"))])
    with pytest.raises(RunFailedError, match=r"of 3 live texts, .*1 of step 'texts', 1 of step 'chunks'"):
        census(spark, spec, draft)
    for step in ("texts", *(s.name for s in plan.steps if isinstance(s, TextStep | DocumentStep))):
        if step != "hypergraph":
            put_segment(store, draft, SETTINGS, step, [TextArtifact(partial.text_hash, {})])
    counted = census(spark, spec, draft)
    table = next(t for t in counted.tables if t.name == "local_entities")
    view = SnapshotView(store, counted)
    assert sorted(r["normal"] for r in view.table("local_entities").to_pylist()) == ["one", "three", "two"]
    assert (table.rows, table.digest) == (3, rows_digest(view.table("local_entities")).hex)
    assert table.artifact == "hypergraph"
    assert counted.counts.model_dump() == {
        "documents": 3, "indexed": 2, "empty": 1, "partial": 1, "quarantined": 0, "texts": 3,
    }  # fmt: skip
    assert counted.partial_texts == 1
    artifacts = next(a for a in counted.artifacts if a.step == "hypergraph")
    assert len(artifacts.segments) == 2
    put_segment(store, draft, SETTINGS, "hypergraph", [artifact(document("partial", "Two"))])
    assert next(t for t in census(spark, spec, draft).tables if t.name == "local_entities").rows == 2


def test_census_and_view_take_the_tables_of_one_build(spark: "SparkSession", tmp_path: Path) -> None:
    vector = np.eye(1, DIM, dtype=np.float32)[0]

    def document(entity: str) -> Document:
        return Document("one", "text", (Entity(entity, entity, vector),))

    spec, draft = tiny_index(tmp_path, [document("Any")], SETTINGS)
    draft.artifacts = [a for a in draft.artifacts if a.step not in ("extract", "hypergraph")]
    store, plan = open_store(str(tmp_path)), resolved_plan(SETTINGS)
    text_hash = document("Any").text_hash

    def statements(value: str) -> TextArtifact:
        row: dict[str, object] = {
            "text_hash": text_hash, "hyperedge_id": value, "ordinal": 0, "chunk_id": "c", "text": value, "start": 0,
            "end": 1, "entities": [],
        }  # fmt: skip
        return TextArtifact(text_hash, {"statements": STATEMENTS.table([row])})

    def entities(value: str) -> TextArtifact:
        made_from = {"statements": rows_digest(statements(value).tables["statements"])}
        tables = entity_tables(document(value), plan.spec("entity_vectors"))
        return TextArtifact(text_hash, {"local_entities": tables["local_entities"]}, made_from=made_from)

    put_segment(store, draft, SETTINGS, "hypergraph", [entities("Lost")])
    put_segment(store, draft, SETTINGS, "extract", [statements("New")])
    with pytest.raises(RunFailedError, match="missing: 1 of step 'hypergraph'"):
        census(spark, spec, draft)
    put_segment(store, draft, SETTINGS, "hypergraph", [entities("New")])
    counted = census(spark, spec, draft)
    for source in (draft, counted):
        view = SnapshotView(store, source)
        assert [row["name"] for row in view.table("local_entities").to_pylist()] == ["New"]
    entry = next(t for t in counted.tables if t.name == "local_entities")
    assert entry.digest == rows_digest(SnapshotView(store, counted).table("local_entities")).hex
    assert run_corpus(spark, spec, draft, ["merge"], None).counts.documents == 1


def test_census_of_nothing_gives_empty_tables(spark: "SparkSession", tmp_path: Path) -> None:
    spec, draft = tiny_index(tmp_path, [], SETTINGS)
    made = run_corpus(spark, spec, draft, ["merge"], None)
    assert {t.rows for t in made.tables} == {0}
    assert {"chunks", "entities", "documents"} <= {t.name for t in made.tables}
    assert isinstance(made, Draft) and made.counts.documents == 0


def _edges() -> pa.Table:
    rng = np.random.default_rng(3)
    a, b = (np.char.zfill(rng.integers(0, 900, 500).astype(str), 5) for _ in range(2))
    return pa.table({"a": pa.array(a.tolist()), "b": pa.array(b.tolist())})


def test_components_of_spark_equal_those_in_memory(spark: "SparkSession") -> None:
    edges = _edges()
    found = connected_components(spark, spark.createDataFrame(edges), SETTINGS.spark).toArrow().sort_by("node")
    assert found.select(["node", "component"]).to_pylist() == string_components(edges["a"], edges["b"]).to_pylist()
    with pytest.raises(GraphFramesNeededError, match=r"500 pair edges.*spark.pair_bound = 499.*graphframes-spark4"):
        connected_components(spark, spark.createDataFrame(edges), SparkSettings(pair_bound=499))


def test_every_corpus_step_of_the_plan_reads_tables_that_it_declares() -> None:
    for step in resolved_plan(SETTINGS).of_kind(CorpusStep):
        assert isinstance(step, CorpusStep)
        made = {op.name for op in step.ops}
        assert {spec.name for spec in step.outputs} <= made


@pytest.mark.parametrize(
    ("query", "columns"),
    [
        ("SELECT t.Name, count(*) AS n FROM things t GROUP BY t.name", ["text_hash", "unit", "name"]),
        ("SELECT t.* FROM things t", ["text_hash", "unit", "name", "vector"]),
        ("SELECT * FROM things", ["text_hash", "unit", "name", "vector"]),
        ("SELECT name FROM things NATURAL JOIN others", ["text_hash", "unit", "name", "vector"]),
        ("SELECT vector FROM things", ["text_hash", "unit", "vector"]),
    ],
)
def test_a_query_reads_the_columns_that_it_names(query: str, columns: list[str]) -> None:
    names = ("text_hash", "unit", "name", "vector")
    spec = TableSpec("things", pa.schema([(name, pa.string()) for name in names]), ("text_hash", "unit"))
    assert named_columns(spec, query).names == columns
