from pathlib import Path

import pytest

from corpusmill.errors import UsageError
from corpusmill.evaluation.dataset import load_questions
from tests.shared import shared_data
from tests.unit.evaluation.sets import QRELS, QUERIES, write_set


def test_questions_with_their_gold_and_answers(tmp_path: Path) -> None:
    found = load_questions(write_set(tmp_path / "capitals"))
    assert (found.name, found.answered, found.warnings) == ("capitals", 4, ())
    assert [question.id for question in found.questions] == ["q1", "q2", "q3", "q4"]
    assert found.questions[1].gold == {"d1", "d2"}
    assert found.questions[2].answers == ("Poland", "the country of Poland")


def test_a_heading_or_none_and_the_folder_of_judgements(tmp_path: Path) -> None:
    plain = load_questions(write_set(tmp_path / "a", qrels=QRELS[1:]))
    nested = load_questions(write_set(tmp_path / "b", qrels_name="qrels/test.tsv"))
    assert [q.grades for q in plain.questions] == [q.grades for q in nested.questions]


def test_grades_of_zero_are_judged_but_not_gold(tmp_path: Path) -> None:
    found = load_questions(write_set(tmp_path, qrels=["q1\td1\t2", "q1\td3\t0", "q2\td2\t0"]))
    (question,) = found.questions
    assert dict(question.grades) == {"d1": 2, "d3": 0} and question.gold == {"d1"}
    assert found.warnings == ("3 questions without a gold document (q2, q3, q4): not asked",)


def test_unknown_ids_are_left_out_and_named(tmp_path: Path) -> None:
    found = load_questions(write_set(tmp_path, qrels=[*QRELS, "q1\tnowhere\t1", "q9\td1\t1", "q3\td77\t1"]))
    assert found.questions[0].gold == {"d1"} and found.questions[2].gold == {"d4"}
    strange, lost = found.warnings
    assert "1 question " in strange and "(q9)" in strange and "qrels.tsv" in strange
    assert "2 documents" in lost and "(d77, nowhere)" in lost and "corpus.jsonl" in lost


def test_only_unknown_ids_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no question .* has a gold document .*nowhere"):
        load_questions(write_set(tmp_path, qrels=["q1\tnowhere\t1"]))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"queries": []}, r"queries\.jsonl holds no question"),
        ({"queries": [QUERIES[0], "{broken"]}, r"queries\.jsonl:2: not a line of JSON"),
        ({"queries": [QUERIES[0], '["q1"]']}, r"queries\.jsonl:2: not a JSON object"),
        ({"queries": [{"text": "who?"}]}, r"queries\.jsonl:1: no id in `_id`; columns: text"),
        ({"queries": [{"_id": "q1", "text": " "}]}, r"queries\.jsonl:1: question q1 has no text"),
        ({"queries": [QUERIES[0], QUERIES[0]]}, r"queries\.jsonl:2: a second question has the id 'q1'"),
        ({"queries": [{"_id": "q1", "text": "x", "answers": [3]}]}, r"queries\.jsonl:1: `answers` must be a list"),
        ({"corpus": [{"_id": "d1", "text": "x"}, "nonsense"]}, r"corpus\.jsonl:2: not a line of JSON"),
        ({"qrels": [*QRELS, "q1 d1 1"]}, r"qrels\.tsv:7: expected query id, document id and grade"),
        ({"qrels": [*QRELS, "q1\td1\thigh"]}, r"qrels\.tsv:7: the grade 'high' is not a whole number"),
        ({"qrels": [*QRELS, "q1\td1\t0"]}, r"qrels\.tsv:7: q1 and d1 are judged 1 before and 0 here"),
    ],
)
def test_a_fault_names_file_and_line(tmp_path: Path, change: dict[str, list[object]], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        load_questions(write_set(tmp_path, **change))  # type: ignore[arg-type]


def test_bytes_that_are_not_utf8_name_their_line(tmp_path: Path) -> None:
    folder = write_set(tmp_path)
    with (folder / "queries.jsonl").open("ab") as file:
        file.write(b'{"_id": "q9", "text": "caf\xe9"}\n')
    with pytest.raises(UsageError, match=r"queries\.jsonl:5: not UTF-8"):
        load_questions(folder)


def test_what_a_folder_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a folder"):
        load_questions(tmp_path / "nowhere")
    folder = write_set(tmp_path / "set", qrels_name="qrels/dev.tsv")
    with pytest.raises(UsageError, match=r"neither qrels\.tsv nor qrels/test\.tsv; it has qrels/dev\.tsv"):
        load_questions(folder)
    (folder / "queries.jsonl").unlink()
    with pytest.raises(UsageError, match=r"has no queries\.jsonl"):
        load_questions(folder)


def test_a_draw_is_seeded_and_keeps_the_order(tmp_path: Path) -> None:
    found = load_questions(write_set(tmp_path))
    drawn = [[q.id for q in found.drawn(2, seed).questions] for seed in (1, 1, 2, 3, 4, 5)]
    assert drawn[0] == drawn[1] and len({tuple(ids) for ids in drawn}) > 1
    assert all(ids == sorted(ids) and len(ids) == 2 for ids in drawn)
    assert found.drawn(99, 0) is found


@pytest.mark.parametrize(
    ("name", "questions", "answered", "links"),
    [("musique_train100", 100, 100, 237), ("2wiki101", 101, 0, 248), ("xquad_zh", 1190, 1190, 1190)],
)
def test_the_shared_sets(name: str, questions: int, answered: int, links: int) -> None:
    found = load_questions(shared_data(name))
    assert (len(found.questions), found.answered, found.warnings) == (questions, answered, ())
    assert sum(len(question.gold) for question in found.questions) == links
