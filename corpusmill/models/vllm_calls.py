"""What a pool's client and its replicas say to each other, and what an engine's outcomes mean. No engine here."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from corpusmill.errors import ModelOutputError, ModelRejectedError, ModelUnavailableError
from corpusmill.models.json_schema import strict_schema
from corpusmill.models.structured import Completion, CompletionRequest, Message

MAX_WORDS = 600  # characters of an engine's last words
Fault = Literal["input", "rejected", "unavailable"]


@dataclass(frozen=True)
class PoolCall:
    """One generation under a JSON schema."""

    messages: tuple[Message, ...]
    schema: dict[str, Any]
    max_tokens: int
    temperature: float
    seed: int | None

    @classmethod
    def of(cls, request: CompletionRequest) -> "PoolCall":
        schema = strict_schema(request.output_type)
        return cls(request.messages, schema, request.max_tokens, request.temperature, request.seed)


@dataclass(frozen=True)
class PoolAnswer:
    """A finished generation; `cached_tokens` of the prompt were taken from the prefix cache."""

    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    replica: str


@dataclass(frozen=True)
class PoolRefusal:
    """`input`: this prompt's fault; `rejected`: every such call would fail; `unavailable`: worth a retry elsewhere."""

    fault: Fault
    message: str


def room_for(model: str, prompt_tokens: int, wanted: int, max_model_len: int) -> int | PoolRefusal:
    """How many tokens may be generated after a prompt: `wanted`, or what the context leaves."""
    if prompt_tokens >= max_model_len:
        return PoolRefusal(
            "input", f"the prompt has {prompt_tokens} tokens, and the engine of {model!r} takes {max_model_len} in all"
        )
    return min(wanted, max_model_len - prompt_tokens)


def read_answer(answer: PoolAnswer | PoolRefusal) -> Completion:
    """The completion. Raises what a refusal means; an aborted generation is worth a retry."""
    if isinstance(answer, PoolAnswer):
        if answer.finish_reason in ("abort", "error"):
            raise ModelUnavailableError(f"the engine ended a generation: finish reason {answer.finish_reason}")
        return Completion(answer.text, answer.finish_reason, answer.prompt_tokens, answer.completion_tokens)
    if answer.fault == "input":
        raise ModelOutputError(answer.message)
    if answer.fault == "rejected":
        raise ModelRejectedError(answer.message)
    raise ModelUnavailableError(answer.message)


def without_system(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The system message told as the beginning of the first user message, for models whose template knows none."""
    if len(messages) < 2 or messages[0].role != "system":
        return tuple(messages)
    first = replace(messages[1], content=f"{messages[0].content}\n\n{messages[1].content}")
    return (first, *messages[2:])


_PREFIX = re.compile(r"^(?:\([^)]*pid=\d+\)\s*)?(?:[A-Z]+ \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?)?")
_ERROR = re.compile(r"^(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Interrupt|Exit)\b.*")
_WRAPPERS = ("Engine core initialization failed", "EngineCore encountered an issue", "WorkerProc initialization failed")


def last_words(log: Iterable[str], error: BaseException | None = None) -> str:
    """What an engine's log, or the error raised by its start, says went wrong: the last cause that is not a wrapper.

    An engine runs in processes of its own, whose errors reach their starter as "see above".
    """
    lines = [_PREFIX.sub("", line).strip() for line in log]
    raised = [] if error is None else [f"{type(error).__name__}: {error}".strip()]
    told = [line for line in [*lines, *raised] if _ERROR.match(line)]
    causes = [line for line in told if not any(wrapper in line for wrapper in _WRAPPERS)]
    found = (causes or told or raised or [line for line in lines if line] or ["it said nothing"])[-1]
    return " ".join(found.split())[:MAX_WORDS]


class EngineClock:
    """How many requests an engine has, and for how long it had none between its first and its last."""

    def __init__(self) -> None:
        self.in_engine = 0
        self.idle_s = 0.0
        self.busy_s = 0.0
        self._since: float | None = None  # of the last change; None before the first request

    def enter(self, now: float) -> None:
        self._account(now)
        self.in_engine += 1

    def leave(self, now: float) -> None:
        self._account(now)
        self.in_engine -= 1

    def _account(self, now: float) -> None:
        if self._since is not None:
            if self.in_engine:
                self.busy_s += now - self._since
            else:
                self.idle_s += now - self._since
        self._since = now


@dataclass(frozen=True)
class EngineStats:
    """Counts of one replica since its start. `idle_s`: without a request, between the first and the last."""

    replica: str
    pid: int
    requests: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    in_engine: int
    busy_s: float
    idle_s: float
