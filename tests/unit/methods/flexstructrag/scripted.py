"""Inputs for the document steps: a language model that answers by a given function, and hand-made tables."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
from pydantic import BaseModel

from corpusmill.hashing import content_id, hash_text
from corpusmill.methods.flexstructrag.tables import STATEMENTS
from corpusmill.models.contracts import Generation, InputT, OutputT, Task, Usage
from corpusmill.models.embedders import build_embedder
from corpusmill.models.factory import RunModels
from corpusmill.schemas import CHUNKS
from corpusmill.settings import EmbedderSettings
from corpusmill.steps import DocumentFunction, StepContext, StepOutput, Text


class ScriptedModel:
    """Answers with `answer(task name, inputs)`, a dict in the form of the task's output; exceptions are raised.

    Later calls end first, so that an order that depends on arrival shows.
    """

    fingerprint = "scripted"

    def __init__(self, answer: Callable[[str, BaseModel], object]) -> None:
        self._answer = answer
        self.calls: list[tuple[str, BaseModel, str | None]] = []

    async def generate(
        self, task: Task[InputT, OutputT], inputs: InputT, *, affinity: str | None = None
    ) -> Generation[OutputT]:
        self.calls.append((task.name, inputs, affinity))
        await asyncio.sleep(0.01 / len(self.calls))
        answer = self._answer(task.name, inputs)
        if isinstance(answer, Exception):
            raise answer
        return Generation(task.output_type.model_validate(answer), Usage(calls=1))

    async def aclose(self) -> None:
        return None


def models(model: object = None) -> RunModels:
    embedder = build_embedder(EmbedderSettings(backend="hash"))
    return RunModels(lambda role: model, lambda: embedder)  # type: ignore[arg-type,return-value]


def run(
    step: DocumentFunction, settings: BaseModel, text: Text, tables: Mapping[str, pa.Table], model: object = None
) -> StepOutput:
    async def go() -> StepOutput:
        return await step(text, tables, StepContext(settings, "f" * 32, models(model)))

    return asyncio.run(go())


def text_of(parts: Sequence[str]) -> tuple[Text, dict[str, pa.Table]]:
    """A text whose chunks are `parts`, a blank line between them."""
    whole = "\n\n".join(parts)
    text = Text(hash_text(whole), whole)
    rows: list[dict[str, object]] = []
    at = 0
    for ordinal, part in enumerate(parts):
        end = at + len(part)
        rows.append(
            {
                "text_hash": text.text_hash,
                "chunk_id": content_id("chunk", text.text_hash, "test", at, end),
                "ordinal": ordinal,
                "start": at,
                "end": end,
                "tokens": len(part.split()),
            }
        )
        at = end + 2
    return text, {"chunks": CHUNKS.table(rows)}


def statements_of(items: Sequence[tuple[str, Sequence[str]]]) -> tuple[Text, dict[str, pa.Table]]:
    """A text of one line for each (statement, entity names), and its `statements`; normal forms are lower case."""
    whole = "\n".join(statement for statement, _ in items)
    text = Text(hash_text(whole), whole)
    rows: list[dict[str, object]] = []
    at = 0
    for ordinal, (statement, names) in enumerate(items):
        end = at + len(statement)
        rows.append(
            {
                "text_hash": text.text_hash,
                "hyperedge_id": content_id("hyperedge", text.text_hash, at, end, statement),
                "ordinal": ordinal,
                "chunk_id": "c",
                "text": statement,
                "start": at,
                "end": end,
                "entities": [{"name": name, "normal": name.lower()} for name in names],
            }
        )
        at = end + 1
    return text, {"statements": STATEMENTS.table(rows)}
