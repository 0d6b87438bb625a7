import asyncio
from pathlib import Path

import pytest

from benchmarks.inprocess import MemorySnapshot
from corpusmill.errors import UsageError
from corpusmill.evaluation.coverage import Coverage, coverage, coverage_warnings
from corpusmill.evaluation.dataset import QuestionSet, load_questions
from tests.unit.evaluation.sets import DOCUMENTS, settings, small_index, write_set

ROWS = [{"_id": key, "title": title, "text": text} for key, (title, text) in DOCUMENTS.items()]


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> MemorySnapshot:
    """An index of the documents, each with its title before its text, and of one that is empty."""
    titled = {key: (title, f"{title}\n{text}") for key, (title, text) in DOCUMENTS.items()}
    return asyncio.run(small_index(tmp_path_factory.mktemp("index"), settings(["bm25"]), titled))


def checked(folder: Path, snapshot: MemorySnapshot, **lines: object) -> tuple[QuestionSet, Coverage]:
    questions = load_questions(write_set(folder, **lines))  # type: ignore[arg-type]
    return questions, coverage(questions, snapshot)


def test_a_title_before_a_text_is_no_difference(snapshot: MemorySnapshot, tmp_path: Path) -> None:
    questions, found = checked(tmp_path, snapshot)
    assert found == Coverage(6, 6, 4, 4, (), 6, ())
    assert coverage_warnings(found, questions, "INDEX") == []


def test_what_the_index_lacks_gold_first(snapshot: MemorySnapshot, tmp_path: Path) -> None:
    corpus = [{"_id": "new1", "text": "x"}, ROWS[0], {"_id": "new2", "text": "x"}]
    questions, found = checked(tmp_path, snapshot, corpus=corpus, qrels=["q1\tnew2\t1"])
    assert found == Coverage(3, 1, 1, 0, ("new2", "new1"), 1, (), others=5)
    warning, beside = coverage_warnings(found, questions, "/data/index")
    assert "has 5 documents that" in beside
    for words in ("lacks 2 of the 3 documents", "1 of the 1 gold ones", "new2, new1", "--to /data/index"):
        assert words in warning


def test_nothing_of_the_set(snapshot: MemorySnapshot, tmp_path: Path) -> None:
    corpus = [{"_id": f"other{i}", "text": "x"} for i in range(9)]
    questions, found = checked(tmp_path, snapshot, corpus=corpus, qrels=["q1\tother1\t1"])
    with pytest.raises(UsageError, match=r"none of the 9 documents .*\(other1, other0.* and 4 more\).*id_column=_id"):
        coverage_warnings(found, questions, "INDEX")


def test_equal_ids_of_another_corpus_are_refused(snapshot: MemorySnapshot, tmp_path: Path) -> None:
    corpus = [{"_id": key, "text": f"a text of its own about {key}"} for key in DOCUMENTS]
    questions, found = checked(tmp_path, snapshot, corpus=corpus)
    assert found.found == 6 and len(found.differ) == 6
    with pytest.raises(UsageError, match=r"same ids .* other texts \(d1, d2, d3, d4, d5 and 1 more\)"):
        coverage_warnings(found, questions, "INDEX")


def test_a_changed_document_is_told(snapshot: MemorySnapshot, tmp_path: Path) -> None:
    questions, found = checked(tmp_path, snapshot, corpus=[*ROWS[:5], {**ROWS[5], "text": "changed"}])
    (warning,) = coverage_warnings(found, questions, "INDEX")
    assert "1 of 6 documents compared have another text" in warning and "(d6)" in warning
