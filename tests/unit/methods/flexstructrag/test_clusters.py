import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.methods.flexstructrag.clusters import ClusterSettings, cluster_rows, cluster_statements, reference_spans
from corpusmill.schemas import vector_table
from corpusmill.spans import Span
from corpusmill.steps import StepOutput
from tests.unit.methods.flexstructrag.scripted import run, statements_of

SETTINGS = ClusterSettings(alpha=0.1, min_cluster_size=2, min_samples=1, allow_single_cluster=False, dense_max=4000)


def cluster(vectors: np.ndarray, settings: ClusterSettings = SETTINGS, order: int = 1) -> tuple[StepOutput, list[str]]:
    text, tables = statements_of([(f"Statement {n}.", ["X"]) for n in range(len(vectors))])
    ids = tables["statements"].column("hyperedge_id").to_pylist()
    rows = [
        {"text_hash": text.text_hash, "unit_id": unit, "input_hash": "h", "vector": vector.tolist()}
        for unit, vector in list(zip(ids, vectors, strict=True))[::order]
    ]
    tables["statement_vectors"] = vector_table("statement_vectors", 8).table(rows)
    tables["statements"] = tables["statements"].take(pa.array(range(len(ids))[::order], pa.int64()))
    return run(cluster_statements, settings, text, tables), ids


def topics(*sizes: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    return np.vstack([np.eye(8)[k] + 0.05 * rng.normal(size=(size, 8)) for k, size in enumerate(sizes)])


def test_runs_of_like_statements_become_clusters() -> None:
    out, ids = cluster(topics(5, 6, 4))
    rows = out.tables["clusters"].to_pylist()
    assert [row["members"] for row in rows] == [ids[:5], ids[5:11], ids[11:]]
    assert [row["ordinal"] for row in rows] == [0, 1, 2]
    assert all(len(row["spans"]) == len(row["members"]) for row in rows)


def test_order_of_rows_does_not_matter() -> None:
    assert (
        cluster(topics(5, 6, 4))[0].tables["clusters"].equals(cluster(topics(5, 6, 4), order=-1)[0].tables["clusters"])
    )


def test_none_or_one_statement_gives_no_cluster() -> None:
    for n in (0, 1):
        out, _ = cluster(np.ones((n, 8)))
        assert out.tables["clusters"].num_rows == 0 and not out.failures


def test_a_text_over_the_dense_bound_is_partial_and_names_the_setting() -> None:
    out, _ = cluster(topics(20), SETTINGS.model_copy(update={"alpha": 0.0, "dense_max": 10}))
    assert out.tables["clusters"].num_rows == 0
    assert "dense_max (10)" in out.failures[0] and "alpha 0.0" in out.failures[0] and "20 statements" in out.failures[0]
    out, _ = cluster(topics(10), SETTINGS.model_copy(update={"alpha": 0.0, "dense_max": 10}))
    assert not out.failures


SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 6)).map(lambda p: Span(p[0], p[0] + p[1])), max_size=12)


@given(SPANS)
def test_reference_spans_cover_the_same_text_once_in_extraction_order(refs: list[Span]) -> None:
    spans = reference_spans(refs)
    covered = [at for span in spans for at in range(span.start, span.end)]
    assert len(covered) == len(set(covered))
    assert set(covered) == {at for ref in refs for at in range(ref.start, ref.end)}
    first = [min(i for i, ref in enumerate(refs) if s.start <= ref.start < s.end) for s in spans]
    assert first == sorted(first)


@given(st.lists(st.integers(-1, 3), max_size=20))
def test_each_clustered_statement_is_in_one_cluster_and_noise_in_none(labels: list[int]) -> None:
    statements = [{"hyperedge_id": str(i), "start": 2 * i, "end": 2 * i + 1} for i in range(len(labels))]
    rows = cluster_rows("t", statements, labels)
    members = [m for row in rows for m in row["members"]]  # type: ignore[attr-defined]
    assert sorted(members, key=int) == [str(i) for i, label in enumerate(labels) if label >= 0]
    assert len({row["cluster_id"] for row in rows}) == len(rows)
