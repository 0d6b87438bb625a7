"""Commands as jobs of a Ray cluster, over HTTP through its job server: submit, follow, stop.

The log is read whole at each look, less often as it grows: a cut connection or a restarted job server then costs
nothing, and no line is lost or told twice.
"""

import os
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from corpusmill.errors import RunFailedError, UsageError

if TYPE_CHECKING:
    from ray.job_submission import JobDetails, JobSubmissionClient

REQUEST_S = 30.0
LOST_S = 300.0  # a job server that has not answered for so long is given up
LOOK_S = 1.0
_LOG_BYTES_PER_S = 200_000  # a log of so many bytes is looked at a second less often
_ENDED = ("SUCCEEDED", "FAILED", "STOPPED")


class Unanswered(UsageError):
    """Nothing answers at the address of a job server."""


class UnknownJob(UsageError):
    """The job server has no job of that id."""


@dataclass(frozen=True)
class Job:
    """A command to run on the cluster. `environment` is seen by it and all that it starts there. `cpus` and `resources`
    say which node may run the command itself (none: the head)."""

    id: str
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    cpus: float | None = None
    resources: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class JobEnd:
    """How a job ended, in Ray's words: SUCCEEDED, FAILED or STOPPED. `exit_code` of the command, where it ended by
    itself."""

    status: str
    message: str
    exit_code: int | None


class JobServer:
    """The job server of one cluster. Raises Unanswered where it does not answer, UsageError where it refuses."""

    def __init__(self, address: str) -> None:
        if not address.startswith(("http://", "https://")):
            raise UsageError(f"{address!r} is no address of a Ray job server; it looks like http://HEAD:8265")
        self.address = address
        with self._asking():
            self._client = _client(address)

    def submit(self, job: Job) -> None:
        """Start it. Raises UsageError where the cluster refuses it (an id that is taken, say)."""
        with self._asking():
            self._client.submit_job(
                entrypoint=shlex.join(job.command),
                submission_id=job.id,
                runtime_env={"env_vars": {"PYTHONUNBUFFERED": "1", **job.environment}},
                entrypoint_num_cpus=job.cpus,
                entrypoint_resources=dict(job.resources) or None,
            )

    def jobs(self) -> "list[JobDetails]":
        with self._asking():
            return self._client.list_jobs()

    def details(self, job: str) -> "JobDetails":
        """Raises UsageError on an id that is not there."""
        with self._asking():
            return self._client.get_job_info(job)

    def log(self, job: str) -> str:
        with self._asking():
            return self._client.get_job_logs(job)

    def stop(self, job: str) -> None:
        """Ask the job to end: SIGTERM to its processes, SIGKILL after a few seconds."""
        with self._asking():
            self._client.stop_job(job)

    def follow(self, job: str, line: Callable[[str], None], patience: float = LOST_S) -> JobEnd:
        """Call `line` with each whole line of the log until the job ends.

        A job that the server has forgotten went with the cluster's head. Raises RunFailedError where the server has not
        answered for `patience` seconds; the job may still go on.
        """
        read, answered, seen = 0, time.monotonic(), False
        while True:
            try:
                details = self.details(job)
                text = self.log(job)
                answered, seen = time.monotonic(), True
            except UnknownJob as error:
                if not seen:
                    raise
                return JobEnd("FAILED", f"the cluster's head was started anew and knows no such job: {error}", None)
            except Unanswered as error:
                if time.monotonic() - answered > patience:
                    raise RunFailedError(
                        f"the job server has not answered for {patience:.0f} s; run {job} may still go on there, see "
                        f"`corpusmill submit status {job} --ray-address {self.address}`: {error}"
                    ) from error
                time.sleep(LOOK_S)
                continue
            ended = details.status.value in _ENDED
            whole = len(text) if ended else text.rfind("\n") + 1
            for told in text[read:whole].splitlines():
                line(told)
            read = max(read, whole)
            if ended:
                return JobEnd(details.status.value, details.message or "", details.driver_exit_code)
            time.sleep(LOOK_S + len(text) / _LOG_BYTES_PER_S)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Ray's own exceptions as ours."""
        import requests
        from ray.exceptions import AuthenticationError

        try:
            with _no_address_of_another_cluster():
                yield
        except AuthenticationError as error:
            raise UsageError(
                f"the job server at {self.address} refuses the token of this host; set RAY_AUTH_TOKEN, or "
                f"RAY_AUTH_TOKEN_PATH, to the cluster's (with RAY_AUTH_MODE=token): {_first_line(error)}"
            ) from error
        except (requests.RequestException, ConnectionError) as error:
            raise Unanswered(f"no Ray job server answers at {self.address}: {_first_line(error)}") from error
        except (RuntimeError, ValueError) as error:
            if "status code 404" in str(error):
                raise UnknownJob(f"the job server at {self.address}: {_first_line(error)}") from error
            raise UsageError(f"the job server at {self.address} refused: {_first_line(error)}") from error


def _client(address: str) -> "JobSubmissionClient":
    from ray.job_submission import JobSubmissionClient

    class Bounded(JobSubmissionClient):
        """Ray's client waits for ever on a cut connection."""

        def _do_request(self, *args: Any, **kwargs: Any) -> Any:
            return super()._do_request(*args, **{"timeout": REQUEST_S, **kwargs})

    return Bounded(address)


@contextmanager
def _no_address_of_another_cluster() -> Iterator[None]:
    """These variables would beat the address that was asked for; inside a job of another cluster one of them is set."""
    names = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")
    kept = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:500] if lines else type(error).__name__
