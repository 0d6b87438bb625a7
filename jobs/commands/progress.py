"""Live progress of a run on stderr: bars on a terminal, plain lines at intervals elsewhere."""

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from corpusmill.run import ProgressEvent

from .common import duration, number

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

PLAIN_EVERY_S = 5.0
QUIET_S = 30.0  # how often a line is repeated while nothing moves
BASIS_S = 10.0  # how long a stage must have moved, and
BASIS_STEPS = 5  # how often, before the time left is told
WINDOW_S = (30.0, 600.0)  # the rate is that of the last half of the stage's time, within these bounds, and
WINDOW_UNITS = 30  # of so many units at least: documents are of all sizes
CALM_S = 30.0  # the time left may change by a factor of e in this time, beside running down


@dataclass
class StageClock:
    """How far a stage is, how fast, and how long it will still take.

    Time counts from the first unit done: what workers take to start says nothing of their pace.
    """

    started: float
    first: ProgressEvent | None = None
    last: ProgressEvent | None = None
    printed: float = 0.0
    grows: bool = False  # the total is still being found out
    steps: int = 0  # times that `done` rose
    begun: float | None = None  # when it rose first
    seen: deque[tuple[float, int]] = field(default_factory=deque)  # (time, done) of the window
    told: tuple[float, float] | None = None  # (time, seconds left) as last told

    def see(self, event: ProgressEvent, now: float) -> None:
        if self.first is None:
            self.first = event
        before = self.last if self.last is not None else event
        if before.total and event.total and event.total > before.total:
            self.grows = True
        if event.done > before.done:
            self.steps += 1
            self.begun = now if self.begun is None else self.begun
            if not self.seen or now - self.seen[-1][0] >= 1.0:
                self.seen.append((now, event.done))
            window = min(max((now - self.begun) / 2, WINDOW_S[0]), WINDOW_S[1])
            while (
                len(self.seen) > 2 and now - self.seen[1][0] >= window and event.done - self.seen[1][1] >= WINDOW_UNITS
            ):
                self.seen.popleft()
        self.last = event

    def rate(self, now: float) -> float | None:
        """Units a second lately; None before there is something to tell it by, and while the total is found out: such
        units are of all sizes."""
        if self.last is None or self.grows or not self.seen or now - self.seen[0][0] < 1.0:
            return None
        done = self.last.done - self.seen[0][1]
        return done / (now - self.seen[0][0]) if done > 0 else None

    def left(self, now: float) -> float | None:
        """Seconds left, None while there is no basis. What was told before runs down and changes gradually."""
        rate = self.rate(now)
        if rate is None or self.last is None or self.last.total is None or self.begun is None:
            return None
        if now - self.begun < BASIS_S or self.steps < BASIS_STEPS:
            return None
        left = max(0.0, (self.last.total - self.last.done) / rate)
        if self.told is not None and left:
            at, seconds = self.told
            expected, change = max(1.0, seconds - (now - at)), math.exp((now - at) / CALM_S)
            left = min(max(left, expected / change), expected * change)
        self.told = (now, left)
        return left


def spent(event: ProgressEvent) -> str:
    """Calls, tokens and cost so far, as far as there are any."""
    usage, parts = event.usage, []
    if usage.calls or usage.cached:
        cached = f" (+{number(usage.cached)} cached)" if usage.cached else ""
        parts.append(f"{number(usage.calls)} calls{cached}")
    tokens = usage.prompt_tokens + usage.completion_tokens
    if tokens:
        parts.append(f"{number(tokens)} tokens")
    if event.embedded_texts:
        parts.append(f"{number(event.embedded_texts)} embedded")
    if usage.cost:
        parts.append(f"cost {usage.cost:,.4g}")
    return ", ".join(parts)


def line(event: ProgressEvent, clock: StageClock, now: float) -> str:
    """One plain line: `build: 120/500 documents, 340 calls, 12.1/s, 31.4 s left`."""
    of = f"/{number(event.total)}" if event.total is not None else ""
    parts = [f"{event.stage}: {number(event.done)}{of} {event.unit}", spent(event)]
    rate, left = clock.rate(now), clock.left(now)
    if rate is not None:
        parts.append(f"{rate:,.2g}/s" if rate < 10 else f"{rate:,.0f}/s")
    if left is not None and left > 0:
        parts.append(f"{duration(left)} left")
    return ", ".join(part for part in parts if part)


class Display(Protocol):
    """A progress sink that must be closed."""

    def __call__(self, event: ProgressEvent) -> None: ...

    def __enter__(self) -> "Display": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@dataclass
class PlainDisplay:
    """Prints a message at once, and a line a stage every few seconds and at its end."""

    say: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    every_s: float = PLAIN_EVERY_S
    stages: dict[str, StageClock] = field(default_factory=dict)
    said: dict[str, tuple[object, ...]] = field(default_factory=dict)

    def __call__(self, event: ProgressEvent) -> None:
        now = self.clock()
        stage = self.stages.setdefault(event.stage, StageClock(now, printed=now))
        if event.message:
            self.say(event.message)
        finished = bool(event.total) and event.done >= (event.total or 0)
        was_finished = stage.last is not None and bool(stage.last.total) and stage.last.done >= (stage.last.total or 0)
        stage.see(event, now)
        said = (event.done, event.total, event.usage, event.embedded_texts)
        every = self.every_s if said != self.said.get(event.stage) else QUIET_S
        if event.message is None and (now - stage.printed >= every or (finished and not was_finished)):
            stage.printed = now
            self.said[event.stage] = said
            self.say(line(event, stage, now))

    def __enter__(self) -> "PlainDisplay":
        return self

    def __exit__(self, *_: object) -> None:
        return None


class RichDisplay:
    """One bar a stage."""

    def __init__(self, console: "Console") -> None:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._console = console
        self._bars: Progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description:<20}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[count]}", markup=False),
            TimeElapsedColumn(),
            TextColumn("{task.fields[spent]}", markup=False, style="dim"),
            console=console,
        )
        self._tasks: dict[str, TaskID] = {}
        self._clocks: dict[str, StageClock] = {}

    def __call__(self, event: ProgressEvent) -> None:
        now = time.monotonic()
        if event.message:
            self._console.print(event.message)
            if event.total is None and event.done == 0:
                return
        if event.stage == "plan":
            return
        if event.stage not in self._tasks:
            self._finish_earlier()
            self._tasks[event.stage] = self._bars.add_task(event.stage, total=event.total, count="", spent="")
            self._clocks[event.stage] = StageClock(now)
        clock = self._clocks[event.stage]
        clock.see(event, now)
        left = clock.left(now)
        of = f"/{number(event.total)}" if event.total is not None else ""
        self._bars.update(
            self._tasks[event.stage],
            completed=event.done,
            total=event.total,
            count=f"{number(event.done)}{of} {event.unit}",
            spent=", ".join(p for p in (spent(event), f"{duration(left)} left" if left else "") if p),
        )

    def _finish_earlier(self) -> None:
        """Stages follow one another: the next one's first event ends the one before."""
        for task in self._bars.tasks:
            if not task.finished:
                total = task.total if task.total is not None else max(task.completed, 1)
                self._bars.update(task.id, total=total, completed=total)

    def __enter__(self) -> "RichDisplay":
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()


def display(console: "Console") -> Display:
    """Bars where stderr is a terminal, else plain lines."""
    if console.is_terminal:
        return RichDisplay(console)
    return PlainDisplay(lambda text: console.print(text))
