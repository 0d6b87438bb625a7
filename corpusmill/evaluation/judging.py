"""Answers before a judge: each rated by itself, and each system's beside the baseline's, in both orders.

A judge that prefers a place to an answer shows in the two orders: a dimension is won only where both name the same
answer, is a tie where both say so, and counts as inconsistent otherwise.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from pydantic import BaseModel

from corpusmill.errors import ModelOutputError, UsageError
from corpusmill.evaluation.asking import Asked, System
from corpusmill.evaluation.bootstrap import Figure, figure
from corpusmill.evaluation.dataset import Question
from corpusmill.evaluation.judge import (
    DIMENSIONS,
    JUDGE_PAIR,
    JUDGE_RATING,
    SCALES,
    PairInput,
    PairVerdict,
    Rating,
    RatingInput,
)
from corpusmill.frozen import Frozen
from corpusmill.methods.common.ordered import ordered_map
from corpusmill.models.contracts import LanguageModel, Task
from corpusmill.retrieval.answering import UNANSWERABLE
from corpusmill.settings import ModelSettings, Settings

Outcome = Literal["win", "loss", "tie", "inconsistent"]
_WORTH: Mapping[Outcome, float] = {"win": 1.0, "loss": 0.0, "tie": 0.5, "inconsistent": 0.5}
InputT = TypeVar("InputT", bound=BaseModel)
OutputT = TypeVar("OutputT", bound=BaseModel)


class Contest(Frozen):
    """One dimension over all judged questions, seen from the system. `score`: 1 a win, 0 a loss, 0.5 otherwise."""

    wins: int
    losses: int
    ties: int
    inconsistent: int
    score: Figure


class PairResult(Frozen):
    """A system beside the baseline. `equal` of the `questions` had one answer from both: a tie without a judge."""

    system: str
    baseline: str
    questions: int
    equal: int
    failures: int  # questions left out: a verdict stayed invalid
    dimensions: dict[str, Contest]


class RatingResult(Frozen):
    """Mean points of a system on each scale, and over all ten (`overall`)."""

    system: str
    questions: int
    failures: int
    scales: dict[str, Figure]


class Judgement(Frozen):
    model: str
    ratings: tuple[RatingResult, ...]
    pairs: tuple[PairResult, ...]
    calls: int
    cost: float


def judge_settings(settings: Settings, model: str | None = None) -> ModelSettings:
    """The judge: the model of the role `answer`, or another one of its endpoint.

    Raises UsageError where that role is served by the embedded rules.
    """
    own = settings.models.of("answer")
    if own.backend == "embedded":
        raise UsageError(
            "--judge needs a language model, and the role `answer` is served by embedded rules, which cannot judge; "
            "set one, for instance: --set models.answer.backend=openai --set models.answer.model=NAME "
            "--set models.answer.base_url=URL (or models.default.* for every role)"
        )
    return own if model is None else own.model_copy(update={"model": model})


@dataclass(frozen=True)
class Judge:
    """`told(done, total)` after each call or pair of calls."""

    model: LanguageModel
    told: Callable[[int, int], None]
    in_flight: int = 16
    seed: int = 0

    async def judge(
        self, questions: Sequence[Question], systems: Sequence[System], asked: Mapping[str, Sequence[Asked]], base: str
    ) -> tuple[tuple[RatingResult, ...], tuple[PairResult, ...]]:
        """Ratings of every system and its pairs with `base`. Raises ModelError where the model cannot be had."""
        others = [system.name for system in systems if system.name != base]
        total = len(questions) * (len(systems) + len(others))
        done = 0

        def one_more() -> None:
            nonlocal done
            done += 1
            self.told(done, total)

        ratings = [await self._rate(questions, asked[system.name], system.name, one_more) for system in systems]
        pairs = [await self._compare(questions, asked[name], asked[base], name, base, one_more) for name in others]
        return tuple(ratings), tuple(pairs)

    async def _rate(
        self, questions: Sequence[Question], asked: Sequence[Asked], name: str, one_more: Callable[[], None]
    ) -> RatingResult:
        async def rate(at: int) -> Rating | None:
            question = questions[at]
            inputs = RatingInput(question=question.text, references=question.answers, answer=shown(asked[at]))
            made = await self._ask(JUDGE_RATING, inputs)
            one_more()
            return made

        found = [one for one in await ordered_map(rate, range(len(questions)), self.in_flight) if one is not None]
        points = np.array([[getattr(one, scale) for scale in SCALES] for one in found], dtype=float)
        scales: dict[str, Figure] = {}
        if found:
            scales = {scale: figure(points[:, i], seed=self.seed) for i, scale in enumerate(SCALES)}
            scales["overall"] = figure(points.mean(axis=1), seed=self.seed)
        return RatingResult(system=name, questions=len(found), failures=len(questions) - len(found), scales=scales)

    async def _compare(
        self,
        questions: Sequence[Question],
        ours: Sequence[Asked],
        theirs: Sequence[Asked],
        name: str,
        base: str,
        one_more: Callable[[], None],
    ) -> PairResult:
        async def compare(at: int) -> dict[str, Outcome] | None:
            made = await self._both_orders(questions[at], shown(ours[at]), shown(theirs[at]))
            one_more()
            return made

        made = await ordered_map(compare, range(len(questions)), self.in_flight)
        found = [one for one in made if one is not None]
        return PairResult(
            system=name,
            baseline=base,
            questions=len(found),
            equal=sum(shown(a) == shown(b) for a, b in zip(ours, theirs, strict=True)),
            failures=len(made) - len(found),
            dimensions={d: _contest([one[d] for one in found], self.seed) for d in DIMENSIONS if found},
        )

    async def _both_orders(self, question: Question, ours: str, theirs: str) -> dict[str, Outcome] | None:
        """Outcome by dimension for `ours`; None where a verdict stayed invalid."""
        if ours == theirs:
            return dict.fromkeys(DIMENSIONS, "tie")
        verdicts = []
        for first, second in ((ours, theirs), (theirs, ours)):
            inputs = PairInput(question=question.text, references=question.answers, first=first, second=second)
            verdicts.append(await self._ask(JUDGE_PAIR, inputs))
        led, followed = verdicts
        if led is None or followed is None:
            return None
        return {d: outcome(led, followed, d) for d in DIMENSIONS}

    async def _ask(self, task: Task[InputT, OutputT], inputs: InputT) -> OutputT | None:
        try:
            return (await self.model.generate(task, inputs)).value
        except ModelOutputError:
            return None  # counted by the caller


def shown(asked: Asked) -> str:
    """What a judge reads: the answer, or the word that there is none."""
    return asked.answer or UNANSWERABLE


def outcome(led: PairVerdict, followed: PairVerdict, dimension: str) -> Outcome:
    """One dimension for the answer that was shown first in `led` and second in `followed`."""
    orders = (getattr(led, dimension), getattr(followed, dimension))
    outcomes: dict[tuple[str, str], Outcome] = {
        ("first", "second"): "win",
        ("second", "first"): "loss",
        ("tie", "tie"): "tie",
    }
    return outcomes.get(orders, "inconsistent")


def _contest(outcomes: Sequence[Outcome], seed: int) -> Contest:
    return Contest(
        wins=outcomes.count("win"),
        losses=outcomes.count("loss"),
        ties=outcomes.count("tie"),
        inconsistent=outcomes.count("inconsistent"),
        score=figure(np.array([_WORTH[one] for one in outcomes]), seed=seed),
    )
