"""The exceptions of corpusmill and the exit code each one ends a command with.

CorpusmillError                 3  the run failed; nothing was published
├── UsageError                  2  the caller can mend it: a flag, a path, a configuration key
│   ├── ConfigError
│   ├── SourceError                missing source, unreadable prefix
│   ├── UnknownMethodError
│   ├── IndexNotFoundError
│   └── EmbedderMismatchError      a query embedded by another model than the index
├── BudgetReachedError          4  stopped cleanly; the same command resumes
├── RunFailedError              3
│   └── GraphFramesNeededError     more pair edges than the driver takes: run again with the package
├── StoreError                  3
│   ├── StoreUnavailableError      endpoint, credentials, permission, full disk
│   ├── CommitConflictError        another writer won; re-read and plan again
│   ├── CommitUnknownError         the write may or may not have happened
│   └── CorruptObjectError         bytes do not match their digest
└── ModelError                  3
    ├── ModelUnavailableError      transport, 5xx, 429: worth a retry
    ├── ModelRejectedError         4xx: wrong key, unknown model; a retry cannot help
    └── ModelOutputError           invalid after the one repair, or cut off by length
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from corpusmill.models.contracts import Usage


class CorpusmillError(Exception):
    """Base of all errors raised on purpose; the message names the value, the place and the choices."""

    exit_code = 3


class UsageError(CorpusmillError):
    exit_code = 2


class ConfigError(UsageError):
    pass


class SourceError(UsageError):
    pass


class UnknownMethodError(UsageError):
    pass


class IndexNotFoundError(UsageError):
    pass


class EmbedderMismatchError(UsageError):
    pass


class BudgetReachedError(CorpusmillError):
    exit_code = 4


class RunFailedError(CorpusmillError):
    pass


class GraphFramesNeededError(RunFailedError):
    pass


class StoreError(CorpusmillError):
    pass


class StoreUnavailableError(StoreError):
    pass


class CommitConflictError(StoreError):
    pass


class CommitUnknownError(StoreError):
    pass


class CorruptObjectError(StoreError):
    pass


class ModelError(CorpusmillError):
    """`usage` is what the failed attempts cost, `retry_after` the seconds that the endpoint asked to wait."""

    def __init__(self, message: str, *, usage: "Usage | None" = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.usage = usage
        self.retry_after = retry_after


class ModelUnavailableError(ModelError):
    pass


class ModelRejectedError(ModelError):
    pass


class ModelOutputError(ModelError):
    pass
