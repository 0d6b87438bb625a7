"""What a Spark stage's program tells its driver."""

import io
import json
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from corpusmill_jobs import stage


class Once(threading.Event):
    """Lets a loop that waits for it run once."""

    def wait(self, timeout: float | None = None) -> bool:
        over, _ = self.is_set(), self.set()
        return over


def watched(counts: Any, tasks: int = 8) -> dict[str, object] | None:
    info = SimpleNamespace(numCompletedTasks=3, numTasks=tasks)
    tracker = SimpleNamespace(getActiveStageIds=lambda: [1], getStageInfo=lambda number: info)
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))
    out = io.StringIO()
    stage._watch(spark, stage._Told(out), Once(), counts)
    lines = out.getvalue().splitlines()
    return json.loads(lines[0])["progress"] if lines else None


def counted(listed: int, read: int) -> Any:
    return SimpleNamespace(listed=SimpleNamespace(value=listed), read=SimpleNamespace(value=read))


@pytest.mark.parametrize(
    ("counts", "progress"),
    [
        (counted(40, 12), {"done": 12, "total": 40, "unit": "documents"}),
        (counted(40, 55), {"done": 40, "total": 40, "unit": "documents"}),  # a task ran twice
        (counted(0, 0), {"done": 3, "total": 8, "unit": "Spark tasks"}),
        (None, {"done": 3, "total": 8, "unit": "Spark tasks"}),
    ],
)
def test_progress_is_told_in_documents_where_they_are_counted(counts: Any, progress: dict[str, object]) -> None:
    assert watched(counts) == progress


def test_nothing_is_told_before_spark_has_tasks() -> None:
    assert watched(None, tasks=0) is None
