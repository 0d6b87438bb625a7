"""Live progress of a stage: polls the ledger beside the work."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import ray

from corpusmill.run import Progress, ProgressEvent
from ray_actors.ledger import Totals
from ray_actors.metrics import StageMetrics

POLL_S = 0.5


@contextmanager
def live_progress(ledger: Any, progress: Progress, stage: str, total: int | None, unit: str) -> Iterator[None]:
    """Call `progress` at the start, every half second from a thread, and once at the end (also after an error)."""
    over = threading.Event()
    last = Totals()
    metrics = StageMetrics(stage, unit, total)

    def show(totals: Totals) -> None:
        usage, texts = totals.meter.total, totals.meter.embedded_texts
        done = totals.done if total is None else min(totals.done, total)
        progress(ProgressEvent(stage, done, total, unit, usage, texts))

    def poll() -> None:
        nonlocal last
        while not over.wait(POLL_S):
            try:
                last = ray.get(ledger.totals.remote(), timeout=10 * POLL_S)
            except ray.exceptions.RayError:  # busy or gone; the work itself will tell
                continue
            show(last)
            metrics.heard(last.done, last.meter, running=True)

    show(last)
    thread = threading.Thread(target=poll, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        with suppress(ray.exceptions.RayError):
            last = ray.get(ledger.totals.remote(), timeout=10 * POLL_S)
        show(last)
        metrics.heard(last.done, last.meter, running=False)
