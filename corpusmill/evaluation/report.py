"""The result of an evaluation: figures with intervals by system, and their differences to a baseline."""

from collections.abc import Mapping, Sequence

import numpy as np

from corpusmill.evaluation.answers import AnswerScores, score_answer
from corpusmill.evaluation.asking import Asked, System
from corpusmill.evaluation.bootstrap import CONFIDENCE, RESAMPLES, Figure, Statistic, difference, figure, mean, quantile
from corpusmill.evaluation.dataset import Question
from corpusmill.evaluation.judging import Judgement
from corpusmill.evaluation.ranking import ranking_metrics
from corpusmill.frozen import Frozen

ANSWER_FIGURES = ("exact_match", "f1", "rouge_l", "contains")
DEFAULT_BASELINE = "dense-rerank"
_MEDIAN, _SLOW = quantile(0.5), quantile(0.95)
# what is taken of a column of values by question; every other figure is a mean
_STATISTICS: Mapping[str, tuple[str, Statistic]] = {
    "seconds_p50": ("seconds", _MEDIAN),
    "seconds_p95": ("seconds", _SLOW),
    "retrieval_seconds_p50": ("retrieval_seconds", _MEDIAN),
    "retrieval_seconds_p95": ("retrieval_seconds", _SLOW),
}


class SystemResult(Frozen):
    """`figures` by name; None: not measured here. `differences` to the baseline, paired by question; the baseline's own
    are None. `failures` counts questions on which a model's output stayed invalid."""

    name: str
    method: str
    mode: str
    failures: int
    structured: bool  # units of a structure came back for some question
    figures: dict[str, Figure | None]
    differences: dict[str, Figure | None] | None


class EvaluationResult(Frozen):
    """What `evaluate --json` prints; scripts rely on these keys."""

    dataset: str
    index: str
    snapshot: int
    questions: int
    answered_questions: int  # those with a gold answer, over which the answer figures are taken
    cuts: tuple[int, ...]
    baseline: str
    context_tokens: int
    embedder: str
    answer_model: str | None  # None: no answers were made
    confidence: float = CONFIDENCE
    resamples: int = RESAMPLES
    systems: tuple[SystemResult, ...]
    judge: Judgement | None
    warnings: tuple[str, ...]

    def system(self, name: str) -> SystemResult:
        return next(system for system in self.systems if system.name == name)


def figure_names(cuts: Sequence[int]) -> tuple[str, ...]:
    """All figures, in the order of reading."""
    ranked = [name for k in cuts for name in (f"recall@{k}", f"all_gold@{k}", f"ndcg@{k}")]
    return (*ranked, "mrr", *ANSWER_FIGURES, "answered", "activation", "context_tokens", "calls", *_STATISTICS)


def baseline_of(systems: Sequence[System], wanted: str | None) -> str:
    """The baseline's name: the wanted system, else `dense-rerank` where it is there, else the first.

    Raises KeyError where the wanted one is not among the systems.
    """
    names = [system.name for system in systems]
    if wanted is not None:
        return names[names.index(wanted)] if wanted in names else _only(systems, wanted)
    return next((s.name for s in systems if s.method == DEFAULT_BASELINE), names[0])


def _only(systems: Sequence[System], method: str) -> str:
    own = [system.name for system in systems if system.method == method]
    if len(own) != 1:
        raise KeyError(method)
    return own[0]


def results(
    questions: Sequence[Question],
    systems: Sequence[System],
    asked: Mapping[str, Sequence[Asked]],
    baseline: str,
    cuts: Sequence[int],
    *,
    answers: bool,
    seed: int = 0,
) -> tuple[SystemResult, ...]:
    """Figures of every system; `asked[name][i]` is what the system made of question i."""
    columns = {system.name: _columns(questions, asked[system.name], cuts, answers) for system in systems}
    return tuple(
        SystemResult(
            name=system.name,
            method=system.method,
            mode=system.mode,
            failures=sum(one.failure is not None for one in asked[system.name]),
            structured=any(one.units for one in asked[system.name]),
            figures={name: _figure(columns[system.name], name, seed) for name in figure_names(cuts)},
            differences=None
            if system.name == baseline
            else {
                name: _difference(columns[system.name], columns[baseline], name, seed) for name in figure_names(cuts)
            },
        )
        for system in systems
    )


def _columns(
    questions: Sequence[Question], asked: Sequence[Asked], cuts: Sequence[int], answers: bool
) -> dict[str, np.ndarray]:
    """float by question and column; answer columns are over the questions that have a gold answer."""
    columns = dict(ranking_metrics(questions, [one.ranking for one in asked], cuts))
    for name in ("context_tokens", "calls", "seconds", "retrieval_seconds"):
        columns[name] = np.array([getattr(one, name) for one in asked], dtype=float)
    columns["activation"] = np.array([one.active for one in asked], dtype=float)
    if answers:
        columns["answered"] = np.array([one.answered for one in asked], dtype=float)
        scores = [_scores(q, one) for q, one in zip(questions, asked, strict=True) if q.answers]
        for name in ANSWER_FIGURES:
            columns[name] = np.array([getattr(score, name) for score in scores], dtype=float)
    return columns


def _scores(question: Question, asked: Asked) -> AnswerScores:
    """That there is no answer is no answer, whatever words say so."""
    return score_answer(asked.answer if asked.answered else "", question.answers)


def _figure(columns: Mapping[str, np.ndarray], name: str, seed: int) -> Figure | None:
    column, statistic = _STATISTICS.get(name, (name, mean))
    values = columns.get(column)
    return None if values is None or not len(values) else figure(values, statistic, seed)


def _difference(
    ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray], name: str, seed: int
) -> Figure | None:
    column, statistic = _STATISTICS.get(name, (name, mean))
    if column not in ours or not len(ours[column]):
        return None
    return difference(ours[column], theirs[column], statistic, seed)
