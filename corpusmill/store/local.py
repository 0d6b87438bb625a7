"""An index in a folder: atomic writes by temporary file and rename, create by hard link, swap under a file lock."""

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlparse
from uuid import uuid4

from corpusmill.errors import CommitConflictError, StoreUnavailableError, UsageError
from corpusmill.store.objects import ObjectInfo, Versioned

_TEMPORARY = ".tmp-"
_LOCK = ".corpusmill.lock"
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS}


class LocalStore:
    """ObjectStore over a folder. Safe for several processes on one machine (the lock is advisory, by fcntl)."""

    def __init__(self, uri: str) -> None:
        """`uri`: a path or a file:// URI; the folder is made by the first write."""
        parsed = urlparse(uri) if uri.startswith("file://") else None
        if parsed is not None and parsed.netloc not in ("", "localhost"):
            raise UsageError(f"{uri!r} names the host {parsed.netloc!r}; a file URI has three slashes: file:///folder")
        self.root = Path(os.path.abspath(unquote(parsed.path) if parsed else os.path.expanduser(uri)))
        self.uri = str(self.root)

    def __repr__(self) -> str:
        return f"LocalStore({self.uri!r})"

    def get(self, key: str) -> bytes:
        path = self._path(key)
        with self._reporting(path, "read"):
            return path.read_bytes()

    def get_versioned(self, key: str) -> Versioned:
        data = self.get(key)
        return Versioned(data, _tag(data))

    def open(self, key: str) -> BinaryIO:
        path = self._path(key)
        with self._reporting(path, "open"):
            return path.open("rb")

    def put(self, key: str, data: bytes) -> None:
        path = self._path(key)
        with self._reporting(path, "write"), self._written(path, data) as temporary:
            os.replace(temporary, path)
            _sync_folder(path.parent)

    def put_file(self, key: str, path: Path) -> None:
        target = self._path(key)
        with self._reporting(target, "write"), self._written(target, path) as temporary:
            os.replace(temporary, target)
            _sync_folder(target.parent)

    def create(self, key: str, data: bytes) -> None:
        path = self._path(key)
        with self._reporting(path, "create"), self._written(path, data) as temporary:
            try:
                os.link(temporary, path)
            except FileExistsError:
                self._refuse_other(path, data)
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                with self._locked():
                    if path.exists():
                        self._refuse_other(path, data)
                    else:
                        os.replace(temporary, path)
            _sync_folder(path.parent)

    def swap(self, key: str, data: bytes, tag: str | None) -> None:
        path = self._path(key)
        with self._reporting(path, "swap"), self._written(path, data) as temporary, self._locked():
            current = path.read_bytes() if path.exists() else None
            if current == data:
                return
            if (None if current is None else _tag(current)) != tag:
                raise CommitConflictError(f"{path} was changed by another writer since it was read")
            os.replace(temporary, path)
            _sync_folder(path.parent)

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        folder = prefix.rpartition("/")[0]
        start = self._path(folder) if folder else self.root
        with self._reporting(start, "list"):
            yield from _walk(start, f"{folder}/" if folder else "", prefix)

    def exists(self, key: str) -> bool:
        path = self._path(key)
        with self._reporting(path, "look up"):
            return path.is_file()

    def delete(self, key: str) -> None:
        path = self._path(key)
        with self._reporting(path, "delete"):
            path.unlink(missing_ok=True)

    def local_path(self, key: str) -> Path | None:
        return self._path(key)

    def _path(self, key: str) -> Path:
        parts = key.split("/")
        if not key or key.startswith("/") or any(part in ("", ".", "..") for part in parts):
            raise ValueError(f"{key!r} is no key of an object store: relative, with forward slashes, without '..'")
        return self.root.joinpath(*parts)

    @contextlib.contextmanager
    def _written(self, path: Path, content: "bytes | Path") -> Iterator[Path]:
        """A synced temporary file beside `path`; gone afterwards, whatever happens."""
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.parent / f"{_TEMPORARY}{uuid4().hex}"
        try:
            with temporary.open("xb") as out:
                if isinstance(content, Path):
                    with content.open("rb") as source:
                        shutil.copyfileobj(source, out, 1 << 20)
                else:
                    out.write(content)
                out.flush()
                os.fsync(out.fileno())
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        self.root.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.root / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    @staticmethod
    def _refuse_other(path: Path, data: bytes) -> None:
        if path.read_bytes() != data:
            raise CommitConflictError(f"{path} is already there with other content")

    @contextlib.contextmanager
    def _reporting(self, path: Path, verb: str) -> Iterator[None]:
        """Turn the operating system's errors into the store's; an absent file stays FileNotFoundError."""
        try:
            yield
        except (IsADirectoryError, NotADirectoryError) as error:
            if verb in ("read", "open"):
                raise FileNotFoundError(errno.ENOENT, "no such object", str(path)) from error
            raise StoreUnavailableError(f"cannot {verb} {path}: {error.strerror}") from error
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreUnavailableError(f"cannot {verb} {path}: {error.strerror or error}") from error


def _walk(folder: Path, base: str, prefix: str) -> Iterator[ObjectInfo]:
    """Files below `folder` whose key starts with `prefix`, in the order of keys."""
    try:
        entries = [(e.name + "/" if e.is_dir() else e.name, e) for e in os.scandir(folder)]
    except (FileNotFoundError, NotADirectoryError):
        return
    for name, entry in sorted(entries, key=lambda pair: pair[0]):
        key = base + name
        if name.endswith("/"):
            if key.startswith(prefix) or prefix.startswith(key):
                yield from _walk(folder / entry.name, key, prefix)
        elif key.startswith(prefix) and not name.startswith(_TEMPORARY) and name != _LOCK:
            try:
                status = entry.stat()
            except FileNotFoundError:
                continue  # deleted while we listed
            yield ObjectInfo(key, status.st_size, status.st_mtime)


def _tag(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut; file systems that cannot sync a folder say EINVAL."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)
