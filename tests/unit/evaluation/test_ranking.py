import asyncio
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.inprocess import MemorySnapshot
from corpusmill.evaluation.dataset import Question
from corpusmill.evaluation.ranking import DocumentRanking, ranking_metrics
from corpusmill.methods.common.passages import PassageSearch
from corpusmill.methods.protocol import Evidence, Source
from corpusmill.spans import Span
from tests.unit.evaluation.sets import DOCUMENTS, settings, small_index

COPY = {"z9": DOCUMENTS["d1"], "a0": DOCUMENTS["d1"]}  # three documents with one text
IDS = [f"d{i}" for i in range(6)]


def questions(*gold: dict[str, int]) -> list[Question]:
    return [Question(f"q{i}", "?", grades) for i, grades in enumerate(gold)]


def test_metrics_by_hand() -> None:
    asked = questions({"a": 1, "b": 1}, {"c": 1}, {"a": 1})
    found = ranking_metrics(asked, [["x", "a", "y", "b"], ["c"], []], [1, 3, 4])
    assert found["recall@1"].tolist() == [0, 1, 0] and found["recall@3"].tolist() == [0.5, 1, 0]
    assert found["all_gold@3"].tolist() == [0, 1, 0] and found["all_gold@4"].tolist() == [1, 1, 0]
    assert found["mrr"].tolist() == [0.5, 1, 0]
    gain = 1 / math.log2(3) + 1 / math.log2(5)
    assert found["ndcg@4"] == pytest.approx([gain / (1 + 1 / math.log2(3)), 1, 0])


def test_grades_are_gains_and_zero_is_no_gold() -> None:
    found = ranking_metrics(questions({"a": 1, "b": 3, "c": 0}), [["c", "b", "a"]], [2])
    assert found["recall@2"].tolist() == [0.5]
    assert found["ndcg@2"] == pytest.approx([(3 / math.log2(3)) / (3 + 1 / math.log2(3))])


@given(
    st.lists(
        st.tuples(st.sets(st.sampled_from(IDS), min_size=1), st.permutations(IDS), st.integers(0, 6)),
        min_size=1,
        max_size=5,
    ),
    st.integers(1, 6),
)
def test_every_metric_against_its_definition(cases: list[tuple[set[str], list[str], int]], k: int) -> None:
    asked = questions(*(dict.fromkeys(sorted(gold), 1) for gold, _, _ in cases))
    rankings = [order[:cut] for _, order, cut in cases]
    found = ranking_metrics(asked, rankings, [k])
    for i, (gold, ranking) in enumerate(zip((gold for gold, _, _ in cases), rankings, strict=True)):
        places = [place for place, document in enumerate(ranking, start=1) if document in gold]
        assert found[f"recall@{k}"][i] == pytest.approx(len(gold & set(ranking[:k])) / len(gold))
        assert found[f"all_gold@{k}"][i] == float(gold <= set(ranking[:k]))
        assert found["mrr"][i] == pytest.approx(1 / places[0] if places else 0)
        ideal = sum(1 / math.log2(place + 1) for place in range(1, min(k, len(gold)) + 1))
        assert found[f"ndcg@{k}"][i] == pytest.approx(sum(1 / math.log2(p + 1) for p in places if p <= k) / ideal)
    assert all(np.all((values >= 0) & (values <= 1)) for values in found.values())


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> MemorySnapshot:
    own = settings(["bm25"])
    return asyncio.run(small_index(tmp_path_factory.mktemp("index"), own, {**DOCUMENTS, **COPY}))


def passage(snapshot: MemorySnapshot, document: str, start: int = 0, end: int = 5, kind: str = "passage") -> Evidence:
    """A piece of evidence from that document; a passage is named by its chunk."""
    rows = snapshot.table("documents").to_pylist()
    text_hash = next(row["text_hash"] for row in rows if row["path"] == document)
    search = PassageSearch(snapshot)
    chunk = search.passage(search.rows_at(text_hash, Span(start, end))[0], 1.0).chunk_id
    return Evidence(kind, chunk if kind == "passage" else "unit", 0.5, "", (Source(text_hash, Span(start, end)),))


def test_documents_are_ranked_by_their_best_passage(snapshot: MemorySnapshot) -> None:
    ranking = DocumentRanking(snapshot)
    evidence = [passage(snapshot, "d4"), passage(snapshot, "d2"), passage(snapshot, "d4", 10, 20)]
    assert ranking.documents(evidence) == ("d4", "d2")
    assert ranking.documents([]) == ()


def test_units_follow_passages_and_lead_to_their_documents(snapshot: MemorySnapshot) -> None:
    evidence = [passage(snapshot, "d3", kind="hyperedge"), passage(snapshot, "d6")]
    assert DocumentRanking(snapshot).documents(evidence) == ("d6", "d3")


def test_documents_of_one_text_stand_together_by_path(snapshot: MemorySnapshot) -> None:
    assert DocumentRanking(snapshot).documents([passage(snapshot, "d1")]) == ("a0", "d1", "z9")
