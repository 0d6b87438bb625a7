"""The pool with real engines: valid answers and true counts, a replica killed in the midst, inputs at fault."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import psutil
import pytest
import ray
from pydantic import BaseModel

from corpusmill.errors import ConfigError, ModelOutputError, ModelUnavailableError, RunFailedError
from corpusmill.methods.flexstructrag.tasks import (
    EXTRACT,
    MERGE_SUMMARY,
    RELATE,
    SUMMARISE_ENTITY,
    ExtractInput,
    MergeSummaryInput,
    RelateInput,
    RelateStatement,
    SummariseInput,
)
from corpusmill.models.contracts import Task
from corpusmill.models.factory import build_models
from corpusmill.models.identity import application_name
from corpusmill.models.metered import Meter
from corpusmill.models.prompts import render_prompt
from corpusmill.models.retrying import with_retries
from corpusmill.models.structured import Completion, CompletionBackend, CompletionRequest, Message
from corpusmill.models.vllm_calls import EngineStats, PoolAnswer, PoolCall
from corpusmill.settings import ModelSettings
from ray_actors.cluster import _kept
from ray_actors.language_pool import PoolClients, application, language_pools
from tests.unit.models.tasks import Question, make_task
from tests.vllm.conftest import model_settings, settings_of

pytestmark = pytest.mark.usefixtures("local_ray")

REPLICAS = 2
TEXT = "Mira Castell founded Brightwater Press in 1931. The press printed the charts of Captain Oto Lind."


@pytest.fixture(scope="module")
def own(writer: Path) -> ModelSettings:
    return model_settings(writer, min_replicas=REPLICAS)


@pytest.fixture(scope="module")
def handle(own: ModelSettings) -> Iterator[Any]:
    yield language_pools(settings_of(own), ["extract"])[application_name(own)]


def requests() -> list[CompletionRequest]:
    """Calls of every kind that the building of a hypergraph makes."""
    calls: list[tuple[Task[Any, Any], BaseModel]] = []
    statement = RelateStatement(text=TEXT, quote=TEXT, entities=("Mira Castell", "Brightwater Press"))
    for number in range(6):
        chunk = f"{TEXT} It was the year {1900 + number}."
        calls += [
            (EXTRACT, ExtractInput(prefix=(TEXT,) * (number % 3), chunk=chunk)),
            (SUMMARISE_ENTITY, SummariseInput(name="Mira Castell", statements=(chunk,))),
            (RELATE, RelateInput(anchor="Mira Castell", statements=(statement,), names=("Oto Lind", str(number)))),
            (MERGE_SUMMARY, MergeSummaryInput(name="Mira Castell", parts=(chunk, TEXT))),
        ]
    made = []
    for number, (task, inputs) in enumerate(calls):
        system, user = render_prompt(task.prompt, task.render(inputs))
        messages = (Message("system", system), Message("user", user))
        made.append(CompletionRequest(messages, task.output_type, 1024, 1.0, number, f"document {number % 5}"))
    return made


def stats(handle: Any) -> dict[str, EngineStats]:
    """By replica; sessions spread over them."""
    found: dict[str, EngineStats] = {}
    deadline = time.monotonic() + 30
    while len(found) < REPLICAS and time.monotonic() < deadline:
        for _ in range(8):
            one = handle.options(method_name="stats", session_id=uuid4().hex).remote().result(timeout_s=30)
            found[one.replica] = one
        time.sleep(0.2)
    return found


class Noticing:
    """A client that counts the calls whose replica was lost."""

    def __init__(self, inner: CompletionBackend) -> None:
        self._inner = inner
        self.lost = 0

    async def complete(self, request: CompletionRequest) -> Completion:
        try:
            return await self._inner.complete(request)
        except ModelUnavailableError:
            self.lost += 1
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()


def engines_of(replica: EngineStats) -> list[int]:
    """The processes below a replica that compute."""
    return [child.pid for child in psutil.Process(replica.pid).children(recursive=True) if "Engine" in child.name()]


def gone(pid: int, within_s: float) -> bool:
    deadline = time.monotonic() + within_s
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not psutil.pid_exists(pid)


def wait_for_others_than(victim: EngineStats, handle: Any) -> None:
    """Until there are as many replicas as before, and the victim is none of them."""
    deadline = time.monotonic() + 150
    while victim.replica in (now := stats(handle)) or len(now) < REPLICAS:
        assert time.monotonic() < deadline, f"{victim.replica} was not replaced: {sorted(now)}"


def test_every_answer_is_valid_and_counted(own: ModelSettings, handle: Any) -> None:
    client = PoolClients({application_name(own): handle})(own)
    before = stats(handle)
    asked = requests()

    async def run() -> list[Any]:
        return list(await asyncio.gather(*(client.complete(request) for request in asked)))

    completions = asyncio.run(run())
    for request, completion in zip(asked, completions, strict=True):
        assert completion.finish_reason == "stop"
        request.output_type.model_validate_json(completion.text, strict=True)
    after = stats(handle)
    assert sum(one.requests for one in after.values()) == sum(one.requests for one in before.values()) + len(asked)
    told = sum(one.prompt_tokens - before[name].prompt_tokens for name, one in after.items())
    assert told == sum(completion.prompt_tokens for completion in completions) > 0
    written = sum(one.completion_tokens - before[name].completion_tokens for name, one in after.items())
    assert written == sum(completion.completion_tokens for completion in completions) > 0


def test_a_document_stays_on_one_replica_and_finds_its_prefix_there(handle: Any) -> None:
    def ask(document: str, chunks: int) -> PoolAnswer:
        passages = (f"{document}. {TEXT} " * 3,) * chunks
        system, user = render_prompt(EXTRACT.prompt, EXTRACT.render(ExtractInput(prefix=passages, chunk="An end.")))
        request = CompletionRequest(
            (Message("system", system), Message("user", user)), EXTRACT.output_type, 512, 1.0, 0, document
        )
        bound = handle.options(method_name="complete", session_id=document)
        answer = bound.remote(PoolCall.of(request)).result(timeout_s=60)
        assert isinstance(answer, PoolAnswer)
        return answer

    places: dict[str, set[str]] = {}
    for number in range(6):
        document = f"Document {number}"
        first, second = ask(document, 1), ask(document, 2)
        places[document] = {first.replica, second.replica}
        shared = first.prompt_tokens - 64  # all but the end of the first prompt, in blocks of 32
        assert second.cached_tokens >= shared - 32 > 0
    assert all(len(found) == 1 for found in places.values())
    assert len(stats(handle)) == REPLICAS  # other documents are on the other one


def test_a_killed_replica_is_replaced_and_its_calls_run_again(own: ModelSettings, handle: Any) -> None:
    victim = next(iter(stats(handle).values()))
    (engine,) = engines_of(victim)
    meter = Meter()
    client = Noticing(PoolClients({application_name(own): handle})(own))
    models = build_models(settings_of(own), meter=meter, completions=lambda settings: client, calls_in_flight=16)
    task, count = make_task(), 60

    async def run() -> list[Any]:
        model = models.language_model("extract")
        calls = [
            asyncio.create_task(model.generate(task, Question(text=f"{TEXT} {n}"), affinity=f"text {n}"))
            for n in range(count)
        ]
        while sum(call.done() for call in calls) < count // 6:
            await asyncio.sleep(0.01)
        os.kill(victim.pid, signal.SIGKILL)
        return list(await asyncio.gather(*calls))

    results = asyncio.run(run())
    assert client.lost > 0  # the victim had calls
    usage = meter.snapshot().usage["extract"]
    assert usage.calls - usage.repairs == count  # one answer each, whatever was lost
    assert usage.calls == sum(result.usage.calls for result in results)
    assert usage.prompt_tokens == sum(result.usage.prompt_tokens for result in results)
    assert gone(engine, within_s=30)  # it keeps no memory
    wait_for_others_than(victim, handle)


def test_an_engine_that_dies_ends_its_replica_and_its_calls_run_elsewhere(own: ModelSettings, handle: Any) -> None:
    victim = next(iter(stats(handle).values()))
    (engine,) = engines_of(victim)
    client = PoolClients({application_name(own): handle})(own)

    async def run() -> list[Any]:
        asked = [replace(request, affinity=f"text {n}") for n, request in enumerate(requests() * 2)]
        calls = [asyncio.create_task(with_retries(lambda r=r: client.complete(r), 6)) for r in asked]
        while sum(call.done() for call in calls) < 3:
            await asyncio.sleep(0.01)
        os.kill(engine, signal.SIGKILL)
        return list(await asyncio.gather(*calls))

    assert all(completion.finish_reason == "stop" for completion in asyncio.run(run()))
    assert gone(victim.pid, within_s=30)
    wait_for_others_than(victim, handle)


def test_the_metrics_reach_rays_endpoint() -> None:
    node = next(node for node in ray.nodes() if node["Alive"])
    page, deadline = "", time.monotonic() + 60
    while "corpusmill_llm_idle_seconds" not in page and time.monotonic() < deadline:
        time.sleep(0.5)
        address = f"http://127.0.0.1:{node['MetricsExportPort']}/metrics"
        page = httpx.get(address, trust_env=False).text
    rows = [line for line in page.splitlines() if line.startswith("ray_corpusmill_llm_requests_total")]
    assert any('outcome="stop"' in row and float(row.rsplit(" ", 1)[1]) > 0 for row in rows), page[-2000:]
    for name in ("prompt_tokens_total", "cached_tokens_total", "completion_tokens_total", "in_engine"):
        assert f"ray_corpusmill_llm_{name}" in page
    assert "vllm:num_requests_waiting" in page or "vllm_num_requests_waiting" in page


def test_a_prompt_that_is_too_long_is_that_inputs_fault(own: ModelSettings, handle: Any) -> None:
    client = PoolClients({application_name(own): handle})(own)
    request = requests()[0]
    long = CompletionRequest((Message("user", TEXT * 200),), request.output_type, 64)
    with pytest.raises(ModelOutputError, match=r"has \d{4} tokens, and the engine .* takes 2048"):
        asyncio.run(client.complete(long))


def test_an_application_that_runs_is_used_by_its_name_and_left(own: ModelSettings, handle: Any) -> None:
    name = application_name(own)
    leases = set(_kept)
    named = own.model_copy(update={"vllm": own.vllm.model_copy(update={"application": name})})
    client = PoolClients(language_pools(settings_of(named), ["extract", "answer"]))(named)
    assert asyncio.run(client.complete(requests()[1])).completion_tokens > 0
    assert set(_kept) == leases  # none that would end it

    absent = own.model_copy(update={"vllm": own.vllm.model_copy(update={"application": "mine"})})
    with pytest.raises(ConfigError, match=f"no Ray Serve application 'mine' .*{name}"):
        language_pools(settings_of(absent), ["extract"])


def test_a_serve_configuration_can_name_the_application(own: ModelSettings) -> None:
    from ray.serve._private.api import call_user_app_builder_with_args_if_necessary

    made = call_user_app_builder_with_args_if_necessary(application, own.model_dump(mode="json"))
    assert made._bound_deployment.name == "LanguageReplica"


def test_a_pool_that_nobody_uses_any_more_ends(own: ModelSettings, handle: Any) -> None:
    from ray import serve

    name = application_name(own)
    assert serve.status().applications[name].status == "RUNNING"
    for lease in _kept.pop(f"language-{name}"):
        ray.kill(lease)
    deadline = time.monotonic() + 60
    while name in serve.status().applications:
        assert time.monotonic() < deadline, "the application is still there"
        time.sleep(0.25)


@pytest.mark.parametrize(
    ("folder", "engine", "told"),
    [
        ("/nowhere/model", {}, "/nowhere/model"),
        (None, {"kv_cache_gb": 0.0001, "max_model_len": 4096}, "KV cache"),  # as a model too large for its GPU
    ],
)
def test_a_model_that_does_not_load_is_told_with_the_engines_words(
    writer: Path, folder: str | None, engine: dict[str, object], told: str
) -> None:
    from ray import serve

    own = model_settings(folder or writer, **engine)
    with pytest.raises(RunFailedError) as raised:
        language_pools(settings_of(own), ["extract"])
    assert str(own.model) in str(raised.value) and told in str(raised.value)
    assert "Traceback" not in str(raised.value)
    assert application_name(own) not in serve.status().applications
