"""Progress lines: counts, rate, time left, and how often they are printed."""

import io
from collections.abc import Callable

import pytest
from corpusmill_jobs.commands.progress import PlainDisplay, RichDisplay, StageClock, line
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from corpusmill.models.contracts import Usage
from corpusmill.run import ProgressEvent


def test_a_line_tells_counts_spending_rate_and_time_left() -> None:
    clock = StageClock(100.0)
    for second in range(11):
        clock.see(ProgressEvent("build", 10 * second, 500), 120.0 + second)
    event = ProgressEvent("build", 110, 500, usage=Usage(calls=300, cached=20, prompt_tokens=9000, cost=0.5))
    clock.see(event, 131.0)
    said = line(event, clock, 131.0)
    assert said == "build: 110/500 documents, 300 calls (+20 cached), 9,000 tokens, cost 0.5, 10/s, 39.0 s left"


def test_nothing_is_guessed_without_a_total_or_progress() -> None:
    clock = StageClock(0.0)
    clock.see(ProgressEvent("ingest", 0), 0.0)
    assert clock.left(10.0) is None
    assert line(ProgressEvent("ingest", 0), clock, 10.0) == "ingest: 0 documents"


def test_plain_lines_come_at_intervals_and_at_the_end() -> None:
    said: list[str] = []
    now = [0.0]
    with PlainDisplay(said.append, clock=lambda: now[0], every_s=5.0) as show:
        for second in range(13):
            now[0] = float(second)
            show(ProgressEvent("build", second, 12))
        show(ProgressEvent("build", 12, 12))
    assert [text.split(" ")[1] for text in said] == ["5/12", "10/12", "12/12"]


def test_a_line_is_not_repeated_while_nothing_moves() -> None:
    said: list[str] = []
    now = [0.0]
    show = PlainDisplay(said.append, clock=lambda: now[0], every_s=5.0)
    for second in range(65):
        now[0] = float(second)
        show(ProgressEvent("ingest", 0, 0, unit="tasks"))
    assert len(said) == 2  # after five seconds, then every half minute


def test_no_time_left_is_told_while_the_total_grows() -> None:
    clock = StageClock(0.0)
    for second in range(60):
        clock.see(ProgressEvent("ingest", second, 80 if second < 30 else 160), float(second))
        assert (clock.left(float(second)) is not None) == (11 <= second < 30)


def run_of(pace: Callable[[int], float], seconds: int, total: int, start: int = 0) -> list[tuple[int, float | None]]:
    """(second, time left) of a stage that is done with `pace(second)` units each second, after `start` idle ones."""
    clock, done, told = StageClock(0.0), 0.0, []
    for second in range(seconds):
        done = min(total, done + (pace(second) if second >= start else 0))
        clock.see(ProgressEvent("build", int(done), total), float(second))
        told.append((second, clock.left(float(second))))
    return told


def test_there_is_no_time_left_before_there_is_a_basis() -> None:
    slow = run_of(lambda _: 0.25, 100, 1000)  # a unit every four seconds
    assert [left for second, left in slow if second < 19] == [None] * 19  # the fifth is done after 19 seconds
    quick = run_of(lambda _: 100, 100, 10_000)
    assert [left is None for _, left in quick] == [second < 11 for second in range(100)]  # begun at 1


def test_time_that_workers_take_to_start_does_not_count() -> None:
    told = run_of(lambda _: 10, 150, 1000, start=60)
    assert all(left == pytest.approx(1000 / 10 - (second - 59), abs=2) for second, left in told if left is not None)
    assert told[75][1] is not None


@given(st.lists(st.integers(0, 400), min_size=12, max_size=12), st.integers(0, 40))
def test_the_time_left_does_not_jump(paces: list[int], start: int) -> None:
    """Whatever the pace does, five seconds later it is about half more or a third less than run down, at most."""
    told = run_of(lambda second: paces[second // 20], 240, 30_000, start)
    for (_, before), (second, after) in zip(told, told[5:], strict=False):
        if before is not None and after:
            expected = max(1.0, before - 5)
            assert expected / 1.5 - 5 <= after <= expected * 1.5 + 5, second


def test_a_lasting_change_of_pace_is_told() -> None:
    told = dict(run_of(lambda second: 100 if second < 100 else 10, 300, 20_000))
    assert told[99] == pytest.approx(100, rel=0.1)
    assert told[280] == pytest.approx((20_000 - 100 * 100 - 180 * 10) / 10, rel=0.1)


def test_documents_of_all_sizes_leave_a_usable_estimate() -> None:
    """A few documents take half of the time: small ones are done in bursts, and nothing is done for a minute and more."""
    done_at = {1: 5, 9: 18, 17: 24, 22: 54, 25: 78, 32: 168, 40: 174, 42: 222, 50: 246, 52: 276, 59: 282, 60: 312}
    done = [max((count for count, at in done_at.items() if at <= second), default=0) for second in range(342)]
    told = run_of(lambda second: done[second] - (done[second - 1] if second else 0), 342, 61)
    for second, left in told[80:300]:
        assert left is not None and (342 - second) / 3 < left < (342 - second) * 3, (second, left)


def test_messages_are_printed_at_once() -> None:
    said: list[str] = []
    with PlainDisplay(said.append) as show:
        show(ProgressEvent("plan", 1, 1, message="plan: 3 new"))
    assert said == ["plan: 3 new"]


def test_bars_show_every_stage() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=160, markup=False, highlight=False)
    with RichDisplay(console) as show:
        show(ProgressEvent("plan", 1, 1, message="plan: 3 new"))
        show(ProgressEvent("build", 2, 4, usage=Usage(calls=7)))
        show(ProgressEvent("merge", 1, None, unit="Spark tasks"))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for word in ("plan: 3 new", "build", "2/4 documents", "7 calls", "merge", "1 Spark tasks"):
        assert word in text
