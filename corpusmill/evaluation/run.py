"""One evaluation: a question set, an index, its methods, and what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from pydantic import BaseModel

from corpusmill.errors import UsageError
from corpusmill.evaluation.asking import Asked, Asker, System, systems_of
from corpusmill.evaluation.coverage import coverage, coverage_warnings
from corpusmill.evaluation.dataset import QuestionSet, counted
from corpusmill.evaluation.judging import Judge, Judgement, judge_settings
from corpusmill.evaluation.report import EvaluationResult, baseline_of, results
from corpusmill.methods.registry import attribute
from corpusmill.models.budget import Budget
from corpusmill.models.contracts import Usage
from corpusmill.models.factory import build_models
from corpusmill.models.metered import Meter
from corpusmill.retrieval.engine import PinnedSnapshot
from corpusmill.run import Progress, ProgressEvent
from corpusmill.settings import ModelSettings, Settings
from corpusmill.store.manifest import Manifest

LIBRARIES = {"ir_measures": "ir-measures", "rouge_score": "rouge-score"}


@dataclass(frozen=True)
class Options:
    """`methods` empty: all of the index; `modes` empty: each method's default. `answers` None: where the set has some,
    or a judge asks for them. `baseline` None: `dense-rerank` where it is there, else the first."""

    methods: tuple[str, ...] = ()
    modes: tuple[str, ...] = ()
    cuts: tuple[int, ...] = (5,)
    answers: bool | None = None
    judge: bool = False
    judge_model: str | None = None
    baseline: str | None = None


async def evaluate(
    view: PinnedSnapshot, index: str, settings: Settings, questions: QuestionSet, options: Options, progress: Progress
) -> EvaluationResult:
    """Ask every question of every method, and tell what was found, by figures with intervals.

    Raises UsageError on what the set, the index and the options do not give together; ModelError, BudgetReachedError.
    """
    require_libraries()
    answers = _answers_wanted(questions, options)
    judging = judge_settings(settings, options.judge_model) if options.judge else None
    warnings = [*questions.warnings, *coverage_warnings(coverage(questions, view), questions, index)]
    manifest = view.source
    if not isinstance(manifest, Manifest):
        raise UsageError("only a published snapshot can be evaluated, this one is a draft")
    names = options.methods or tuple(entry.name for entry in manifest.methods)
    settings, more = _deep_enough(settings, names, max(options.cuts))
    warnings += more
    meter, budget = Meter(), _budget(settings)
    models = build_models(settings, meter=meter, budget=budget)
    try:
        asker = Asker(view, settings, models, meter, answers=answers)
        modes = options.modes or ((settings.query.mode,) if settings.query.mode else ())
        systems = systems_of(asker.engine, names, modes)
        baseline = _baseline(systems, options.baseline)
        asked = await asker.ask_all(questions.questions, systems, _Teller(progress, "ask", "questions").told)
    finally:
        await models.aclose()
    judgement = None
    if judging is not None:
        judgement = await _judge(judging, settings, budget, questions, systems, asked, baseline, progress)
    cuts = tuple(sorted(set(options.cuts)))
    return EvaluationResult(
        dataset=questions.name,
        index=index,
        snapshot=manifest.number,
        questions=len(questions.questions),
        answered_questions=questions.answered,
        cuts=cuts,
        baseline=baseline,
        context_tokens=settings.query.context_tokens,
        embedder=settings.embedder.model or settings.embedder.backend,
        answer_model=_model_name(settings.models.of("answer")) if answers else None,
        systems=results(questions.questions, systems, asked, baseline, cuts, answers=answers, seed=settings.run.seed),
        judge=judgement,
        warnings=(*warnings, *_shallow(systems, asked, max(cuts)), *_failures(systems, asked)),
    )


def require_libraries() -> None:
    """Raises UsageError where the metric libraries, an extra of the package, are not installed."""
    missing = [package for module, package in LIBRARIES.items() if find_spec(module) is None]
    if missing:
        raise UsageError(
            f"evaluate needs {' and '.join(missing)}; install them with: pip install 'corpusmill[evaluate]'"
        )


def _answers_wanted(questions: QuestionSet, options: Options) -> bool:
    if options.judge and options.answers is False:
        raise UsageError("--judge needs answers to judge; drop --no-answers")
    if options.answers and not questions.answered and not options.judge:
        raise UsageError(f"no question of {questions.folder / 'queries.jsonl'} has `answers`; drop --answers")
    return options.judge or (bool(questions.answered) if options.answers is None else options.answers)


def _deep_enough(settings: Settings, methods: Sequence[str], depth: int) -> tuple[Settings, list[str]]:
    """Settings under which the methods return `depth` passages at least, and a word on what was raised:
    `query.passages`, and `passages` of a method that has a number of its own."""
    raised: list[str] = []

    def deepened(own: BaseModel, place: str) -> BaseModel:
        passages = getattr(own, "passages", None)
        if not isinstance(passages, int) or not 0 < passages < depth:
            return own
        raised.append(f"{place}.passages from {passages}")
        return own.model_copy(update={"passages": depth})

    every: BaseModel = settings.methods
    names = [name for name in map(attribute, methods) if name in type(every).model_fields]
    changed = {name: deepened(getattr(every, name), f"methods.{name}") for name in names}
    update: dict[str, BaseModel] = {"methods": every.model_copy(update=changed)}
    if settings.query.fill:
        update["query"] = deepened(settings.query, "query")
    said = [f"raised to {depth}, to measure so deep: {', '.join(raised)}"] if raised else []
    return settings.model_copy(update=update), said


def _budget(settings: Settings) -> Budget | None:
    """One budget for answers and judge."""
    run = settings.run
    if run.budget is None and run.max_calls is None:
        return None
    return Budget(max_cost=run.budget, max_calls=run.max_calls)


def _baseline(systems: Sequence[System], wanted: str | None) -> str:
    try:
        return baseline_of(systems, wanted)
    except KeyError:
        names = ", ".join(system.name for system in systems)
        raise UsageError(f"the baseline {wanted!r} is not evaluated; choices: {names}") from None


async def _judge(
    judging: ModelSettings,
    settings: Settings,
    budget: Budget | None,
    questions: QuestionSet,
    systems: Sequence[System],
    asked: dict[str, list[Asked]],
    baseline: str,
    progress: Progress,
) -> Judgement:
    meter = Meter()
    own = settings.model_copy(update={"models": settings.models.model_copy(update={"answer": judging})})
    models = build_models(own, meter=meter, budget=budget)
    teller = _Teller(progress, "judge", "verdicts")
    try:
        judge = Judge(
            models.language_model("answer"),
            lambda done, total: teller.told(done, total, meter.snapshot().total),
            settings.ray.calls_in_flight,
            settings.run.seed,
        )
        ratings, pairs = await judge.judge(questions.questions, systems, asked, baseline)
    finally:
        await models.aclose()
    spent = meter.snapshot().total
    return Judgement(
        model=_model_name(judging), ratings=ratings, pairs=pairs, calls=spent.calls + spent.cached, cost=spent.cost
    )


def _model_name(model: ModelSettings) -> str:
    return model.model or "embedded rules"


def _shallow(systems: Sequence[System], asked: dict[str, list[Asked]], cut: int) -> list[str]:
    """Systems whose rankings mostly end before the deepest cut: their recall there is bounded by what they return."""
    found = []
    for system in systems:
        short = [len(one.ranking) for one in asked[system.name] if len(one.ranking) < cut]
        if 2 * len(short) > len(asked[system.name]):
            found.append(
                f"{system.name} ranked fewer than {cut} documents for {counted(len(short), 'question')}, "
                f"{sum(short) / len(short):.1f} on average: its figures at {cut} are bounded by that"
            )
    return found


def _failures(systems: Sequence[System], asked: dict[str, list[Asked]]) -> list[str]:
    found = []
    for system in systems:
        reasons = [one.failure for one in asked[system.name] if one.failure is not None]
        if reasons:
            many = counted(len(reasons), "question")
            found.append(f"{system.name}: {many} failed and count as not answered; first: {reasons[0]}")
    return found


@dataclass(frozen=True)
class _Teller:
    progress: Progress
    stage: str
    unit: str

    def told(self, done: int, total: int, usage: Usage) -> None:
        self.progress(ProgressEvent(self.stage, done, total, self.unit, usage))
