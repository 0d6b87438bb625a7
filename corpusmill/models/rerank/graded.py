"""A language model as reranker: it grades numbered passages, one call for a batch of them."""

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from corpusmill.frozen import Frozen
from corpusmill.hashing import fingerprint
from corpusmill.models.contracts import LanguageModel, Task
from corpusmill.models.prompts import load_prompt, marks
from corpusmill.models.rerank.common import batches, checked_scores
from corpusmill.models.rerank.lexical import coverage
from corpusmill.settings import RerankSettings

TOP_GRADE = 10
_as_data = marks("question", "passage")


class RerankInput(Frozen):
    """Passages are numbered from 1 in their order."""

    question: str
    passages: tuple[str, ...]


class Grade(Frozen):
    """How well a passage answers: 0 not at all, 10 fully."""

    passage: int = Field(ge=1)
    grade: int = Field(ge=0, le=TOP_GRADE)


class Grades(Frozen):
    grades: tuple[Grade, ...]


def _render(inputs: RerankInput) -> dict[str, str]:
    pieces = (
        f'<passage number="{number}">\n{_as_data(text)}\n</passage>' for number, text in enumerate(inputs.passages, 1)
    )
    return {"question": _as_data(inputs.question), "passages": "\n\n".join(pieces)}


def _rule(inputs: RerankInput) -> Grades:
    """The share of the question's words, weighted by rarity, that a passage holds, as a grade."""
    shares = coverage(inputs.question, inputs.passages)
    return Grades(
        grades=tuple(
            Grade(passage=number, grade=int(TOP_GRADE * share + 0.5)) for number, share in enumerate(shares.tolist(), 1)
        )
    )


def _check(inputs: RerankInput, output: Grades) -> str | None:
    numbers = sorted(grade.passage for grade in output.grades)
    wanted = list(range(1, len(inputs.passages) + 1))
    if numbers == wanted:
        return None
    missing = sorted(set(wanted) - set(numbers))
    return f"each of the passages 1 to {len(wanted)} needs exactly one grade" + (
        f"; without: {missing[:20]}" if missing else ""
    )


RERANK: Task[RerankInput, Grades] = Task(
    name="rerank",
    role="rerank",
    prompt=load_prompt("corpusmill.models.rerank", "rerank"),
    input_type=RerankInput,
    output_type=Grades,
    render=_render,
    rule=_rule,
    check=_check,
    max_output_tokens=2048,
)


class GradingReranker:
    """The model of the role `rerank` grades `batch_size` passages a call; its errors are those of `generate`."""

    def __init__(self, settings: RerankSettings, model: LanguageModel) -> None:
        self._batch_size = settings.batch_size
        self._model = model

    @property
    def fingerprint(self) -> str:
        return fingerprint({"backend": "llm", "task": RERANK.fingerprint, "model": self._model.fingerprint})

    def calls(self, passages: int) -> int:
        return -(-passages // self._batch_size)

    async def rerank(self, question: str, passages: Sequence[str]) -> np.ndarray:
        grades: list[int] = []
        for batch in batches(passages, self._batch_size):
            inputs = RerankInput(question=question, passages=tuple(batch))
            made = (await self._model.generate(RERANK, inputs)).value
            grades.extend(grade.grade for grade in sorted(made.grades, key=lambda own: own.passage))
        return checked_scores(grades, len(passages), "the model of the role rerank")

    async def aclose(self) -> None:
        return None
