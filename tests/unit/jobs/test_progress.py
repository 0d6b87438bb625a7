"""Progress lines: counts, rate, time left, and how often they are printed."""

import io

from corpusmill_jobs.commands.progress import PlainDisplay, RichDisplay, StageClock, line
from rich.console import Console

from corpusmill.models.contracts import Usage
from corpusmill.run import ProgressEvent


def test_a_line_tells_counts_spending_rate_and_time_left() -> None:
    clock = StageClock(100.0)
    clock.see(ProgressEvent("build", 0, 500))
    event = ProgressEvent("build", 100, 500, usage=Usage(calls=300, cached=20, prompt_tokens=9000, cost=0.5))
    clock.see(event)
    said = line(event, clock, 110.0)
    assert said == "build: 100/500 documents, 300 calls (+20 cached), 9,000 tokens, cost 0.5, 10/s, 40.0 s left"


def test_nothing_is_guessed_without_a_total_or_progress() -> None:
    clock = StageClock(0.0)
    clock.see(ProgressEvent("ingest", 0))
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
    for done, total in ((0, 8), (4, 8), (6, 16)):
        clock.see(ProgressEvent("ingest", done, total))
    assert clock.left(60.0) is None


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
        show(ProgressEvent("merge", 1, None, unit="tasks"))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for word in ("plan: 3 new", "build", "2/4 documents", "7 calls", "merge", "1 tasks"):
        assert word in text
