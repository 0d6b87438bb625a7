"""An index on S3 or a compatible service: conditional writes by If-None-Match and If-Match.

A 412 may answer one's own earlier attempt whose response was lost, so the object is read again and its bytes compared
before a conflict is reported. Objects that are written conditionally carry a unique commit id, so equal bytes mean
one's own write.
"""

import contextlib
import io
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from corpusmill.errors import CommitConflictError, CommitUnknownError, StoreUnavailableError, UsageError
from corpusmill.settings import StoreSettings
from corpusmill.store.objects import ObjectInfo, Versioned
from corpusmill.store.s3_errors import describe, is_absent, is_transport, require_boto3

_ATTEMPTS = 5  # of a conditional write: 409 answers, and lost responses after which the object is still absent
_READ_AHEAD = 1 << 20
_PART = 16 << 20


class S3Store:
    """ObjectStore over a bucket and prefix. Credentials come from the usual AWS places, never from the settings."""

    def __init__(self, uri: str, settings: StoreSettings | None = None) -> None:
        """`uri`: s3://bucket or s3://bucket/prefix. No request is made before the first use."""
        bucket, _, prefix = uri.removeprefix("s3://").partition("/")
        if not bucket:
            raise UsageError(f"{uri!r} names no bucket; expected s3://bucket/prefix")
        self.bucket = bucket
        self.prefix = prefix.strip("/")
        self.uri = f"s3://{bucket}/{self.prefix}".rstrip("/")
        self.settings = settings or StoreSettings()
        self._connect()

    def __repr__(self) -> str:
        return f"S3Store({self.uri!r})"

    def __getstate__(self) -> dict[str, object]:
        return {"uri": self.uri, "settings": self.settings}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__init__(cast("str", state["uri"]), cast("StoreSettings", state["settings"]))  # type: ignore[misc]

    def _connect(self) -> None:
        self._lock = threading.Lock()
        self._client: Any = None
        self._pid = 0

    @property
    def client(self) -> Any:
        """The boto3 client of this process (made on first use; a forked child makes its own)."""
        if self._pid != os.getpid():
            self._connect()
            self._pid = os.getpid()
        with self._lock:
            if self._client is None:
                self._client = self._new_client()
            return self._client

    def _new_client(self) -> Any:
        require_boto3(self.uri)
        import boto3
        from botocore.config import Config

        s = self.settings
        custom = bool(s.endpoint_url or os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT_URL_S3"))
        options: dict[str, Any] = {
            "retries": {"mode": "standard", "total_max_attempts": s.retries + 1},
            "connect_timeout": s.timeout_s,
            "read_timeout": s.timeout_s,
            "max_pool_connections": 32,
            "s3": {"addressing_style": "path" if s.path_style else "auto"},
        }
        if custom:  # compatible services differ in the optional checksums they take
            options |= {
                "request_checksum_calculation": "when_required",
                "response_checksum_validation": "when_required",
            }
        with self._reporting("", "connect to"):
            session = boto3.session.Session()
            region = s.region or session.region_name or ("us-east-1" if custom else None)
            return session.client("s3", endpoint_url=s.endpoint_url, region_name=region, config=Config(**options))

    def get(self, key: str) -> bytes:
        return self.get_versioned(key).data

    def get_versioned(self, key: str) -> Versioned:
        with self._reporting(key, "read"):
            answer = self.client.get_object(Bucket=self.bucket, Key=self._key(key))
            return Versioned(answer["Body"].read(), answer["ETag"])

    def open(self, key: str) -> BinaryIO:
        return cast("BinaryIO", io.BufferedReader(_RangeReader(self, key, self.size(key)), _READ_AHEAD))

    def size(self, key: str) -> int:
        """Bytes of the object. Raises FileNotFoundError."""
        with self._reporting(key, "look up"):
            return int(self.client.head_object(Bucket=self.bucket, Key=self._key(key))["ContentLength"])

    def read_range(self, key: str, start: int, length: int) -> bytes:
        """Up to `length` bytes from offset `start` (`length` >= 1, `start` inside the object)."""
        with self._reporting(key, "read"):
            span = f"bytes={start}-{start + length - 1}"
            answer = self.client.get_object(Bucket=self.bucket, Key=self._key(key), Range=span)
            return cast("bytes", answer["Body"].read())

    def put(self, key: str, data: bytes) -> None:
        with self._reporting(key, "write"):
            self.client.put_object(Bucket=self.bucket, Key=self._key(key), Body=data)

    def put_file(self, key: str, path: Path) -> None:
        """Large files go up in parallel parts; the object appears only when all of them are there."""
        with self._reporting(key, "write"):
            from boto3.s3.transfer import TransferConfig

            config = TransferConfig(multipart_threshold=2 * _PART, multipart_chunksize=_PART, max_concurrency=4)
            self.client.upload_file(str(path), self.bucket, self._key(key), Config=config)

    def create(self, key: str, data: bytes) -> None:
        self._conditional(key, data, {"IfNoneMatch": "*"})

    def swap(self, key: str, data: bytes, tag: str | None) -> None:
        self._conditional(key, data, {"IfNoneMatch": "*"} if tag is None else {"IfMatch": tag})

    def _conditional(self, key: str, data: bytes, condition: dict[str, str]) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        last = "no attempt"
        for attempt in range(_ATTEMPTS):
            try:
                self.client.put_object(Bucket=self.bucket, Key=self._key(key), Body=data, **condition)
                return
            except ClientError as error:
                status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
                last = describe(error)
                if status == 412 or (status == 404 and is_absent(error)):
                    return self._settle(key, data, condition, last)
                if status != 409 and status < 500:
                    raise StoreUnavailableError(f"cannot write {self._full(key)}: {last}") from error
            except BotoCoreError as error:
                last = describe(error)
                if not is_transport(error):
                    raise StoreUnavailableError(f"cannot write {self._full(key)}: {last}") from error
                if self._landed(key, data, last):
                    return
            time.sleep(random.uniform(0, 0.05 * 2**attempt))
        if self._landed(key, data, last):
            return
        raise CommitUnknownError(f"do not know whether {self._full(key)} was written: {last}")

    def _settle(self, key: str, data: bytes, condition: dict[str, str], reason: str) -> None:
        """After a failed precondition: one's own earlier success, or another writer's."""
        if not self._landed(key, data, reason):
            what = "is already there with other content" if "IfNoneMatch" in condition else "was changed or removed"
            raise CommitConflictError(f"{self._full(key)} {what} by another writer")

    def _landed(self, key: str, data: bytes, reason: str) -> bool:
        """True if the object now holds `data`. Raises CommitUnknownError if it cannot be read."""
        try:
            return self.get(key) == data
        except FileNotFoundError:
            return False
        except StoreUnavailableError as error:
            message = f"do not know whether {self._full(key)} was written: {reason}; reading it back failed: {error}"
            raise CommitUnknownError(message) from error

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        root = f"{self.prefix}/" if self.prefix else ""
        found = []
        with self._reporting(prefix, "list"):
            pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=root + prefix)
            for page in pages:
                for item in page.get("Contents", []):
                    found.append(ObjectInfo(item["Key"][len(root) :], item["Size"], item["LastModified"].timestamp()))
        # AWS sorts by key; compatible services may list folder by folder
        yield from sorted(found, key=lambda info: info.key)

    def exists(self, key: str) -> bool:
        try:
            self.size(key)
        except FileNotFoundError:
            return False
        return True

    def delete(self, key: str) -> None:
        with self._reporting(key, "delete"):
            self.client.delete_object(Bucket=self.bucket, Key=self._key(key))

    def local_path(self, key: str) -> Path | None:
        return None

    def _key(self, key: str) -> str:
        if not key or key.startswith("/") or any(part in ("", ".", "..") for part in key.split("/")):
            raise ValueError(f"{key!r} is no key of an object store: relative, with forward slashes, without '..'")
        return f"{self.prefix}/{key}" if self.prefix else key

    def _full(self, key: str) -> str:
        return f"{self.uri}/{key}" if key else self.uri

    @contextlib.contextmanager
    def _reporting(self, key: str, verb: str) -> Iterator[None]:
        """Turn botocore's errors into FileNotFoundError (absent key) or StoreUnavailableError (everything else)."""
        require_boto3(self.uri)
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except ClientError as error:
            if is_absent(error):
                raise FileNotFoundError(f"no object {self._full(key)}") from error
            raise StoreUnavailableError(f"cannot {verb} {self._full(key)}: {describe(error)}") from error
        except (BotoCoreError, Boto3Error, ValueError) as error:
            if isinstance(error, ValueError) and not isinstance(error, BotoCoreError) and verb != "connect to":
                raise
            raise StoreUnavailableError(f"cannot {verb} {self._full(key)}: {describe(error)}") from error


class _RangeReader(io.RawIOBase):
    """A seekable raw reader of one immutable object, by range requests."""

    def __init__(self, store: S3Store, key: str, size: int) -> None:
        self._store, self._key, self._size, self._at = store, key, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"cannot seek to {base + offset} of {self._key!r}")
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        length = min(len(view), self._size - self._at)
        if length <= 0:
            return 0
        data = self._store.read_range(self._key, self._at, length)
        view[: len(data)] = data
        self._at += len(data)
        return len(data)
