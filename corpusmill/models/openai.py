"""An OpenAI-compatible chat endpoint: OpenAI itself, a vLLM server, Ollama, LM Studio, llama.cpp."""

from dataclasses import dataclass
from typing import Any

from corpusmill.errors import ModelOutputError, ModelUnavailableError
from corpusmill.models.endpoint import Endpoint, RefusedRequest
from corpusmill.models.json_schema import schema_name, strict_schema
from corpusmill.models.structured import Completion, CompletionRequest
from corpusmill.settings import ModelSettings

_TOO_LONG = ("context length", "context window", "maximum context", "too long", "too many tokens", "max_model_len")
_WITHHELD = ("content_policy", "content_filter", "content management policy")
_DOWNGRADE = {"json_schema": "json_object", "json_object": "prompt"}


@dataclass(frozen=True)
class _Dialect:
    """What the endpoint is known to take for one model."""

    structured: str
    limit_name: str = "max_tokens"
    temperature: bool = True
    seed: bool = True


class OpenAICompletions:
    """Chat completions of one model (a CompletionBackend).

    Structured output is asked for by `response_format`; an endpoint that refuses the form is asked with the next
    weaker one (json_schema, json_object, the schema in the prompt), and what it took is remembered. Parameters that a
    model refuses by name (temperature, seed, max_tokens) are left out or renamed in the same way.
    """

    def __init__(self, settings: ModelSettings, calls_in_flight: int = 16) -> None:
        self._settings = settings
        self._endpoint = Endpoint(
            settings.base_url, settings.api_key_env, settings.timeout_s, f"model {settings.model!r}", calls_in_flight
        )
        self._dialect = _Dialect(settings.structured)

    async def complete(self, request: CompletionRequest) -> Completion:
        dialect = self._dialect
        while True:
            try:
                answer = await self._endpoint.post(
                    "/chat/completions", self._body(request, dialect), affinity=request.affinity
                )
            except RefusedRequest as refusal:
                dialect = self._next_dialect(dialect, refusal)
                continue
            self._dialect = dialect  # only what has worked is remembered
            return self._read(answer)

    async def aclose(self) -> None:
        await self._endpoint.aclose()

    def _body(self, request: CompletionRequest, dialect: _Dialect) -> dict[str, Any]:
        schema = strict_schema(request.output_type)
        messages = [{"role": m.role, "content": m.content} for m in request.messages]
        body: dict[str, Any] = {"model": self._settings.model, "messages": messages}
        body[dialect.limit_name] = request.max_tokens
        if dialect.temperature:
            body["temperature"] = request.temperature
        if dialect.seed and request.seed is not None:
            body["seed"] = request.seed
        if dialect.structured == "json_schema":
            described = {"name": schema_name(request.output_type), "schema": schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": described}
            return body
        if dialect.structured == "json_object":
            body["response_format"] = {"type": "json_object"}
        messages[0] = {"role": "system", "content": f"{messages[0]['content']}\n\n{_in_words(schema)}"}
        return body

    def _next_dialect(self, dialect: _Dialect, refusal: RefusedRequest) -> _Dialect:
        """What to try after a 400 or 422. Raises ModelOutputError where this input is at fault, ModelRejectedError
        where nothing is left to try."""
        told = refusal.told.lower()
        if any(sign in told for sign in _TOO_LONG) or any(sign in told for sign in _WITHHELD):
            raise ModelOutputError(f"{refusal.where} cannot take this input: {refusal.told}")
        if "max_completion_tokens" in told and dialect.limit_name == "max_tokens":
            return _changed(dialect, limit_name="max_completion_tokens")
        if "temperature" in told and dialect.temperature:
            return _changed(dialect, temperature=False)
        if "seed" in told and dialect.seed:
            return _changed(dialect, seed=False)
        if dialect.structured in _DOWNGRADE:
            return _changed(dialect, structured=_DOWNGRADE[dialect.structured])
        raise refusal.rejected()

    def _read(self, answer: dict[str, Any]) -> Completion:
        try:
            choice = answer["choices"][0]
            text = choice["message"].get("content") or ""
            usage = answer.get("usage") or {}
            return Completion(
                text if isinstance(text, str) else "",
                str(choice.get("finish_reason") or "stop"),
                int(usage.get("prompt_tokens") or 0),
                int(usage.get("completion_tokens") or 0),
            )
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise ModelUnavailableError(
                f"{self._endpoint.where} answered without choices[0].message: {str(answer)[:200]}"
            ) from error


def _changed(dialect: _Dialect, **changes: Any) -> _Dialect:
    return _Dialect(**{**dialect.__dict__, **changes})


def _in_words(schema: dict[str, Any]) -> str:
    import json

    return "Answer with one JSON object, and nothing else, that follows this JSON schema:\n" + json.dumps(
        schema, ensure_ascii=False, sort_keys=True
    )
