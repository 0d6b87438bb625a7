"""The state of a run under way, and its signs of life in the store."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from corpusmill.errors import StoreUnavailableError
from corpusmill.processes import this_process
from corpusmill.run import Progress, ProgressEvent, RunSpec
from corpusmill.steps import ResolvedPlan
from corpusmill.store.manifest import Costs, Manifest
from corpusmill.store.objects import ObjectStore
from corpusmill.store.runs import RunFiles, RunState, RunStatus, now

HEARTBEAT_S = 5.0


@dataclass
class Run:
    """The state of one run, passed along its stages."""

    spec: RunSpec
    store: ObjectStore
    files: RunFiles
    plan: ResolvedPlan
    parent: Manifest | None
    progress: Progress
    started: float = field(default_factory=time.monotonic)
    seconds: dict[str, float] = field(default_factory=dict)
    state: RunState | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)  # of `state` and its file
    carried: Costs = field(default_factory=Costs)  # what rounds that lost the race for the commit have cost
    spent: Costs = field(default_factory=Costs)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        begin = time.monotonic()
        self.say(status="running", stage=name)
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - begin

    def say(self, *, status: RunStatus, stage: str, message: str | None = None, snapshot: int | None = None) -> None:
        with self.lock:
            self.state = RunState(
                run=self.spec.run,
                status=status,
                stage=stage,
                started=self.state.started if self.state else now(),
                heartbeat=now(),
                source=self.spec.source,
                snapshot=snapshot,
                message=message,
                process=this_process(),
            )
            self.files.put_state(self.state)

    def report(self, event: ProgressEvent) -> None:
        """Pass an event on, and keep how far the stage is for the next heartbeat."""
        self.progress(event)
        with self.lock:
            if self.state is not None:
                how_far = {"stage": event.stage, "done": event.done, "total": event.total}
                self.state = self.state.model_copy(update=how_far)

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Renew the heartbeat within the block, also where a stage has nothing to report for long."""
        over = threading.Event()
        thread = threading.Thread(target=self._beat, args=(over,), name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _beat(self, over: threading.Event) -> None:
        while not over.wait(HEARTBEAT_S):
            with self.lock:
                if self.state is None or self.state.status != "running":
                    continue
                self.state = self.state.model_copy(update={"heartbeat": now()})
                with suppress(StoreUnavailableError):  # if it lasts, the run's own writes will tell
                    self.files.put_state(self.state)
