"""The one interface of object storage. local.py and s3.py implement it; `open_store` chooses by the URI's scheme."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

from corpusmill.errors import UsageError

if TYPE_CHECKING:
    from corpusmill.settings import StoreSettings


@dataclass(frozen=True)
class ObjectInfo:
    key: str
    size: int
    modified: float  # seconds since the epoch


@dataclass(frozen=True)
class Versioned:
    """Bytes with the tag that a compare-and-swap needs."""

    data: bytes
    tag: str


class ObjectStore(Protocol):
    """Keys are relative to the index root, with forward slashes. Picklable: workers open their own.

    Raises StoreUnavailableError (naming the URI and what failed) when the back-end cannot be used, FileNotFoundError
    for an absent key.
    """

    uri: str

    def get(self, key: str) -> bytes: ...

    def get_versioned(self, key: str) -> Versioned: ...

    def open(self, key: str) -> BinaryIO:
        """A seekable reader (pyarrow can read Parquet from it)."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Write whole or not at all. Data keys are unique: never overwritten."""
        ...

    def put_file(self, key: str, path: Path) -> None: ...

    def create(self, key: str, data: bytes) -> None:
        """Write if absent. Raises CommitConflictError if it is there with other bytes, CommitUnknownError if lost."""
        ...

    def swap(self, key: str, data: bytes, tag: str | None) -> None:
        """Replace if the object still has `tag` (None: still absent). Raises as `create`."""
        ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Objects under `prefix`, sorted by key."""
        ...

    def exists(self, key: str) -> bool: ...

    def delete(self, key: str) -> None: ...

    def local_path(self, key: str) -> Path | None:
        """The object as a local file where it is one (file://), else None."""
        ...


def open_store(uri: str, settings: "StoreSettings | None" = None) -> ObjectStore:
    """A store for a path, file:// or s3:// URI. Raises UsageError on any other scheme."""
    if uri.startswith("s3://"):
        from corpusmill.settings import StoreSettings
        from corpusmill.store.s3 import S3Store

        return S3Store(uri, settings or StoreSettings())
    if "://" in uri and not uri.startswith("file://"):
        raise UsageError(f"cannot store an index at {uri!r}; schemes: a path, file://, s3://")
    from corpusmill.store.local import LocalStore

    return LocalStore(uri)
