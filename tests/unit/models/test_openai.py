import asyncio
import json
import time

import pytest

from corpusmill.errors import ModelOutputError, ModelRejectedError, ModelUnavailableError, UsageError
from corpusmill.models.factory import build_language_model, build_models
from corpusmill.models.metered import Meter
from corpusmill.settings import ModelSettings, ModelsSettings, Settings
from tests.unit.models.fake_endpoint import Answer, chat, endpoint, refusal
from tests.unit.models.tasks import DictCache, Question, make_task

GOOD = json.dumps({"items": [{"name": "Ada", "year": 1815}]})
TASK = make_task()


def model_settings(url, **changes):
    return ModelSettings(**{"backend": "openai", "model": "m", "base_url": url, "timeout_s": 5, **changes})


def ask(url, times=1, task=TASK, affinity=None, **changes):
    """Generations of a bare back-end, one after the other."""

    async def run():
        model = build_language_model(model_settings(url, **changes))
        try:
            return [await model.generate(task, Question(text="a $5 text"), affinity=affinity) for _ in range(times)]
        finally:
            await model.aclose()

    return asyncio.run(run())


def test_a_good_answer_is_typed_and_counted(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    with endpoint(lambda call: chat(GOOD, prompt=11, completion=7)) as server:
        (made,) = ask(server.url, price_in=1.0, price_out=2.0, affinity="text-1")
    assert made.value.items[0].name == "Ada" and made.value.items[0].year == 1815
    assert (made.usage.calls, made.usage.prompt_tokens, made.usage.completion_tokens) == (1, 11, 7)
    assert made.usage.cost == pytest.approx((11 + 14) / 1e6)
    (call,) = server.calls
    assert call.path == "/v1/chat/completions" and call.headers["authorization"] == "Bearer sk-test"
    assert call.headers["x-session-id"] == "text-1"
    assert call.body["messages"][1]["content"] == "Text: a $5 text"
    schema = call.body["response_format"]["json_schema"]
    assert schema["strict"] and schema["schema"]["additionalProperties"] is False
    assert schema["schema"]["$defs"]["Item"]["required"] == ["name", "year"]
    assert (call.body["temperature"], call.body["seed"], call.body["max_tokens"]) == (0.0, 0, 64)


def test_a_refused_json_schema_falls_back_and_is_remembered():
    def reply(call):
        kind = call.body.get("response_format", {}).get("type")
        return refusal(400, f"response_format {kind} is not supported") if kind else chat(f"```json\n{GOOD}\n```")

    with endpoint(reply) as server:
        ask(server.url, times=2)
    kinds = [call.body.get("response_format", {}).get("type") for call in server.calls]
    assert kinds == ["json_schema", "json_object", None, None]
    assert "JSON schema" in server.calls[-1].body["messages"][0]["content"]


def test_parameters_that_a_model_refuses_are_left_out():
    def reply(call):
        if "max_tokens" in call.body:
            return refusal(400, "Unsupported parameter: use 'max_completion_tokens' instead", param="max_tokens")
        if "temperature" in call.body:
            return refusal(400, "Unsupported value: 'temperature'", param="temperature")
        return chat(GOOD)

    with endpoint(reply) as server:
        ask(server.url, times=2)
    assert len(server.calls) == 4
    assert server.calls[-1].body["max_completion_tokens"] == 64
    assert server.calls[-1].body["response_format"]["type"] == "json_schema"


def test_an_input_over_the_context_is_the_inputs_fault_and_changes_nothing():
    def reply(call):
        return refusal(400, "maximum context length is 4096 tokens") if call.number == 0 else chat(GOOD)

    with endpoint(reply) as server:

        async def run():
            model = build_language_model(model_settings(server.url))
            with pytest.raises(ModelOutputError, match="cannot take this input"):
                await model.generate(TASK, Question(text="long"))
            await model.generate(TASK, Question(text="short"))
            await model.aclose()

        asyncio.run(run())
    assert server.calls[-1].body["response_format"]["type"] == "json_schema"


def test_one_repair_with_the_error_then_the_value():
    def reply(call):
        return chat('{"items": [{"year": 3}]}') if call.number == 0 else chat(GOOD)

    with endpoint(reply) as server:
        (made,) = ask(server.url)
    assert made.usage.calls == 2 and made.usage.repairs == 1
    roles = [m["role"] for m in server.calls[1].body["messages"]]
    assert roles == ["system", "user", "assistant", "user"]
    assert "items.0.name" in server.calls[1].body["messages"][3]["content"]


def test_a_failed_check_is_repaired_too():
    task = make_task(lambda inputs, output: "no Ada, please" if output.items[0].name == "Ada" else None)
    with endpoint(lambda call: chat(GOOD.replace("Ada", "Ada" if call.number == 0 else "Bob"))) as server:
        (made,) = ask(server.url, task=task)
    assert made.value.items[0].name == "Bob"
    assert "no Ada, please" in server.calls[1].body["messages"][3]["content"]


@pytest.mark.parametrize("nonsense", ["", "I cannot help with that.", "{" * 5000, "[1, 2]", '{"items": "all"}', "\x00"])
def test_nonsense_for_every_call_ends_after_one_repair(nonsense):
    with (
        endpoint(lambda call: chat(nonsense)) as server,
        pytest.raises(ModelOutputError, match="after one repair") as error,
    ):
        ask(server.url)
    assert len(server.calls) == 2 and error.value.usage.calls == 2


def test_an_answer_cut_by_its_length_is_not_repaired():
    cut = chat('{"items": [', finish="length")
    with endpoint(lambda call: cut) as server, pytest.raises(ModelOutputError, match="finish_reason length") as error:
        ask(server.url)
    assert len(server.calls) == 1 and error.value.usage.completion_tokens == 5


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_key_or_model_is_rejected_at_once(status):
    with endpoint(lambda call: refusal(status, "no such thing")) as server, pytest.raises(ModelRejectedError) as error:
        ask(server.url)
    assert len(server.calls) == 1
    assert "'m'" in str(error.value) and server.url in str(error.value) and "no such thing" in str(error.value)


def test_a_used_up_quota_is_not_worth_a_retry():
    spent = refusal(429, "pay first", code="insufficient_quota")
    with endpoint(lambda call: spent) as server, pytest.raises(ModelRejectedError, match="quota"):
        ask(server.url)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (refusal(429, "slow down", headers={"retry-after": "3"}), "429"),
        (refusal(503, "warming up"), "503"),
        (Answer(b"<html>oops</html>"), "no JSON"),
        (Answer({"choices": []}), "choices"),
        (Answer({"choices": [{"message": {"content": GOOD}}]}, cut=True), "cannot be reached"),
    ],
)
def test_what_may_pass_is_unavailable(answer, told):
    with endpoint(lambda call: answer) as server, pytest.raises(ModelUnavailableError, match=told) as error:
        ask(server.url)
    assert error.value.retry_after == (3.0 if told == "429" else None)


def test_a_slow_endpoint_and_one_that_is_not_there():
    with endpoint(lambda call: Answer({}, delay=0.6)) as server:
        started = time.perf_counter()
        with pytest.raises(ModelUnavailableError, match=r"no answer within 0\.2 s"):
            ask(server.url, timeout_s=0.2)
        assert time.perf_counter() - started < 3
    with pytest.raises(ModelUnavailableError, match="cannot be reached"):
        ask(server.url, timeout_s=1)


def test_api_openai_com_needs_its_key_before_any_call(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UsageError, match="OPENAI_API_KEY"):
        build_language_model(model_settings(None))
    with pytest.raises(UsageError, match="ftp://x"):
        build_language_model(model_settings("ftp://x"))


def test_the_whole_stack_survives_a_bad_day_and_pays_once():
    def reply(call):
        if call.number % 3 == 0:
            return refusal(429, "slow down", headers={"retry-after": "0.01"})
        return chat("sorry") if call.number % 3 == 1 and len(call.body["messages"]) == 2 else chat(GOOD)

    with endpoint(reply) as server:
        own = model_settings(server.url, retries=9)
        settings = Settings(models=ModelsSettings(default=own))

        async def run(cache):
            meter = Meter()
            models = build_models(settings, meter=meter, cache=cache, calls_in_flight=1)
            model = models.language_model("extract")
            asked = [Question(text=str(i % 2)) for i in range(4)]
            found = await asyncio.gather(*(model.generate(TASK, q) for q in asked))
            await models.aclose()
            assert all(g.value.items[0].name == "Ada" for g in found)
            return meter.snapshot().total

        cache = DictCache()
        first = asyncio.run(run(cache))
        made = len(server.calls)
        second = asyncio.run(run(cache))
    assert first.cached == 2 and first.repairs >= 1
    assert len(server.calls) == made and second.calls == 0 and second.cached == 4
