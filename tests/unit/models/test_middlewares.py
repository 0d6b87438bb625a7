import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.errors import BudgetReachedError, ModelOutputError, ModelUnavailableError
from corpusmill.models.budget import Budget, BudgetedModel
from corpusmill.models.cached import CachedModel
from corpusmill.models.contracts import Usage
from corpusmill.models.limits import WINDOW_S, Gate, GatedModel, MinuteWindow, RateLimitedModel
from corpusmill.models.metered import Meter, MeteredModel
from corpusmill.models.retrying import RetryingModel
from tests.unit.models.tasks import DictCache, Names, Question, ScriptedModel, make_task

TASK = make_task()


def ask(model, text="a"):
    return model.generate(TASK, Question(text=text))


# --- cache


@given(st.lists(st.integers(0, 4), min_size=1, max_size=20))
@settings(max_examples=30, deadline=None)
def test_equal_calls_in_flight_are_made_once_and_paid_once(asked):
    async def run():
        inner = ScriptedModel(delay=0.001)
        model = CachedModel(inner, DictCache())
        found = await asyncio.gather(*(ask(model, str(n)) for n in asked))
        assert [g.value.items[0].name for g in found] == [str(n) for n in asked]
        assert inner.calls == len(set(asked))
        total = sum((g.usage for g in found), Usage())
        assert (total.calls, total.cached) == (len(set(asked)), len(asked) - len(set(asked)))

    asyncio.run(run())


def test_a_second_process_reads_what_the_first_wrote():
    async def run():
        cache, first, second = DictCache(), ScriptedModel(), ScriptedModel()
        made = await ask(CachedModel(first, cache))
        again = await ask(CachedModel(second, cache))
        assert again.value == made.value and second.calls == 0 and again.usage == Usage(cached=1)

    asyncio.run(run())


def test_failures_do_not_enter_the_cache_and_their_cost_is_told_once():
    def fail(_):
        raise ModelOutputError("bad", usage=Usage(calls=2))

    async def run():
        cache, meter = DictCache(), Meter()
        model = MeteredModel(CachedModel(ScriptedModel(fail, delay=0.001), cache), "extract", meter)
        results = await asyncio.gather(*(ask(model) for _ in range(5)), return_exceptions=True)
        assert all(isinstance(r, ModelOutputError) for r in results) and not cache.rows
        assert meter.snapshot().total.calls == 2
        assert meter.snapshot().failures == {"ModelOutputError": 5}

    asyncio.run(run())


def test_a_cached_value_of_an_older_form_is_asked_for_again():
    async def run():
        cache, inner = DictCache(), ScriptedModel()
        model = CachedModel(inner, cache)
        await ask(model)
        (place,) = cache.rows
        cache.rows[place] = b'{"names": []}'
        assert isinstance((await ask(model)).value, Names)
        assert inner.calls == 2

    asyncio.run(run())


def test_one_cancelled_waiter_does_not_cancel_the_others():
    async def run():
        inner = ScriptedModel(delay=0.05)
        model = CachedModel(inner, DictCache())
        leader, follower = asyncio.create_task(ask(model)), asyncio.create_task(ask(model))
        await asyncio.sleep(0.01)
        leader.cancel()
        assert (await follower).value.items[0].name == "a"
        assert leader.cancelled() and inner.calls == 1

    asyncio.run(run())


def test_a_call_that_nobody_waits_for_is_cancelled():
    async def run():
        inner, cache = ScriptedModel(delay=0.05), DictCache()
        call = asyncio.create_task(ask(CachedModel(inner, cache)))
        await asyncio.sleep(0.01)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await asyncio.sleep(0.08)
        assert inner.in_flight == 0 and not cache.rows

    asyncio.run(run())


# --- retry


def retrying(failures, retries=3, retry_after=None):
    waits = []

    def script(n):
        if n < failures:
            raise ModelUnavailableError("busy", retry_after=retry_after, usage=Usage(calls=1, cost=1.0))
        return Usage(calls=1, cost=1.0)

    async def sleep(seconds):
        waits.append(seconds)

    inner = ScriptedModel(script)
    return inner, RetryingModel(inner, retries, sleep), waits


def test_retries_until_it_is_there_and_counts_what_failed():
    inner, model, waits = retrying(2)
    assert asyncio.run(ask(model)).usage == Usage(calls=3, cost=3.0)
    assert inner.calls == 3 and len(waits) == 2


def test_gives_up_after_the_retries_and_says_how_often():
    inner, model, _ = retrying(99)
    with pytest.raises(ModelUnavailableError, match="tried 4 times") as error:
        asyncio.run(ask(model))
    assert inner.calls == 4 and error.value.usage == Usage(calls=4, cost=4.0)


def test_waits_at_least_as_long_as_the_endpoint_asks():
    _, model, waits = retrying(3, retry_after=7.5)
    asyncio.run(ask(model))
    assert all(wait >= 7.5 for wait in waits)


def test_an_invalid_output_is_not_retried():
    def bad(_):
        raise ModelOutputError("nonsense")

    inner = ScriptedModel(bad)
    with pytest.raises(ModelOutputError):
        asyncio.run(ask(RetryingModel(inner, 5)))
    assert inner.calls == 1


# --- budget


@given(
    max_calls=st.integers(0, 12),
    spends=st.lists(st.sampled_from([1, 2]), min_size=1, max_size=20),
    width=st.integers(1, 8),
)
@settings(max_examples=40, deadline=None)
def test_calls_never_exceed_the_budget(max_calls, spends, width):
    async def run():
        budget = Budget(max_calls=max_calls)
        inner = ScriptedModel(lambda n: Usage(calls=spends[n % len(spends)]), delay=0.0005)
        model = GatedModel(BudgetedModel(inner, budget), Gate(width))
        found = await asyncio.gather(*(ask(model) for _ in spends), return_exceptions=True)
        refused = [f for f in found if isinstance(f, BaseException)]
        assert all(isinstance(f, BudgetReachedError) for f in refused)
        assert budget.calls == sum(f.usage.calls for f in found if not isinstance(f, BaseException)) <= max_calls
        if refused:  # it stops only when the next worst case would not fit
            assert budget.calls + 2 > max_calls

    asyncio.run(run())


@given(limit=st.floats(0.0001, 0.01), width=st.integers(1, 10))
@settings(max_examples=30, deadline=None)
def test_money_never_exceeds_the_budget(limit, width):
    async def run():
        budget = Budget(max_cost=limit)
        inner = ScriptedModel(lambda n: Usage(calls=2, repairs=1, cost=2 * (10 * 1e-6 + 64 * 4e-6)), delay=0.0005)
        model = BudgetedModel(inner, budget, price_in=1.0, price_out=4.0)
        await asyncio.gather(*(ask(model) for _ in range(width)), return_exceptions=True)
        assert budget.cost <= limit

    asyncio.run(run())


def test_a_failed_call_is_settled_at_what_it_cost():
    def fail(n):
        if n == 0:
            raise ModelOutputError("bad", usage=Usage(calls=2))
        return Usage(calls=1)

    async def run():
        budget = Budget(max_calls=4)
        model = BudgetedModel(ScriptedModel(fail), budget)
        with pytest.raises(ModelOutputError):
            await ask(model)
        await ask(model)
        assert budget.calls == 3
        with pytest.raises(BudgetReachedError, match=r"run\.max_calls is 4"):
            await ask(model)

    asyncio.run(run())


# --- limits


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    async def sleep(self, seconds):
        self.now += seconds


@given(st.integers(1, 5), st.lists(st.floats(0, 40), min_size=1, max_size=25))
@settings(max_examples=50, deadline=None)
def test_no_minute_holds_more_than_the_limit(limit, gaps):
    async def run():
        clock = Clock()
        window = MinuteWindow(limit, clock, clock.sleep)
        times = []
        for gap in gaps:
            clock.now += gap
            await window.take(1)
            times.append(clock.now)
        for t in times:
            assert sum(1 for other in times if t - WINDOW_S < other <= t) <= limit

    asyncio.run(run())


def test_tokens_really_used_replace_the_estimate():
    async def run():
        clock = Clock()
        inner = ScriptedModel(lambda n: Usage(calls=1, prompt_tokens=90, completion_tokens=10))
        model = RateLimitedModel(inner, None, 100, clock, clock.sleep)
        await ask(model)
        assert clock.now == 0
        await ask(model)
        assert clock.now >= WINDOW_S

    asyncio.run(run())


def test_an_amount_above_the_limit_passes_alone():
    async def run():
        clock = Clock()
        window = MinuteWindow(10, clock, clock.sleep)
        await window.take(50)
        assert clock.now == 0
        await window.take(1)
        assert clock.now >= WINDOW_S

    asyncio.run(run())


def test_the_gate_bounds_calls_in_flight():
    async def run():
        inner = ScriptedModel(delay=0.005)
        gate = Gate(3)
        models = [GatedModel(inner, gate) for _ in range(2)]
        await asyncio.gather(*(ask(models[i % 2], str(i)) for i in range(12)))
        assert inner.most_in_flight == 3

    asyncio.run(run())


# --- meter


def test_the_meter_adds_up_by_role_and_shows_in_prometheus_form():
    from prometheus_client import generate_latest

    async def run():
        meter = Meter()
        model = MeteredModel(ScriptedModel(), "extract", meter)
        await asyncio.gather(*(ask(model) for _ in range(4)))
        return meter

    meter = asyncio.run(run())
    meter.record_embedding(7, 0.5)
    state = meter.snapshot()
    assert state.usage["extract"].calls == 4 and sum(state.latencies["extract"]) == 4
    other = Meter()
    other.merge(state)
    other.merge(state)
    assert other.snapshot().total.prompt_tokens == 80 and other.snapshot().embedded_texts == 14
    text = generate_latest(meter.registry).decode()
    assert 'corpusmill_model_calls_total{role="extract"} 4.0' in text
    assert "corpusmill_embedded_texts_total 7.0" in text
    assert 'corpusmill_model_wait_seconds_count{role="extract"} 4.0' in text


# --- the whole stack


def test_a_model_that_is_handed_in_is_wrapped_and_left_open():
    from corpusmill.models.factory import build_models
    from corpusmill.settings import RunSettings, Settings

    async def run():
        inner, meter, cache = ScriptedModel(), Meter(), DictCache()
        own = Settings(run=RunSettings(max_calls=3))
        models = build_models(own, meter=meter, cache=cache, language_model=inner)
        model = models.language_model("extract")
        await ask(model, "a")
        await ask(model, "a")
        await ask(models.language_model("answer"), "b")
        with pytest.raises(BudgetReachedError):
            await ask(model, "c")
        await models.aclose()
        assert inner.calls == 2 and not inner.closed
        assert (meter.snapshot().usage["extract"].calls, meter.snapshot().usage["extract"].cached) == (1, 1)

    asyncio.run(run())
