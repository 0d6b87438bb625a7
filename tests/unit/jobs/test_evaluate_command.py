"""`corpusmill evaluate` on the command line: what it refuses, and how it shows a result."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from corpusmill_jobs import cli
from corpusmill_jobs.commands.evaluate import show
from rich.console import Console
from typer.testing import CliRunner, Result

from corpusmill.evaluation import run as evaluation
from corpusmill.evaluation.asking import Asked, System
from corpusmill.evaluation.bootstrap import figure
from corpusmill.evaluation.dataset import Question
from corpusmill.evaluation.judge import DIMENSIONS, SCALES
from corpusmill.evaluation.judging import Contest, Judgement, PairResult, RatingResult
from corpusmill.evaluation.report import EvaluationResult, results
from tests.report_index import report_index
from tests.unit.evaluation.sets import QUERIES, write_set

QUESTIONS = [Question(f"q{i}", "?", {f"d{i}": 1}, ("yes",)) for i in range(4)]
SYSTEMS = [System("dense-rerank", "dense-rerank", "default"), System("flexstructrag", "flexstructrag", "hybrid")]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, ["evaluate", *arguments])


def result(judge: bool = False) -> EvaluationResult:
    def asked(found: int, active: bool) -> list[Asked]:
        return [
            Asked((f"d{i}",) if i < found else ("x",), "yes", True, 1234, 2, 0.5, 0.25, active, active)
            for i in range(4)
        ]

    points = figure(np.array([5.0, 7.0]))
    contest = Contest(wins=2, losses=1, ties=0, inconsistent=1, score=points)
    judgement = Judgement(
        model="judge-7b",
        ratings=tuple(
            RatingResult(system=s.name, questions=4, failures=1, scales=dict.fromkeys((*SCALES, "overall"), points))
            for s in SYSTEMS
        ),
        pairs=(
            PairResult(
                system="flexstructrag",
                baseline="dense-rerank",
                questions=4,
                equal=0,
                failures=0,
                dimensions=dict.fromkeys(DIMENSIONS, contest),
            ),
        ),
        calls=16,
        cost=0.0,
    )
    made = {"dense-rerank": asked(1, False), "flexstructrag": asked(4, True)}
    return EvaluationResult(
        dataset="small",
        index="/data/index",
        snapshot=3,
        questions=4,
        answered_questions=4,
        cuts=(5,),
        baseline="dense-rerank",
        context_tokens=4000,
        embedder="minilm",
        answer_model="answerer",
        systems=results(QUESTIONS, SYSTEMS, made, "dense-rerank", (5,), answers=True),
        judge=judgement if judge else None,
        warnings=("qrels.tsv names 1 documents that are not there",),
    )


def shown(value: EvaluationResult, **console: object) -> str:
    screen = Console(file=io.StringIO(), markup=False, highlight=False, **console)  # type: ignore[arg-type]
    show(value, screen)
    return screen.file.getvalue()  # type: ignore[attr-defined]


def test_the_tables_in_a_file() -> None:
    lines = shown(result(), soft_wrap=True).splitlines()
    assert lines[0] == "small: 4 questions, 4 with answers, answered by answerer; /data/index, snapshot 3"
    recall = [line for line in lines if line.strip().startswith("recall@5")]
    assert len(recall) == 2 and "+0.750* [+0.250 +1.000]" in recall[1]
    assert "0.250 [0.000 0.750]" in recall[0] and "1.000 [1.000 1.000]" in recall[0]
    activation = next(line for line in lines if "activation@5" in line)
    assert activation.split() == ["activation@5", "–", "1.000", "[1.000", "1.000]"]
    assert any("less dense-rerank" in line for line in lines)
    assert lines[-1] == "warning: qrels.tsv names 1 documents that are not there"
    assert any("1,234 [1,234 1,234]" in line for line in lines)


def test_the_tables_fit_a_terminal() -> None:
    text = shown(result(judge=True), width=80, force_terminal=True, color_system=None)
    assert max(map(len, text.splitlines())) <= 80
    for word in ("recall@5", "token F1", "seconds, median"):
        assert word in text


def test_the_judge_has_its_tables() -> None:
    text = shown(result(judge=True), soft_wrap=True)
    for word in (
        "judged by judge-7b",
        "anticipatory coverage",
        "flexstructrag beside dense-rerank",
        "logical coherence",
    ):
        assert word in text
    row = next(line for line in text.splitlines() if line.strip().startswith("factuality"))
    assert row.split()[1:5] == ["2", "1", "0", "1"]
    assert "judge: 16 calls, 2 questions without a valid verdict" in text


def test_without_an_index_the_two_commands_are_said(tmp_path: Path) -> None:
    done = run(str(write_set(tmp_path / "set")))
    assert done.exit_code == 2 and done.stdout == ""
    assert f"corpusmill index {tmp_path / 'set' / 'corpus.jsonl'} --to INDEX --set source.id_column=_id" in done.stderr
    assert f"corpusmill evaluate {tmp_path / 'set'} --index INDEX" in done.stderr


def test_what_is_refused_before_a_question_is_asked(tmp_path: Path) -> None:
    index = str(tmp_path / "index")
    report_index(Path(index))
    folder = str(write_set(tmp_path / "set"))
    broken = str(write_set(tmp_path / "broken", queries=[QUERIES[0], "{"]))
    for arguments, words in (
        ([str(tmp_path / "nowhere"), "--index", index], ["nowhere", "queries.jsonl"]),
        ([broken, "--index", index], ["queries.jsonl:2", "not a line of JSON"]),
        ([folder, "--index", str(tmp_path / "gone")], [str(tmp_path / "gone")]),
        ([folder, "--index", index], ["none of the 6 documents", "source.id_column=_id"]),
        ([folder, "--index", index, "--judge"], ["--judge needs a language model", "models.answer.backend=openai"]),
        ([folder, "--index", index, "--judge-model", "x"], ["add --judge"]),
        ([folder, "--index", index, "--plot", "plot.bmp"], ["plot.bmp", ".svg"]),
        ([folder, "--index", index, "--set", "query.depth=3"], ["query.depth"]),
        ([folder, "--index", index, "--k", "0"], ["--k"]),
    ):
        done = run(*arguments)
        assert done.exit_code == 2, (arguments, done.stdout, done.stderr)
        for word in words:
            assert word in " ".join(done.stderr.split()), (arguments, done.stderr)


def test_the_metric_libraries_are_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "LIBRARIES", {"no_such_module": "no-such-package"})
    done = run(str(write_set(tmp_path)))
    assert (
        done.exit_code == 2 and "no-such-package; install them with: pip install 'corpusmill[evaluate]'" in done.stderr
    )


def test_json_and_plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def made(*_: object) -> EvaluationResult:
        return result(judge=True)

    monkeypatch.setattr(evaluation, "evaluate", made)
    report_index(tmp_path / "index")
    folder = str(write_set(tmp_path / "set"))
    plot = tmp_path / "recall.svg"
    done = run(folder, "--index", str(tmp_path / "index"), "--json", "--plot", str(plot), "--limit", "2")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout) == json.loads(result(judge=True).model_dump_json())
    assert "<svg" in plot.read_text("utf-8")
