"""From a model that completes text to a task's typed output: ask, find the JSON, validate, repair once."""

import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ValidationError

from corpusmill.errors import ModelError, ModelOutputError
from corpusmill.models.contracts import Generation, InputT, OutputT, Task, Usage
from corpusmill.models.identity import language_model_fingerprint
from corpusmill.models.prompts import render_prompt
from corpusmill.settings import ModelSettings

MAX_CANDIDATES = 16  # places in a text that may begin the JSON object
MAX_DEPTH = 64
_REASONING = re.compile(r"\A\s*<think>.*?</think>", re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Message:
    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class CompletionRequest:
    """One call of a back-end; `output_type` gives the JSON schema that the text must follow."""

    messages: tuple[Message, ...]
    output_type: type[BaseModel]
    max_tokens: int
    temperature: float = 0.0
    seed: int | None = None
    affinity: str | None = None


@dataclass(frozen=True)
class Completion:
    """`finish_reason` as OpenAI names them: stop, length, content_filter, ..."""

    text: str
    finish_reason: str
    prompt_tokens: int = 0
    completion_tokens: int = 0


class CompletionBackend(Protocol):
    """Completes text under a JSON schema. Raises ModelUnavailableError, ModelRejectedError, ModelOutputError."""

    async def complete(self, request: CompletionRequest) -> Completion: ...

    async def aclose(self) -> None: ...


class StructuredModel:
    """A LanguageModel over a completion back-end.

    An answer that is not valid JSON of the task's type, or that the task's check refuses, is asked for once more with
    the error. An answer cut off by its length is a failure at once: asking again would cut it again.
    """

    def __init__(self, backend: CompletionBackend, settings: ModelSettings) -> None:
        self._backend = backend
        self._settings = settings
        self._fingerprint = language_model_fingerprint(settings)

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    async def generate(
        self, task: Task[InputT, OutputT], inputs: InputT, *, affinity: str | None = None
    ) -> Generation[OutputT]:
        system, user = render_prompt(task.prompt, task.render(inputs))
        messages: tuple[Message, ...] = (Message("system", system), Message("user", user))
        first, usage = await self._complete(task, messages, affinity, Usage())
        value, wrong = read_output(first.text, task, inputs)
        if value is not None:
            return Generation(value, usage)
        messages += (Message("assistant", first.text or "(nothing)"), Message("user", _repair_request(wrong)))
        second, usage = await self._complete(task, messages, affinity, usage + Usage(repairs=1))
        value, wrong = read_output(second.text, task, inputs)
        if value is None:
            raise ModelOutputError(f"{self._where(task)} stayed invalid after one repair: {wrong}", usage=usage)
        return Generation(value, usage)

    async def aclose(self) -> None:
        await self._backend.aclose()

    async def _complete(
        self, task: Task[Any, Any], messages: tuple[Message, ...], affinity: str | None, spent: Usage
    ) -> tuple[Completion, Usage]:
        own = self._settings
        limit = own.max_output_tokens or task.max_output_tokens
        request = CompletionRequest(messages, task.output_type, limit, own.temperature, own.seed, affinity)
        started = time.perf_counter()
        try:
            completion = await self._backend.complete(request)
        except ModelError as error:
            error.usage = spent + (error.usage or Usage())
            raise
        cost = (completion.prompt_tokens * own.price_in + completion.completion_tokens * own.price_out) / 1e6
        usage = spent + Usage(
            calls=1,
            prompt_tokens=completion.prompt_tokens,
            completion_tokens=completion.completion_tokens,
            seconds=time.perf_counter() - started,
            cost=cost,
        )
        if completion.finish_reason == "length":
            raise ModelOutputError(
                f"{self._where(task)} was cut off at {limit} tokens (finish_reason length)", usage=usage
            )
        if completion.finish_reason == "content_filter":
            raise ModelOutputError(f"{self._where(task)} was withheld by the endpoint's content filter", usage=usage)
        return completion, usage

    def _where(self, task: Task[Any, Any]) -> str:
        return f"the output of {self._settings.model!r} for task {task.name!r}"


def read_output(text: str, task: Task[InputT, OutputT], inputs: InputT) -> tuple[OutputT | None, str]:
    """(the typed output, "") or (None, what is wrong with the best reading of the text).

    Types are checked strictly (no number for a string); keys that the type does not know are ignored, as they cost a
    repair and carry nothing.
    """
    wrong = ""
    for candidate in json_candidates(text):
        problem: str | None
        try:
            value = task.output_type.model_validate_json(json.dumps(candidate), strict=True, extra="ignore")
            problem = task.check(inputs, value) if task.check is not None else None
        except (ValidationError, ValueError, RecursionError) as error:
            problem = _short(error)
        else:
            if problem is None:
                return value, ""
        wrong = wrong or problem or ""
    return None, wrong or f"no JSON object in the answer, which begins {text[:60]!r}"


def json_candidates(text: str) -> Iterator[dict[str, Any]]:
    """JSON objects in a model's answer, likeliest first: the whole text, then each object that begins in it (prose,
    code fences and a reasoning part around it are passed over). Never raises on any text."""
    text = _REASONING.sub("", text.removeprefix("\ufeff"))
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    at, tried = text.find("{"), 0
    while at >= 0 and tried < MAX_CANDIDATES:
        tried += 1
        end = at + 1
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict) and _depth(value) <= MAX_DEPTH:
            yield _without_surrogates(value)
        at = text.find("{", end)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _depth(value: object) -> int:
    """Nesting depth, walked level by level so that a deep value cannot exhaust the stack."""
    depth, level = 0, [value]
    while level and depth <= MAX_DEPTH:
        depth += 1
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
    return depth


def _without_surrogates(value: Any) -> Any:
    """Lone surrogates, which models write when they escape half a character, cannot be stored as UTF-8."""
    if isinstance(value, str):
        return _SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value


def _short(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return str(error)[:300]
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [f"{'.'.join(map(str, p['loc'])) or 'the answer'}: {p['msg']}" for p in problems[:5]]
    return "; ".join(lines) + (f"; and {len(problems) - 5} more" if len(problems) > 5 else "")


def _repair_request(wrong: str) -> str:
    return f"That answer cannot be used: {wrong}\nGive the whole answer again as one JSON object, and nothing else."
