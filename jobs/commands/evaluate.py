"""`corpusmill evaluate`: methods of an index against a question set. Starts no engine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from corpusmill.errors import UsageError

from .common import ConfigOption, JsonOption, SetOption, SnapshotOption, emit, load, messages, number, out

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console
    from rich.table import Table

    from corpusmill.evaluation.bootstrap import Figure
    from corpusmill.evaluation.dataset import QuestionSet
    from corpusmill.evaluation.judging import Judgement
    from corpusmill.evaluation.report import EvaluationResult, SystemResult
    from corpusmill.evaluation.run import Options

LABELS = {
    "mrr": "MRR",
    "exact_match": "exact match",
    "f1": "token F1",
    "rouge_l": "ROUGE-L",
    "contains": "answer contains gold",
    "answered": "questions answered",
    "activation": "activation@5",
    "context_tokens": "tokens of context",
    "calls": "model calls",
    "seconds_p50": "seconds, median",
    "seconds_p95": "seconds, 95th percentile",
    "retrieval_seconds_p50": "retrieval seconds, median",
    "retrieval_seconds_p95": "retrieval seconds, 95th p.",
}
COLUMN, FIRST_COLUMN = 26, 28  # characters of a table that no terminal bounds


def command(
    dataset: Annotated[
        Path, typer.Argument(metavar="DATASET", help="A folder with corpus.jsonl, queries.jsonl and qrels.tsv.")
    ],
    index: Annotated[
        str | None, typer.Option("--index", metavar="INDEX", help="An index of DATASET/corpus.jsonl.")
    ] = None,
    method: Annotated[
        list[str] | None, typer.Option("--method", "-m", help="Of the index; repeatable (default: all).")
    ] = None,
    mode: Annotated[
        list[str] | None,
        typer.Option("--mode", help="For the methods that have it, in place of their default; repeatable."),
    ] = None,
    k: Annotated[list[int] | None, typer.Option("--k", min=1, help="Documents looked at; repeatable. [5]")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Ask so many, drawn with run.seed.")] = None,
    answers: Annotated[
        bool | None,
        typer.Option("--answers/--no-answers", help="Also answer each question (default: if the set has answers)."),
    ] = None,
    judge: Annotated[
        bool, typer.Option("--judge", help="Have the model of models.answer rate the answers, and compare them.")
    ] = False,
    judge_model: Annotated[
        str | None, typer.Option("--judge-model", help="Another model of that endpoint as the judge.")
    ] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", help="What others are compared with [dense-rerank, else the first].")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Recall with intervals, as .svg, .png or .pdf.")
    ] = None,
    snapshot: SnapshotOption = None,
    config: ConfigOption = None,
    assignments: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Measure the methods of an index on a question set: recall, answers, cost, time, with 95 % intervals."""
    from corpusmill.evaluation.dataset import load_questions
    from corpusmill.evaluation.plot import checked_plot, plot_recall
    from corpusmill.evaluation.run import Options, require_libraries

    require_libraries()
    questions = load_questions(dataset)
    if index is None:
        raise UsageError(_two_commands(dataset))
    if judge_model is not None and not judge:
        raise UsageError("--judge-model says who judges, and nobody does: add --judge")
    options = Options(tuple(method or ()), tuple(mode or ()), tuple(k or (5,)), answers, judge, judge_model, baseline)
    if plot is not None:
        checked_plot(plot)
    result = _evaluate(index, questions, options, limit, snapshot, config, assignments)
    if plot is not None:
        plot_recall(result, plot)
    if json:
        emit(result.model_dump(mode="json"))
        return
    show(result, out())


def _two_commands(dataset: Path) -> str:
    return (
        "evaluate needs an index of the set; make one, then name it:\n"
        f"  corpusmill index {dataset / 'corpus.jsonl'} --to INDEX --set source.id_column=_id\n"
        f"  corpusmill evaluate {dataset} --index INDEX"
    )


def _evaluate(
    index: str,
    questions: "QuestionSet",
    options: "Options",
    limit: int | None,
    snapshot: int | None,
    config: str | None,
    assignments: list[str] | None,
) -> "EvaluationResult":
    import asyncio

    from corpusmill.evaluation.run import evaluate
    from corpusmill.store import commit
    from corpusmill.store.objects import open_store
    from corpusmill.store.view import SnapshotView

    from .progress import display

    store = open_store(index, load(config, assignments).settings.store)
    manifest = commit.open_index(store, snapshot)
    settings = load(config, assignments, manifest=manifest).settings
    if limit is not None:
        questions = questions.drawn(limit, settings.run.seed)
    with display(messages()) as progress:
        return asyncio.run(evaluate(SnapshotView(store, manifest), index, settings, questions, options, progress))


def show(result: "EvaluationResult", console: "Console") -> None:
    """The tables, and below them what to know about them."""
    asked = f"{number(result.questions)} questions"
    if result.answer_model is not None:
        asked += f", {number(result.answered_questions)} with answers, answered by {result.answer_model}"
    console.print(f"{result.dataset}: {asked}; {result.index}, snapshot {result.snapshot}", style="bold")
    _print(_figures(result, result.systems, "figures", console), console)
    others = [system for system in result.systems if system.differences is not None]
    if others:
        title = f"less {result.baseline}; * where 0 is outside the interval"
        _print(_figures(result, others, "differences", console, title), console)
    if result.judge is not None:
        _show_judge(result.judge, console)
    console.print(
        f"Intervals: {result.confidence:.0%}, {number(result.resamples)} paired bootstrap resamples of the questions. "
        f"All share chunks, the embedder {result.embedder}, and {number(result.context_tokens)} tokens of context.",
        style="dim",
    )
    for warning in result.warnings:
        console.print(f"warning: {warning}", style="yellow")


def _print(table: "Table", console: "Console") -> None:
    """A terminal bounds the rows; a file takes them whole."""
    if not console.is_terminal:
        console.width = max(console.width, _width(len(table.columns) - 1))
    console.print(table)


def _width(columns: int) -> int:
    """What a table of so many columns of figures takes."""
    return FIRST_COLUMN + COLUMN * columns


def _figures(
    result: "EvaluationResult", systems: "Sequence[SystemResult]", which: str, console: "Console", title: str = ""
) -> "Table":
    from corpusmill.evaluation.report import figure_names

    table = _table(title, [system.name for system in systems])
    narrow = console.is_terminal and console.width < _width(len(systems))
    signed = which == "differences"
    for name in figure_names(result.cuts):
        found = [getattr(system, which)[name] for system in systems]
        if name == "activation":
            found = [
                one if system.structured and not signed else None for one, system in zip(found, systems, strict=True)
            ]
        if name.startswith("retrieval_") and result.answer_model is None:
            continue  # retrieval is all that was timed
        if any(one is not None for one in found):
            table.add_row(LABELS.get(name, name.replace("_", " ")), *(_cell(one, signed, narrow) for one in found))
    return table


def _table(title: str, columns: "Sequence[str]") -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", title_style="", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for name in columns:
        table.add_column(name, justify="right", no_wrap=False)
    return table


def _cell(figure: "Figure | None", signed: bool = False, narrow: bool = False) -> str:
    """`0.612 [0.560 0.661]`, on two lines where it is narrow; a difference with its sign, and a star where its interval
    leaves 0 out."""
    if figure is None:
        return "–"
    star = "*" if signed and figure.excludes_zero else " " if signed else ""
    value = f"{_plain(figure.value, signed)}{star}"
    if figure.low is None or figure.high is None:
        return value
    return f"{value}{chr(10) if narrow else ' '}[{_plain(figure.low, signed)} {_plain(figure.high, signed)}]"


def _plain(value: float, signed: bool) -> str:
    sign = "+" if signed else ""
    return f"{value:{sign},.0f}" if abs(value) >= 100 else f"{round(value, 3) + 0.0:{sign}.3f}"  # no minus zero


def _show_judge(judge: "Judgement", console: "Console") -> None:
    table = _table(f"judged by {judge.model}, 0 to 10", [rating.system for rating in judge.ratings])
    narrow = console.is_terminal and console.width < _width(len(judge.ratings))
    for scale in dict.fromkeys(scale for rating in judge.ratings for scale in rating.scales):
        cells = (_cell(rating.scales.get(scale), narrow=narrow) for rating in judge.ratings)
        table.add_row(scale.replace("_", " "), *cells)
    _print(table, console)
    for pair in judge.pairs:
        table = _table(
            f"{pair.system} beside {pair.baseline}, {number(pair.questions)} questions in both orders",
            ["wins", "losses", "ties", "inconsistent", "score"],
        )
        for name, contest in pair.dimensions.items():
            counts = (contest.wins, contest.losses, contest.ties, contest.inconsistent)
            table.add_row(name.replace("_", " "), *map(number, counts), _cell(contest.score))
        _print(table, console)
    failures = sum(one.failures for one in judge.ratings) + sum(one.failures for one in judge.pairs)
    console.print(
        f"judge: {number(judge.calls)} calls, {number(failures)} questions without a valid verdict", style="dim"
    )
