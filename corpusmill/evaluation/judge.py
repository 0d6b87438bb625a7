"""The two model tasks of a judge: which of two answers is better, and how good one answer is.

The seven dimensions of the pair are those of Generation Evaluation, by which FlexStructRAG (arXiv 2604.16312) is
measured; the ten scales of the rating are those of GRACE-RAG (arXiv 2607.00013, section 4).
"""

from collections.abc import Sequence
from typing import Literal, NoReturn

from pydantic import Field

from corpusmill.errors import UsageError
from corpusmill.frozen import Frozen
from corpusmill.models.contracts import Task
from corpusmill.models.prompts import load_prompt, marks
from corpusmill.retrieval.tasks import shorten

_PACKAGE = "corpusmill.evaluation"
_as_data = marks("question", "references", "first", "second", "answer")
_ANSWER_CHARS = 8_000
_REFERENCES = 20  # gold answers that a judge is shown

Better = Literal["first", "second", "tie"]
Points = Field(ge=0, le=10)


class PairInput(Frozen):
    question: str
    references: tuple[str, ...]  # none: the set has no answers
    first: str
    second: str


class PairVerdict(Frozen):
    """Which answer is better in each of the seven dimensions."""

    reason: str
    comprehensiveness: Better
    knowledgeability: Better
    correctness: Better
    relevance: Better
    diversity: Better
    logical_coherence: Better
    factuality: Better


class RatingInput(Frozen):
    question: str
    references: tuple[str, ...]
    answer: str


class Rating(Frozen):
    """Points of 0 to 10 on each of the ten scales."""

    reason: str
    correctness: int = Points
    completeness: int = Points
    depth: int = Points
    anticipatory_coverage: int = Points
    search_engine_quality: int = Points
    structure: int = Points
    clarity: int = Points
    formatting: int = Points
    relevance: int = Points
    informativeness: int = Points


DIMENSIONS = tuple(name for name in PairVerdict.model_fields if name != "reason")
SCALES = tuple(name for name in Rating.model_fields if name != "reason")


def _render_pair(inputs: PairInput) -> dict[str, str]:
    return {
        "question": _as_data(shorten(inputs.question)),
        "references": _references(inputs.references),
        "first": _as_data(shorten(inputs.first, _ANSWER_CHARS)),
        "second": _as_data(shorten(inputs.second, _ANSWER_CHARS)),
    }


def _render_rating(inputs: RatingInput) -> dict[str, str]:
    return {
        "question": _as_data(shorten(inputs.question)),
        "references": _references(inputs.references),
        "answer": _as_data(shorten(inputs.answer, _ANSWER_CHARS)),
    }


def _references(references: Sequence[str]) -> str:
    lines = [_as_data(" ".join(shorten(one, _ANSWER_CHARS).split())) for one in references[:_REFERENCES]]
    return "\n".join(lines) or "(none are known)"


def _no_rule(inputs: PairInput | RatingInput) -> NoReturn:
    raise UsageError("a rule cannot judge answers: the judge needs a language model in the role `answer`")


JUDGE_PAIR: Task[PairInput, PairVerdict] = Task(
    name="judge_pair",
    role="answer",
    prompt=load_prompt(_PACKAGE, "judge_pair"),
    input_type=PairInput,
    output_type=PairVerdict,
    render=_render_pair,
    rule=_no_rule,
    max_output_tokens=512,
)

JUDGE_RATING: Task[RatingInput, Rating] = Task(
    name="judge_rating",
    role="answer",
    prompt=load_prompt(_PACKAGE, "judge_rating"),
    input_type=RatingInput,
    output_type=Rating,
    render=_render_rating,
    rule=_no_rule,
    max_output_tokens=512,
)
