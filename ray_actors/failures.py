"""Errors on their way from a worker to the driver."""

from corpusmill import errors
from corpusmill.errors import CorpusmillError, RunFailedError

MAX_RETRIES = (
    3  # of one call or task whose worker was lost: enough for preempted machines, an end for a poisonous input
)


def as_error(kind: str, message: str) -> CorpusmillError:
    """The error of that type, as it was raised in a worker."""
    known = getattr(errors, kind, None)
    if isinstance(known, type) and issubclass(known, CorpusmillError):
        return known(message)
    return RunFailedError(f"{kind}: {message}")


def root_cause(error: BaseException) -> str:
    """The last line of what a worker raised; Ray wraps it in its own errors and traceback text."""
    cause = getattr(error, "cause", None) or error.__cause__
    if isinstance(cause, BaseException) and cause is not error and (str(cause).strip() or cause.__cause__):
        return root_cause(cause)  # Ray Data raises its own from an exception that says nothing
    lines = [line for line in str(error).splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__
