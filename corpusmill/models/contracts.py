"""Contracts of language models, embedders and rerankers. Batch and online code see only these."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Literal, Protocol, TypeVar, get_args

import numpy as np
from pydantic import BaseModel

from corpusmill.hashing import fingerprint

Role = Literal["extract", "summarise", "plan", "rerank", "answer"]
ROLES: tuple[Role, ...] = get_args(Role)
EmbedKind = Literal["query", "passage"]

InputT = TypeVar("InputT", bound=BaseModel)
OutputT = TypeVar("OutputT", bound=BaseModel)


@dataclass(frozen=True)
class Usage:
    """Tokens and calls of one or more generations; `cached` calls cost nothing. Seconds are the back-end's own."""

    calls: int = 0
    cached: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    repairs: int = 0
    seconds: float = 0.0
    cost: float = 0.0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.calls + other.calls,
            self.cached + other.cached,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.repairs + other.repairs,
            self.seconds + other.seconds,
            self.cost + other.cost,
        )


@dataclass(frozen=True)
class Prompt:
    """A versioned prompt file with `$name` slots (string.Template). What stands before the first slot is shared."""

    name: str
    version: int
    system: str
    user: str


@dataclass(frozen=True)
class Task(Generic[InputT, OutputT]):
    """One kind of model call: its prompt, its input and output types, and the rule that serves it without a model.

    `check` sees (inputs, output) and returns what is wrong with a schema-valid output, or None; its message goes into
    the one repair request. `rule` is pure and deterministic.
    """

    name: str
    role: Role
    prompt: Prompt
    input_type: type[InputT]
    output_type: type[OutputT]
    render: Callable[[InputT], dict[str, str]]
    rule: Callable[[InputT], OutputT]
    check: Callable[[InputT, OutputT], str | None] | None = None
    max_output_tokens: int = 2048
    rule_version: int = 1

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(
            {
                "name": self.name,
                "prompt": [self.prompt.name, self.prompt.version, self.prompt.system, self.prompt.user],
                "schema": self.output_type.model_json_schema(),
                "max_output_tokens": self.max_output_tokens,
                "rule_version": self.rule_version,
            }
        )


@dataclass(frozen=True)
class Generation(Generic[OutputT]):
    """A validated result with what it cost."""

    value: OutputT
    usage: Usage


class LanguageModel(Protocol):
    """Turns a task's inputs into its validated output.

    Raises ModelOutputError (invalid after one repair, or cut off), ModelUnavailableError (worth a retry),
    ModelRejectedError (a retry cannot help), BudgetReachedError.
    """

    @property
    def fingerprint(self) -> str:
        """Identity of the model and its sampling; part of every cache key and step fingerprint."""
        ...

    async def generate(
        self, task: Task[InputT, OutputT], inputs: InputT, *, affinity: str | None = None
    ) -> Generation[OutputT]:
        """`affinity` (a text hash) keeps a document's calls on one replica, for its prefix cache."""
        ...

    async def aclose(self) -> None: ...


class Embedder(Protocol):
    """Turns texts into unit vectors. A text over the model's limit is embedded in windows, never cut silently."""

    @property
    def fingerprint(self) -> str: ...

    @property
    def dim(self) -> int: ...

    async def embed(self, texts: Sequence[str], kind: EmbedKind) -> np.ndarray:
        """float32 [len(texts), dim], rows of length 1 (an empty text: the zero vector)."""
        ...

    async def aclose(self) -> None: ...


class Reranker(Protocol):
    """Scores passages by how well each answers a question, reading both together.

    Raises ModelOutputError (scores missing or not finite), ModelUnavailableError, ModelRejectedError.
    """

    @property
    def fingerprint(self) -> str:
        """Identity of the model and of what it is shown."""
        ...

    def calls(self, passages: int) -> int:
        """How many language-model or endpoint calls reranking so many passages takes, repairs aside; 0: in-process."""
        ...

    async def rerank(self, question: str, passages: Sequence[str]) -> np.ndarray:
        """float32 [len(passages)], finite, higher is better; comparable within one call alone."""
        ...

    async def aclose(self) -> None: ...
