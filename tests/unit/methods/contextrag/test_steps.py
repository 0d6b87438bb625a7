"""The whole plan in this process over small corpora: topology without a model, summaries, probes, odd corpora."""

import asyncio
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.inprocess import MemoryBuild
from corpusmill.hashing import content_id
from corpusmill.methods.common.vectors import CHUNK_VECTORS
from corpusmill.methods.contextrag import codebooks, topics
from corpusmill.methods.contextrag.fuzzy_context import MembershipSettings, assign, train_codebook
from corpusmill.methods.contextrag.method import METHOD
from corpusmill.methods.contextrag.settings import ContextSettings
from corpusmill.methods.contextrag.tables import LINKS, MEMBERSHIPS, TOPICS, TRAINING
from corpusmill.methods.contextrag.tasks import SUMMARISE_TOPIC
from corpusmill.retrieval.vectors import IndexSizes, build_vectors
from corpusmill.schemas import vector_table
from corpusmill.settings import Settings
from corpusmill.steps import BuildStep, StepContext

DIM = 16
SMALL = ContextSettings(levels=(6, 3), points_per_centroid=8, window=3)
SETTINGS = Settings()


def chunks(n: int, seed: int = 0, groups: int = 6) -> pa.Table:
    """`n` chunk vectors around `groups` centres, in the order of the table's key."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((groups, DIM))
    vectors = centres[np.arange(n) % groups] + 0.3 * random.standard_normal((n, DIM))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return table_of(vectors)


def table_of(vectors: np.ndarray) -> pa.Table:
    rows = [
        {"text_hash": content_id("t", str(i)), "unit_id": content_id("c", str(i)), "input_hash": str(i), "vector": v}
        for i, v in enumerate(vectors)
    ]
    spec = vector_table(CHUNK_VECTORS, DIM)
    return spec.table(sorted(rows, key=lambda row: (row["text_hash"], row["unit_id"])))


class NoModels:
    """Topology must not ask for any."""

    def language_model(self, role: str):
        raise AssertionError(f"a model of role {role!r} was asked for")

    @property
    def embedder(self):
        raise AssertionError("the embedder was asked for")


def steps() -> dict[str, BuildStep]:
    own = SETTINGS.model_copy(update={"methods": SETTINGS.methods.model_copy(update={"contextrag": SMALL})})
    return {step.name: step for step in METHOD.plan(own, DIM)}


def topology(vectors: pa.Table, folder: Path, batch: int = 10_000, book: tuple[pa.Table, pa.Table] | None = None):
    """All tables of the topology steps, the memberships made in batches of so many chunks."""
    plan, tables = steps(), {CHUNK_VECTORS: vectors}
    index = folder / "chunk_index"
    sizes = IndexSizes(flat_max=10**6, ivf_max=10**6, train_max=10**6)
    build_vectors(vectors.to_batches(), vectors.num_rows, index, sizes)
    if book is None:
        run(plan["context_codebook"], tables, folder)
    else:
        tables["context_codebook"], tables[TRAINING.name] = book
    step = plan[MEMBERSHIPS.name]
    sides = {name: tables[name] for name in step.inputs[1:]}
    context = StepContext(step.settings, "f", NoModels(), sides)
    parts = [
        asyncio.run(assign(vectors.slice(at, batch), context)).tables[MEMBERSHIPS.name]
        for at in range(0, max(1, vectors.num_rows), batch)
    ]
    tables[MEMBERSHIPS.name] = pa.concat_tables(parts)
    run(plan["context_graph"], tables, folder)
    return tables


def run(step: BuildStep, tables: dict[str, pa.Table], folder: Path) -> None:
    scratch = folder / step.name
    scratch.mkdir(parents=True, exist_ok=True)
    build = MemoryBuild(step.settings, scratch, 0, tables)
    step.run(build)
    for spec in step.outputs:
        tables[spec.name] = build.made.get(spec.name, spec.empty()).cast(spec.schema)


def test_the_topology_needs_no_model_and_has_every_part(tmp_path):
    tables = topology(chunks(300), tmp_path)
    concepts = tables["context_concepts"].to_pylist()
    kinds = {kind: [c for c in concepts if c["kind"] == kind] for kind in ("seed", "meet", "join")}
    assert len(kinds["seed"]) > 6 and kinds["join"]
    by_id = {c["concept_id"]: c for c in concepts}
    for concept in kinds["meet"] + kinds["join"]:
        masses = [by_id[parent]["mass"] for parent in concept["parents"]]
        assert len(masses) == 2
        assert concept["mass"] <= min(masses) if concept["kind"] == "meet" else concept["mass"] >= max(masses)
    for link in tables[LINKS.name].to_pylist():
        assert link["source"] in by_id and link["target"] in by_id
        if link["kind"] == "lattice":
            assert by_id[link["source"]]["mass"] <= by_id[link["target"]]["mass"]
    members = tables[MEMBERSHIPS.name]
    assert members.num_rows == 300
    assert all(len(codes) == 2 for codes in members.column("codes").to_pylist())


def test_the_graph_does_not_depend_on_the_blocks_of_the_memberships(tmp_path):
    vectors = chunks(200)
    whole, parts = topology(vectors, tmp_path / "a"), topology(vectors, tmp_path / "b", batch=7)
    for name in (MEMBERSHIPS.name, "context_concepts", LINKS.name, "context_levels"):
        assert whole[name].equals(parts[name]), name


def test_a_codebook_is_the_same_after_a_trip_through_its_tables(tmp_path):
    tables = topology(chunks(120), tmp_path)
    book = codebooks.from_tables(tables["context_codebook"], tables[TRAINING.name])
    again = codebooks.from_arrays(codebooks.to_arrays(book, book.sizes))
    assert again.digest == book.digest == tables["context_codebook"].column("codebook")[0].as_py()
    assert [table.num_rows for table in codebooks.to_tables(again)] == [len(tables["context_codebook"]), 2]


def test_a_sample_of_the_vectors_trains_the_same_codebook_in_any_order_of_rows(tmp_path):
    vectors = chunks(200)
    settings = steps()["context_codebook"].settings.model_copy(update={"train_max": 50})
    made = []
    for name, table in (("a", vectors), ("b", vectors.take(list(range(199, -1, -1))))):
        scratch = tmp_path / name
        scratch.mkdir()
        build = MemoryBuild(settings, scratch, 0, {CHUNK_VECTORS: table})
        train_codebook(build)
        made.append(build.made["context_training"])
        assert made[-1].column("trained_on")[0].as_py() == 50
    assert made[0].equals(made[1])


def test_new_chunks_are_assigned_to_the_standing_codebook_and_drift_is_told(tmp_path):
    first = topology(chunks(200), tmp_path / "a")
    book = (first["context_codebook"], first[TRAINING.name])
    strange = chunks(200, seed=99)
    second = topology(strange, tmp_path / "b", book=book)
    assert second["context_codebook"].equals(first["context_codebook"])
    drift = [row["drift_e4"] for row in second["context_levels"].to_pylist()]
    assert [row["drift_e4"] for row in first["context_levels"].to_pylist()] == pytest.approx([10_000] * 2, abs=20)
    assert drift[0] > 12_000


@pytest.mark.parametrize(
    ("name", "vectors"),
    [
        ("one chunk", np.ones((1, DIM), np.float32) / 4),
        ("all equal", np.ones((40, DIM), np.float32) / 4),
        ("fewer chunks than centroids", np.eye(3, DIM, dtype=np.float32)),
        ("zeros", np.zeros((5, DIM), np.float32)),
    ],
)
def test_corpora_that_do_not_fill_a_codebook(tmp_path, name, vectors):
    tables = topology(table_of(vectors), tmp_path)
    assert tables[MEMBERSHIPS.name].num_rows == len(vectors)
    assert tables["context_levels"].num_rows == 2
    for concept in tables["context_concepts"].to_pylist():
        assert np.isfinite(concept["vector"]).all() and np.isfinite(concept["centres"]).all()


def test_an_empty_corpus_has_an_empty_topology(tmp_path):
    tables = topology(table_of(np.zeros((0, DIM), np.float32)), tmp_path)
    assert {tables[name].num_rows for name in ("context_codebook", MEMBERSHIPS.name, "context_concepts")} == {0}


def test_vectors_that_are_not_finite_are_refused_with_their_number(tmp_path):
    vectors = np.ones((10, DIM), np.float32)
    vectors[3] = np.nan
    with pytest.raises(ValueError, match="1 of 10 vectors are not finite"):
        topology(table_of(vectors), tmp_path)


def test_the_step_of_memberships_reads_the_codebook_beside_its_rows():
    step = steps()[MEMBERSHIPS.name]
    assert isinstance(step.settings, MembershipSettings)
    assert step.inputs == (CHUNK_VECTORS, "context_codebook", TRAINING.name)
    assert steps()["context_codebook"].pinned


def test_members_fill_a_summary_up_to_its_tokens():
    members = [{"text": "word " * 50, "chunk_id": str(i)} for i in range(10)]
    assert len(topics.within(members, 10)) == 1
    some = topics.within(members, 200)
    assert 2 <= len(some) < 10 and some == members[: len(some)]


def test_a_cluster_is_summarised_by_one_call_and_keeps_its_sources():
    asked = []

    class Model:
        async def generate(self, task, inputs, affinity=None):
            from corpusmill.models.contracts import Generation, Usage

            asked.append(inputs)
            return Generation(task.rule(inputs), Usage(calls=1))

    class Embedder:
        async def embed(self, texts, kind):
            assert kind == "passage"
            return np.ones((len(texts), DIM), np.float32)

    class Both(NoModels):
        embedder = Embedder()

        def language_model(self, role):
            assert role == SUMMARISE_TOPIC.role
            return Model()

    rows = [
        {
            "topic": topic, "place": place, "members": 9, "text_hash": f"t{topic}", "chunk_id": f"{topic}{place}",
            "start": 0, "end": 30, "text": f"Berlin is city {place} of topic {topic}.",
        }
        for topic in (3, 1)
        for place in (2, 1)
    ]  # fmt: skip
    step = topics.summary_step(SMALL, DIM)
    output = asyncio.run(topics.summarise(TOPICS.table(rows), StepContext(step.settings, "f", Both())))
    made = output.tables["context_summaries"].to_pylist()
    assert len(asked) == 2 and not output.failures
    assert [row["topic"] for row in made] == [1, 3]
    assert [source["chunk_id"] for source in made[0]["sources"]] == ["11", "12"]
    assert made[0]["members"] == 9 and made[0]["text"]


def test_a_probe_is_the_longest_sentence():
    assert topics.probe_of("Short one. This is a much longer sentence. Tiny.") == "This is a much longer sentence."
    assert topics.probe_of("x" * 900) == "x" * topics.PROBE_CHARS
    assert topics.probe_of("") == ""
