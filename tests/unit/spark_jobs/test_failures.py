"""What a failure inside Spark comes to."""

import pytest

from corpusmill.errors import ConfigError
from spark_jobs.failures import cause
from spark_jobs.probe import reason_of

WORKER = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "reading.py", line 14, in <module>
    from corpusmill.planning import TEXT_FINGERPRINT
{last}
"""
LOST = "Job aborted due to stage failure: Task 0 failed 4 times: Lost task 0.3 in stage 1.0 (TID 7) (10.0.0.7 executor 2): "
EXCLUDED = """
ExcludeOnFailure behavior can be configured via spark.excludeOnFailure.*.

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:1)
"""


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            WORKER.format(last="corpusmill.errors.SourceError: cannot read a.jsonl"),
            "SourceError",
            "cannot read a.jsonl",
        ),
        (WORKER.format(last="ModuleNotFoundError: No module named 'm'"), "RunFailedError", "ModuleNotFoundError: No"),
        (WORKER.format(last="ValueError: bad") + EXCLUDED, "RunFailedError", "ValueError: bad"),
        ("Job aborted.\n\tat org.apache.spark", "RunFailedError", "ValueError: Job aborted."),
        (
            "An error occurred while calling o9.collect.\n: org.apache.X: why\n\tat y",
            "RunFailedError",
            "org.apache.X: why",
        ),
        ("", "RunFailedError", "ValueError"),
    ],
)
def test_a_failure_is_told_by_its_cause(text: str, kind: str, message: str) -> None:
    told = cause(ValueError(text))
    assert told[0] == kind and told[1].startswith(message)


def test_an_error_of_ours_stays_what_it_is() -> None:
    assert cause(ConfigError("x must be y")) == ("ConfigError", "x must be y")


FULL = "OSError: [Errno 28] No space left on device"


@pytest.mark.parametrize(
    ("last", "folders", "said"),
    [
        (f"{FULL}: '/scratch/a'", {}, "no space is left on 10.0.0.7 in /scratch/a"),
        (FULL, {"10.0.0.7": "/tmp/w"}, "no space is left on 10.0.0.7 in /tmp/w"),
        ("java.io.IOException: No space left on device", {}, "no space is left on 10.0.0.7 in the folder of its temp"),
    ],
)
def test_a_full_disk_names_host_and_folder(last: str, folders: dict[str, str], said: str) -> None:
    kind, message = cause(ValueError(LOST + WORKER.format(last=last)), folders)
    assert kind == "RunFailedError" and message.startswith(said)


def test_a_full_disk_that_a_store_told_of_names_the_host_too() -> None:
    own = "corpusmill.errors.StoreUnavailableError: cannot write a temporary file in /t: No space left on device"
    assert cause(ValueError(LOST + WORKER.format(last=own))) == (
        "StoreUnavailableError",
        "on 10.0.0.7: cannot write a temporary file in /t: No space left on device",
    )


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            'java.io.IOException: Cannot run program "/x/python": error=2, No such file or directory\n\tat java.base',
            'Python does not start there: Cannot run program "/x/python": error=2, No such file or directory',
        ),
        (
            "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n  File w\n"
            "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has "
            "different version: 3.9 than that in driver: 3.11\n\n\tat org.apache",
            "Python in worker has different version: 3.9 than that in driver: 3.11",
        ),
        ("", "no reason was given"),
    ],
)
def test_why_a_host_could_not_be_looked_at(message: str, said: str) -> None:
    assert reason_of(message) == said
