"""What a pool's answers and an engine's words mean, without an engine."""

import asyncio

import pytest
from pydantic import ValidationError

from corpusmill.errors import ConfigError, ModelOutputError, ModelRejectedError, ModelUnavailableError
from corpusmill.models.factory import build_language_model, build_models
from corpusmill.models.identity import application_name, language_model_fingerprint
from corpusmill.models.metered import Meter
from corpusmill.models.structured import Completion, CompletionRequest, Message
from corpusmill.models.vllm_calls import (
    EngineClock,
    PoolAnswer,
    PoolCall,
    PoolRefusal,
    last_words,
    read_answer,
    room_for,
    without_system,
)
from corpusmill.settings import ModelSettings, ModelsSettings, Settings, VllmSettings
from tests.unit.models.tasks import Names, Question, make_task


def model(**changes):
    return ModelSettings(**({"backend": "vllm", "model": "acme/Small-1B"} | changes))


def answer(finish_reason="stop", text="{}"):
    return PoolAnswer(text, finish_reason, 100, 20, 64, "r1")


# --- answers


def test_an_answer_becomes_a_completion_with_its_usage():
    assert read_answer(answer(text="x")) == Completion("x", "stop", 100, 20)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (PoolRefusal("input", "too long"), ModelOutputError),
        (PoolRefusal("rejected", "bad schema"), ModelRejectedError),
        (PoolRefusal("unavailable", "engine died"), ModelUnavailableError),
        (answer("abort"), ModelUnavailableError),
        (answer("error"), ModelUnavailableError),
    ],
)
def test_what_went_wrong_has_its_error_and_no_usage(given, error):
    with pytest.raises(error) as raised:
        read_answer(given)
    assert raised.value.usage is None
    if isinstance(given, PoolRefusal):
        assert given.message in str(raised.value)


def test_a_prompt_that_does_not_fit_is_named_with_both_numbers():
    refusal = room_for("m", 5000, 100, 4096)
    assert isinstance(refusal, PoolRefusal) and refusal.fault == "input"
    assert "5000" in refusal.message and "4096" in refusal.message
    assert room_for("m", 4000, 6144, 4096) == 96
    assert room_for("m", 100, 64, 4096) == 64


def test_the_schema_of_a_call_is_the_strict_one():
    request = CompletionRequest((Message("user", "x"),), Names, 64, 0.5, 3, "doc")
    call = PoolCall.of(request)
    assert call.schema["additionalProperties"] is False and call.schema["required"] == ["items"]
    assert (call.max_tokens, call.temperature, call.seed) == (64, 0.5, 3)


def test_the_system_message_goes_before_the_first_user_message():
    told = without_system([Message("system", "S"), Message("user", "U"), Message("assistant", "A")])
    assert told == (Message("user", "S\n\nU"), Message("assistant", "A"))
    alone = (Message("user", "U"),)
    assert without_system(alone) == alone


# --- the engine's words

TOO_LARGE = """\
(EngineCore pid=77) INFO 12-01 16:00:00 [core.py:100] Initializing a V1 LLM engine
(EngineCore pid=77) ERROR 12-01 16:00:09 [core.py:866] EngineCore failed to start.
(EngineCore pid=77) ERROR 12-01 16:00:09 [core.py:866] Traceback (most recent call last):
(EngineCore pid=77) ERROR 12-01 16:00:09 [core.py:866]   File "gpu_worker.py", line 213, in load_model
(EngineCore pid=77) ERROR 12-01 16:00:09 [core.py:866] torch.OutOfMemoryError: CUDA out of memory. Tried 2.00 GiB
(EngineCore pid=77) Process EngineCore:
"""


def test_the_cause_is_found_in_the_log_of_the_engine():
    error = RuntimeError("Engine core initialization failed. See root cause above.")
    assert last_words(TOO_LARGE.splitlines(), error).startswith("torch.OutOfMemoryError: CUDA out of memory")


def test_an_error_of_the_start_itself_comes_last():
    words = last_words(["INFO 12-01 16:00:00 [x.py:1] loading"], OSError("no such\n  model: acme"))
    assert words == "OSError: no such model: acme"


def test_with_no_error_the_last_line_is_told():
    assert last_words(["INFO 12-01 16:00:00 [x.py:1] loading", ""]) == "loading"
    assert last_words([]) == "it said nothing"


def test_only_a_wrapper_is_better_than_nothing():
    error = RuntimeError("Engine core initialization failed.")
    assert last_words([], error) == "RuntimeError: Engine core initialization failed."


def test_the_clock_counts_gaps_between_requests_and_neither_end():
    clock = EngineClock()
    clock.enter(10.0)
    clock.enter(11.0)
    clock.leave(12.0)
    clock.leave(13.0)
    clock.enter(15.5)
    clock.leave(16.0)
    assert (clock.busy_s, clock.idle_s, clock.in_engine) == (3.5, 2.5, 0)


# --- settings and identity


def test_roles_that_sample_differently_share_an_engine_but_no_cache():
    cold, warm = model(), model(temperature=0.7)
    assert application_name(cold) == application_name(warm)
    assert language_model_fingerprint(cold) != language_model_fingerprint(warm)


def test_the_number_of_replicas_changes_neither_engine_nor_answers():
    one, many = model(), model(vllm=VllmSettings(min_replicas=2, max_replicas=8, keep_s=1))
    assert application_name(one) == application_name(many)
    assert language_model_fingerprint(one) == language_model_fingerprint(many)


def test_quantisation_changes_both_and_memory_the_engine_alone():
    plain, awq = model(), model(vllm=VllmSettings(quantization="awq"))
    less = model(vllm=VllmSettings(gpu_memory_utilization=0.5))
    assert application_name(plain) != application_name(awq) != application_name(less)
    assert language_model_fingerprint(plain) != language_model_fingerprint(awq)
    assert language_model_fingerprint(plain) == language_model_fingerprint(less)


def test_the_application_can_be_named_and_has_a_readable_name_otherwise():
    assert application_name(model(vllm=VllmSettings(application="mine"))) == "mine"
    assert application_name(model()).startswith("corpusmill-acme-small-1b-")


@pytest.mark.parametrize(
    ("given", "told"),
    [({"tensor_parallel_size": 4, "gpus": 2}, "gpus"), ({"min_replicas": 3, "max_replicas": 2}, "max_replicas")],
)
def test_settings_that_contradict_each_other_are_refused(given, told):
    with pytest.raises(ValidationError, match=told):
        VllmSettings(**given)


def test_a_replica_has_as_many_gpus_as_the_model_is_cut_into():
    assert VllmSettings(tensor_parallel_size=4).gpus_per_replica == 4
    assert VllmSettings(gpus=0).gpus_per_replica == 0
    assert (VllmSettings(min_replicas=0).most_replicas, VllmSettings(min_replicas=3).most_replicas) == (1, 3)


# --- the factory


class Backend:
    def __init__(self, name):
        self.name = name
        self.asked = 0

    async def complete(self, request):
        self.asked += 1
        return Completion('{"items": [{"name": "A", "year": null}]}', "stop", 10, 5)

    async def aclose(self):
        pass


def test_each_role_is_served_by_the_pool_of_its_model():
    made = {}

    def completions(own):
        return made.setdefault(own.model, Backend(own.model))

    settings = Settings(models=ModelsSettings(default=model(model="big"), extract=model(model="small")))

    async def run():
        models = build_models(settings, meter=Meter(), completions=completions)
        for role in ("extract", "extract", "answer"):
            await models.language_model(role).generate(make_task(), Question(text="x"))
        await models.aclose()

    asyncio.run(run())
    assert {name: backend.asked for name, backend in made.items()} == {"small": 2, "big": 1}


def test_without_a_pool_the_choices_are_named():
    with pytest.raises(ConfigError, match="openai"):
        build_language_model(model())
