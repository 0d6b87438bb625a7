"""Several endpoints of one model: shares, affinity, rest after a failure."""

import asyncio
from collections import Counter

import pytest
from pydantic import ValidationError

from corpusmill.errors import ModelRejectedError, ModelUnavailableError
from corpusmill.models.endpoints import REST_S, Place, SpreadCompletions
from corpusmill.models.factory import build_language_model
from corpusmill.models.identity import language_model_fingerprint
from corpusmill.models.structured import Completion, CompletionRequest, Message
from corpusmill.settings import EndpointShare, ModelSettings
from tests.unit.models.fake_endpoint import chat, endpoint
from tests.unit.models.tasks import Names, Question, make_task


class Scripted:
    """Answers with its name, or raises what it is told to."""

    def __init__(self, name):
        self.name = name
        self.error = None
        self.asked = 0
        self.closed = False

    async def complete(self, request):
        self.asked += 1
        if self.error is not None:
            raise self.error
        return Completion(self.name, "stop", 1, 1)

    async def aclose(self):
        self.closed = True


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def spread(clock=None, **weights):
    backends = {name: Scripted(name) for name in weights}
    places = [Place(name, weight, backends[name]) for name, weight in weights.items()]
    return SpreadCompletions(places, clock or Clock()), backends


def ask(over, affinity):
    request = CompletionRequest((Message("user", "x"),), Names, 64, affinity=affinity)
    return asyncio.run(over.complete(request)).text


def test_documents_are_shared_out_by_weight():
    over, _ = spread(a=1.0, b=3.0)
    found = Counter(over.ranked(f"text {n}")[0].name for n in range(4000))
    assert 0.72 < found["b"] / 4000 < 0.78


def test_a_document_stays_where_it_is_and_requests_without_one_are_spread():
    over, backends = spread(a=1.0, b=1.0)
    assert len({ask(over, "one text") for _ in range(20)}) == 1
    for _ in range(40):
        ask(over, None)
    assert min(backend.asked for backend in backends.values()) > 8


def test_only_the_documents_of_the_one_that_fails_move():
    over, backends = spread(a=1.0, b=1.0, c=1.0)
    before = {f"text {n}": ask(over, f"text {n}") for n in range(90)}
    backends["b"].error = ModelUnavailableError("down")
    after = {text: ask(over, text) for text in before}
    assert all(after[text] == name for text, name in before.items() if name != "b")
    moved = Counter(after[text] for text, name in before.items() if name == "b")
    assert set(moved) == {"a", "c"}


def test_one_that_failed_rests_and_is_tried_again():
    clock = Clock()
    over, backends = spread(clock, a=1.0, b=1.0)
    own = next(f"text {n}" for n in range(99) if over.ranked(f"text {n}")[0].name == "a")
    backends["a"].error = ModelUnavailableError("down")
    assert [ask(over, own) for _ in range(5)] == ["b"] * 5
    assert backends["a"].asked == 1
    backends["a"].error = None
    clock.now += REST_S + 1
    assert ask(over, own) == "a"


def test_it_rests_as_long_as_it_asks_for():
    clock = Clock()
    over, backends = spread(clock, a=1.0, b=1.0)
    own = next(f"text {n}" for n in range(99) if over.ranked(f"text {n}")[0].name == "a")
    backends["a"].error = ModelUnavailableError("429", retry_after=300)
    ask(over, own)
    clock.now += REST_S + 1
    ask(over, own)
    assert backends["a"].asked == 1


def test_when_all_fail_each_was_asked_once_and_the_last_error_is_raised():
    over, backends = spread(a=1.0, b=1.0)
    for backend in backends.values():
        backend.error = ModelUnavailableError(f"{backend.name} is down")
    for times in (1, 2):  # while all rest they are asked all the same
        with pytest.raises(ModelUnavailableError, match="is down"):
            ask(over, "x")
        assert [backend.asked for backend in backends.values()] == [times, times]


def test_a_wrong_key_is_told_and_not_hidden_by_the_others():
    over, backends = spread(a=1.0, b=1.0)
    for backend in backends.values():
        backend.error = ModelRejectedError("wrong key")
    with pytest.raises(ModelRejectedError):
        ask(over, "x")
    assert sum(backend.asked for backend in backends.values()) == 1


def test_all_are_closed():
    over, backends = spread(a=1.0, b=1.0)
    asyncio.run(over.aclose())
    assert all(backend.closed for backend in backends.values())


@pytest.mark.parametrize(
    "given",
    [
        {"backend": "vllm"},
        {"base_url": "http://a/v1"},
        {"endpoints": (EndpointShare(base_url="http://a/v1"), EndpointShare(base_url="http://a/v1/"))},
    ],
)
def test_settings_that_do_not_fit_are_refused(given):
    base = {"backend": "openai", "model": "m", "endpoints": (EndpointShare(base_url="http://a/v1"),)}
    with pytest.raises(ValidationError, match="endpoint"):
        ModelSettings(**(base | given))


def test_two_servers_share_the_documents_of_a_model():
    reply = '{"items": [{"name": "A", "year": null}]}'
    with endpoint(lambda call: chat(reply)) as one, endpoint(lambda call: chat(reply)) as two:
        shares = (EndpointShare(base_url=one.url, api_key_env=None), EndpointShare(base_url=two.url, api_key_env=None))
        own = ModelSettings(backend="openai", model="m", endpoints=shares)

        async def run():
            model = build_language_model(own)
            try:
                for number in range(30):
                    await model.generate(make_task(), Question(text="x"), affinity=f"text {number}")
            finally:
                await model.aclose()

        asyncio.run(run())
        assert len(one.calls) + len(two.calls) == 30 and min(len(one.calls), len(two.calls)) > 4
    alone = ModelSettings(backend="openai", model="m", base_url="http://a/v1")
    assert language_model_fingerprint(own) == language_model_fingerprint(alone)
