"""Whole evaluations over a small index in memory: the real engine, the real methods, the embedded rules."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.inprocess import MemorySnapshot
from corpusmill.errors import BudgetReachedError, UsageError
from corpusmill.evaluation.dataset import QuestionSet, load_questions
from corpusmill.evaluation.judge import DIMENSIONS, SCALES
from corpusmill.evaluation.plot import checked_plot, plot_recall
from corpusmill.evaluation.report import EvaluationResult, figure_names
from corpusmill.evaluation.run import Options, evaluate
from corpusmill.run import ProgressEvent
from corpusmill.settings import ModelSettings, ModelsSettings, QuerySettings, Settings
from tests.unit.evaluation.sets import DOCUMENTS, METHODS, QRELS, QUERIES, settings, small_index, write_set
from tests.unit.models.fake_endpoint import Answer, Call, chat, endpoint

SETTINGS = settings()
ALL = Options()


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> MemorySnapshot:
    return asyncio.run(small_index(tmp_path_factory.mktemp("index"), SETTINGS))


@pytest.fixture
def questions(tmp_path: Path) -> QuestionSet:
    return load_questions(write_set(tmp_path / "small"))


def run(
    snapshot: MemorySnapshot,
    questions: QuestionSet,
    options: Options = ALL,
    own: Settings = SETTINGS,
    events: list[ProgressEvent] | None = None,
) -> EvaluationResult:
    seen: list[ProgressEvent] = [] if events is None else events
    return asyncio.run(evaluate(snapshot, "memory", own, questions, options, seen.append))


@pytest.fixture(scope="module")
def result(snapshot: MemorySnapshot, tmp_path_factory: pytest.TempPathFactory) -> EvaluationResult:
    asked = load_questions(write_set(tmp_path_factory.mktemp("whole") / "small"))
    return run(snapshot, asked, Options(cuts=(3, 1)))


def value(result: EvaluationResult, system: str, figure: str) -> float:
    found = result.system(system).figures[figure]
    assert found is not None, (system, figure)
    return found.value


def test_every_method_of_the_index_is_measured(result: EvaluationResult) -> None:
    assert [system.name for system in result.systems] == list(METHODS)
    assert (result.dataset, result.questions, result.answered_questions) == ("small", 4, 4)
    assert result.cuts == (1, 3) and result.answer_model == "embedded rules" and result.judge is None
    for system in result.systems:
        assert list(system.figures) == list(figure_names((1, 3)))
        for name, figure in system.figures.items():
            assert figure is not None and figure.low is not None and figure.high is not None, name
            assert figure.low - 1e-9 <= figure.value <= figure.high + 1e-9, name


def test_words_find_their_documents_and_the_answers_are_scored(result: EvaluationResult) -> None:
    assert value(result, "bm25", "recall@1") == pytest.approx((1 + 0.5 + 1 + 1) / 4)
    assert value(result, "bm25", "all_gold@3") == 0.75, "no word of q2 stands in its second document"
    assert value(result, "bm25", "mrr") == 1
    assert value(result, "bm25", "contains") >= 0.5 and 0 < value(result, "bm25", "f1") < 1
    assert value(result, "flexstructrag", "all_gold@3") == 1
    assert 0 < value(result, "bm25", "context_tokens") <= SETTINGS.query.context_tokens


def test_activation_and_calls_tell_a_structure_from_a_baseline(result: EvaluationResult) -> None:
    assert value(result, "bm25", "activation") == 0 and not result.system("bm25").structured
    assert value(result, "flexstructrag", "activation") > 0 and result.system("flexstructrag").structured
    assert value(result, "bm25", "calls") == 1, "the answer"
    assert value(result, "flexstructrag", "calls") == 2, "the names of the question, and the answer"
    for name in METHODS:
        assert value(result, name, "seconds_p95") >= value(result, name, "seconds_p50") > 0
        assert value(result, name, "seconds_p50") >= value(result, name, "retrieval_seconds_p50")


def test_differences_are_to_the_baseline(result: EvaluationResult) -> None:
    assert result.baseline == "bm25" and result.system("bm25").differences is None
    for name in METHODS[1:]:
        differences = result.system(name).differences
        assert differences is not None
        for figure in ("recall@1", "ndcg@3", "f1", "calls"):
            found = differences[figure]
            assert found is not None
            assert found.value == pytest.approx(value(result, name, figure) - value(result, "bm25", figure))


def test_all_but_the_clock_repeats(snapshot: MemorySnapshot, questions: QuestionSet, result: EvaluationResult) -> None:
    again = run(snapshot, questions, Options(cuts=(3, 1)))
    for system in result.systems:
        other = again.system(system.name)
        for name in system.figures:
            if "seconds" not in name:
                assert (system.figures[name], (system.differences or {}).get(name)) == (
                    other.figures[name],
                    (other.differences or {}).get(name),
                )


def test_json_is_plain_and_its_keys_are_these(result: EvaluationResult) -> None:
    whole = json.loads(json.dumps(result.model_dump(mode="json"), allow_nan=False))
    assert list(whole) == [
        "dataset",
        "index",
        "snapshot",
        "questions",
        "answered_questions",
        "cuts",
        "baseline",
        "context_tokens",
        "embedder",
        "answer_model",
        "confidence",
        "resamples",
        "systems",
        "judge",
        "warnings",
    ]
    assert list(whole["systems"][0]) == [
        "name",
        "method",
        "mode",
        "failures",
        "structured",
        "figures",
        "differences",
    ]
    assert set(whole["systems"][0]["figures"]["mrr"]) == {"value", "low", "high"}


def test_retrieval_alone(snapshot: MemorySnapshot, questions: QuestionSet) -> None:
    events: list[ProgressEvent] = []
    options = Options(
        methods=("flexstructrag",), modes=("graph", "hybrid"), answers=False, baseline="flexstructrag/hybrid"
    )
    found = run(snapshot, questions, options, events=events)
    assert [(s.name, s.mode) for s in found.systems] == [
        ("flexstructrag/graph", "graph"),
        ("flexstructrag/hybrid", "hybrid"),
    ]
    assert found.baseline == "flexstructrag/hybrid" and found.answer_model is None
    figures = found.systems[0].figures
    assert figures["f1"] is None and figures["answered"] is None and figures["recall@5"] is not None
    assert value(found, "flexstructrag/graph", "calls") == 1
    assert [(event.done, event.total) for event in events] == [(i, 4) for i in range(1, 5)]


def test_a_method_without_the_mode_keeps_its_own(snapshot: MemorySnapshot, questions: QuestionSet) -> None:
    found = run(snapshot, questions.drawn(2, 0), Options(modes=("graph",), answers=False))
    assert {system.name: system.mode for system in found.systems}["flexstructrag"] == "graph"
    assert len(found.systems) == len(METHODS)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (Options(modes=("tree",)), "has the mode 'tree'; modes: .*flexstructrag: hypergraph, graph, hybrid"),
        (Options(methods=("none-such",)), "none-such"),
        (Options(methods=("dense-rerank",)), "has no method 'dense-rerank'; it has: .*flexstructrag"),
        (Options(baseline="contextrag"), "baseline 'contextrag' is not evaluated; choices: bm25, dense, flexstructrag"),
        (Options(judge=True), r"--judge needs a language model.*models\.answer\.model=NAME"),
        (Options(judge=True, answers=False), "drop --no-answers"),
    ],
)
def test_what_cannot_be_evaluated_is_said(
    snapshot: MemorySnapshot, questions: QuestionSet, options: Options, said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        run(snapshot, questions, options)


def test_a_set_without_answers(snapshot: MemorySnapshot, tmp_path: Path) -> None:
    queries = [{"_id": row["_id"], "text": row["text"]} for row in QUERIES]
    asked = load_questions(write_set(tmp_path, queries=queries))
    found = run(snapshot, asked, Options(methods=("bm25",)))
    assert found.answered_questions == 0 and found.answer_model is None and found.systems[0].figures["f1"] is None
    with pytest.raises(UsageError, match=r"has `answers`; drop --answers"):
        run(snapshot, asked, Options(answers=True))


def test_answer_figures_are_over_the_questions_with_answers(snapshot: MemorySnapshot, tmp_path: Path) -> None:
    queries = [QUERIES[0], {**QUERIES[2], "answers": []}]
    found = run(snapshot, load_questions(write_set(tmp_path, queries=queries)), Options(methods=("bm25",)))
    assert (found.questions, found.answered_questions) == (2, 1)
    f1 = found.systems[0].figures["f1"]
    assert f1 is not None and f1.value > 0 and f1.low is None, "one question tells nothing about the spread"


def test_an_index_of_other_documents_is_refused(snapshot: MemorySnapshot, tmp_path: Path) -> None:
    corpus = [{"_id": f"other{i}", "text": "x"} for i in range(9)]
    asked = load_questions(write_set(tmp_path, corpus=corpus, qrels=["q1\tother1\t1"]))
    with pytest.raises(
        UsageError, match=r"none of the 9 documents .*other1, other0.* and 4 more.*--set source\.id_column=_id"
    ):
        run(snapshot, asked)


def test_an_index_of_some_documents_is_warned_of(tmp_path: Path, questions: QuestionSet) -> None:
    part = {key: DOCUMENTS[key] for key in ("d1", "d4")}
    own = settings(["bm25"])
    found = run(asyncio.run(small_index(tmp_path / "index", own, part)), questions, Options(answers=False), own)
    warning = found.warnings[0]
    assert "lacks 4 of the 6 documents" in warning and "2 of the 4 gold ones" in warning and "d2, d5, d3, d6" in warning
    assert value(found, "bm25", "recall@5") == pytest.approx((1 + 0.5 + 1 + 0) / 4)


def test_more_passages_are_asked_for_where_a_cut_is_deeper(snapshot: MemorySnapshot, questions: QuestionSet) -> None:
    shallow = SETTINGS.model_copy(update={"query": QuerySettings(passages=1)})
    found = run(snapshot, questions, Options(methods=("flexstructrag",), cuts=(4,), answers=False), shallow)
    assert found.warnings == ("raised to 4, to measure so deep: query.passages from 1",)
    assert value(found, "flexstructrag", "all_gold@4") == 1


def test_rankings_that_end_before_the_cut_are_told(snapshot: MemorySnapshot, questions: QuestionSet) -> None:
    found = run(snapshot, questions, Options(methods=("bm25",), cuts=(5, 50), answers=False))
    warning = found.warnings[-1]
    assert warning.startswith("bm25 ranked fewer than 50 documents for 4 questions")
    assert "figures at 50 are bounded" in warning
    assert "raised to 50" in found.warnings[0] and "methods.bm25.passages from 12" in found.warnings[0]


def test_a_question_of_a_hundred_thousand_characters(snapshot: MemorySnapshot, tmp_path: Path) -> None:
    long = "Tell me all about it. " * 5_000 + "In which city was Steve Jobs born?"
    asked = load_questions(write_set(tmp_path, queries=[{**QUERIES[0], "text": long}, QUERIES[2]]))
    found = run(snapshot, asked)
    for name in METHODS:
        assert found.system(name).failures == 0 and value(found, name, "recall@5") > 0


def scripted(call: Call) -> Answer:
    """Answers from the evidence that names Jobs, and judges every pair a tie. One question it never answers well."""
    system, user = (message["content"] for message in call.body["messages"][:2])
    if "compare two answers" in system:
        return chat(json.dumps({"reason": "r", **dict.fromkeys(DIMENSIONS, "tie")}))
    if "rate one answer" in system:
        return chat(json.dumps({"reason": "r", **dict.fromkeys(SCALES, 6)}))
    if "Marie Curie" in user.split("<question>")[1]:
        return chat("no JSON at all")
    quote = "Steve Jobs was born in San Francisco."
    number = user.split(quote)[0].count("<evidence number=") if quote in user else 0
    sentence = {"text": "San Francisco", "citations": [{"evidence": number, "quote": quote}]}
    return chat(json.dumps({"answerable": bool(number), "sentences": [sentence] if number else []}))


def with_model(url: str, **changes: object) -> Settings:
    own = ModelSettings(backend="openai", model="small", base_url=url, timeout_s=10, retries=0)
    return SETTINGS.model_copy(
        update={"models": ModelsSettings(answer=own), "run": SETTINGS.run.model_copy(update=changes)}
    )


def test_a_model_answers_fails_and_judges(snapshot: MemorySnapshot, questions: QuestionSet) -> None:
    options = Options(methods=("bm25", "dense"), judge=True, judge_model="large")
    events: list[ProgressEvent] = []
    with endpoint(scripted) as server:
        found = run(snapshot, questions, options, with_model(server.url), events)
    bm25 = found.system("bm25")
    assert value(found, "bm25", "exact_match") == 0.25, "the answer without its mark is the gold answer"
    assert bm25.failures == 1
    failed = next(warning for warning in found.warnings if warning.startswith("bm25: 1 question failed"))
    assert "stayed invalid" in failed
    assert value(found, "bm25", "calls") == pytest.approx((1 + 1 + 2 + 1) / 4), "a repair is a call"
    assert found.answer_model == "small" and found.judge is not None and found.judge.model == "large"
    assert [rating.system for rating in found.judge.ratings] == ["bm25", "dense"]
    assert all(scale.value == 6 for rating in found.judge.ratings for scale in rating.scales.values())
    (pair,) = found.judge.pairs
    assert all(contest.ties == 4 for contest in pair.dimensions.values())
    judging = [call for call in server.calls if call.body["model"] == "large"]
    assert found.judge.calls == len(judging) == 8 + 2 * (4 - pair.equal)
    assert [event.stage for event in events][-1] == "judge" and events[-1].done == events[-1].total == 12


def test_one_budget_bounds_answers_and_judge(snapshot: MemorySnapshot, questions: QuestionSet) -> None:
    with endpoint(scripted) as server, pytest.raises(BudgetReachedError):
        run(snapshot, questions, Options(methods=("bm25",), judge=True), with_model(server.url, max_calls=6))
    assert len(server.calls) <= 6


def test_the_plot_is_written_and_repeats(result: EvaluationResult, tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg", "c.png"):
        plot_recall(result, checked_plot(tmp_path / name))
    text = (tmp_path / "a.svg").read_text("utf-8")
    assert text == (tmp_path / "b.svg").read_text("utf-8") and (tmp_path / "c.png").read_bytes()[1:4] == b"PNG"
    for word in (*METHODS, "first 1", "first 3", "recall", "small: 4 questions"):
        assert word in text


@pytest.mark.parametrize(
    ("name", "said"), [("plot.xyz", r"\.svg, \.png, \.pdf"), ("none/plot.svg", "there is no folder")]
)
def test_a_plot_that_cannot_be_written_is_refused_beforehand(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        checked_plot(tmp_path / name)


def test_a_question_asked_alone_shows_no_spread(snapshot: MemorySnapshot, questions: QuestionSet) -> None:
    one = replace(questions, questions=questions.questions[:1])
    found = run(snapshot, one, Options(answers=False))
    assert all(s.figures["mrr"] is not None and s.figures["mrr"].low is None for s in found.systems)


def test_qrels_of_unknown_ids_become_warnings_of_the_result(snapshot: MemorySnapshot, tmp_path: Path) -> None:
    asked = load_questions(write_set(tmp_path, qrels=[*QRELS, "q1\tnowhere\t1"]))
    found = run(snapshot, asked, Options(methods=("bm25",), answers=False))
    assert "nowhere" in found.warnings[0] and value(found, "bm25", "recall@5") == 1
