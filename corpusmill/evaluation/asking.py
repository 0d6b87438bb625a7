"""Every question put to every method, one after the other so that times are those of a single question."""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from corpusmill.errors import ModelOutputError, UsageError
from corpusmill.evaluation.answers import plain_answer
from corpusmill.evaluation.dataset import Question
from corpusmill.evaluation.ranking import DocumentRanking
from corpusmill.methods.protocol import Evidence
from corpusmill.models.contracts import Usage
from corpusmill.models.metered import Meter
from corpusmill.retrieval.answering import UNANSWERABLE, answer_from
from corpusmill.retrieval.context import assemble
from corpusmill.retrieval.engine import PinnedSnapshot, QueryEngine
from corpusmill.settings import Settings
from corpusmill.steps import Models

ACTIVATION_DEPTH = 5  # pieces of evidence among which a unit of a structure counts as active (arXiv 2605.19735)
PASSAGE = "passage"  # the kind of evidence that no structure made


@dataclass(frozen=True)
class System:
    """A method in one of its modes; `name` is what results call it."""

    name: str
    method: str
    mode: str


@dataclass(frozen=True)
class Asked:
    """What one system made of one question. `answer` is as a reader sees it, without marks ("": none was asked for);
    `units`: whether any unit of a structure came back, `active`: among the first pieces. `failure`: an output of the
    model that stayed invalid, which counts as nothing found or nothing answered."""

    ranking: tuple[str, ...] = ()
    answer: str = ""
    answered: bool = False
    context_tokens: int = 0
    calls: int = 0
    seconds: float = 0.0
    retrieval_seconds: float = 0.0
    units: bool = False
    active: bool = False
    failure: str | None = None


Told = Callable[[int, int, Usage], None]  # questions done, of how many, usage so far


def systems_of(engine: QueryEngine, methods: Sequence[str], modes: Sequence[str]) -> tuple[System, ...]:
    """The systems to compare: each method in those of `modes` that it has, else in its default mode.

    Raises UsageError on a method that the index lacks, and on a mode that none of the methods has.
    """
    found: list[System] = []
    choices: dict[str, tuple[str, ...]] = {}
    for method in dict.fromkeys(methods):
        name, retriever = engine.retriever(method)
        choices[name] = retriever.modes
        own = [mode for mode in dict.fromkeys(modes) if mode in retriever.modes] or [retriever.default_mode]
        found += [System(name if len(own) == 1 else f"{name}/{mode}", name, mode) for mode in own]
    for mode in modes:
        if not any(mode in own for own in choices.values()):
            have = "; ".join(f"{name}: {', '.join(own)}" for name, own in choices.items())
            raise UsageError(f"no method evaluated has the mode {mode!r}; modes: {have}")
    return tuple(found)


class Asker:
    """Puts questions to systems over one snapshot.

    `models` record what they spend in `meter`; `answers` false stops after retrieval.
    """

    def __init__(
        self, view: PinnedSnapshot, settings: Settings, models: Models, meter: Meter, *, answers: bool
    ) -> None:
        self.engine = QueryEngine(view, settings, models)
        self._view = view
        self._models = models
        self._meter = meter
        self._answers = answers
        self._budget = settings.query.context_tokens
        self._ranking = DocumentRanking(view, settings.vector_index.nprobe)

    async def ask_all(
        self, questions: Sequence[Question], systems: Sequence[System], told: Told
    ) -> dict[str, list[Asked]]:
        """System name -> what it made of each question. Systems take turns, so that a busy machine slows them alike.

        Each first retrieves for the first question, uncounted: opening an index is not part of an answer.
        Raises ModelError where a model cannot be had, BudgetReachedError.
        """
        found: dict[str, list[Asked]] = {system.name: [] for system in systems}
        for system in systems:
            await self._open(questions[0], system)
        for number, question in enumerate(questions, start=1):
            for system in systems:
                found[system.name].append(await self.ask(question, system))
            told(number, len(questions), self._meter.snapshot().total)
        return found

    async def _open(self, question: Question, system: System) -> None:
        _, retriever = self.engine.retriever(system.method)
        with contextlib.suppress(ModelOutputError):  # told when the question is asked
            await retriever.retrieve(question.text, system.mode)

    async def ask(self, question: Question, system: System) -> Asked:
        """One question. Raises ModelError but for an invalid output, which is a failed question."""
        _, retriever = self.engine.retriever(system.method)
        started = time.perf_counter()
        try:
            retrieval = await retriever.retrieve(question.text, system.mode)
        except ModelOutputError as error:
            return Asked(seconds=time.perf_counter() - started, failure=str(error))
        context = assemble(retrieval.evidence, self._budget, self._view)
        retrieved = time.perf_counter() - started
        before = self._calls()
        answer, answered, failure = await self._answer(question, context.evidence)
        calls = retrieval.calls + self._calls() - before
        seconds = time.perf_counter() - started
        return Asked(
            ranking=self._ranking.documents(retrieval.evidence),
            answer=answer,
            answered=answered,
            context_tokens=context.tokens,
            calls=calls,
            seconds=seconds,
            retrieval_seconds=retrieved,
            units=any(piece.kind != PASSAGE for piece in retrieval.evidence),
            active=any(piece.kind != PASSAGE for piece in retrieval.evidence[:ACTIVATION_DEPTH]),
            failure=failure,
        )

    async def _answer(self, question: Question, evidence: Sequence[Evidence]) -> tuple[str, bool, str | None]:
        if not self._answers:
            return "", False, None
        try:
            made = await answer_from(question.text, evidence, self._view, self._models)
        except ModelOutputError as error:
            return UNANSWERABLE, False, str(error)
        return plain_answer(made.text), made.answerable, None

    def _calls(self) -> int:
        usage = self._meter.snapshot().total
        return usage.calls + usage.cached
