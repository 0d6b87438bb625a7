"""The response cache: validated model responses, synced to a local SQLite file at once and to the store soon after.

A put is durable when its future is done: one writer thread commits what has queued up in one transaction with one
sync, so thousands of puts a second share a few hundred syncs. Every `flush_s` seconds what is new goes to the store as
`cache/<model fingerprint>/<uuid>.parquet`. A killed process loses what was in flight; a lost machine also the seconds
since the last flush. Several processes of one machine share the file (not over a network file system).
"""

import asyncio
import hashlib
import logging
import queue
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from corpusmill.errors import CorruptObjectError, StoreError
from corpusmill.store.cache_file import CacheFile, Claim
from corpusmill.store.layout import cache_key, cache_prefix
from corpusmill.store.objects import ObjectStore
from corpusmill.store.tables import read_table_file, write_table_file

_log = logging.getLogger(__name__)
_SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("value", pa.large_binary(), nullable=False),
        pa.field("check", pa.binary(), nullable=False),
    ]
)
_BATCH = 4096
_FLUSH_ROWS = 8192  # of vectors of 3,072 dimensions: 100 MB


@dataclass
class CacheStats:
    """Counts since this cache was opened; `corrupt` rows were ignored, `flush_failures` are tried again."""

    hits: int = 0
    misses: int = 0
    puts: int = 0
    loaded: int = 0
    flushed: int = 0
    corrupt: int = 0
    flush_failures: int = 0


@dataclass(frozen=True)
class _Put:
    model: str
    items: Mapping[str, bytes]
    done: "Future[None]" = field(default_factory=Future)


class ResponseCache:
    """get and put of response bytes by (model fingerprint, key). Safe for several threads and processes."""

    def __init__(self, directory: Path, store: ObjectStore | None = None, flush_s: float = 5.0) -> None:
        """`directory` is made if absent. Without a `store` responses stay local.

        Raises StoreUnavailableError if the file cannot be made or is damaged.
        """
        self.stats = CacheStats()
        self._store = store
        self._place = store.uri if store is not None else ""
        self._flush_s = flush_s
        self._file = CacheFile(directory / "responses.sqlite")
        self._lock = threading.Lock()
        self._load_lock = threading.Lock()
        self._loaded: set[str] = set()
        self._in_flight: dict[tuple[str, str], bytes] = {}
        self._queue: queue.SimpleQueue[_Put | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._closed = False

    def get(self, model: str, key: str) -> bytes | None:
        """The response, or None. The first call for a model loads what the store has that this machine has not."""
        if self._store is not None and model not in self._loaded:
            self.load(model)
        value = self._in_flight.get((model, key))
        if value is None:
            row = self._file.get(model, key)
            if row is not None and _check(row[0]) == row[1]:
                value = row[0]
            elif row is not None:
                self._corrupt(f"{self._file.path}: the response {key} of model {model}")
        if value is None:
            self.stats.misses += 1
        else:
            self.stats.hits += 1
        return value

    def get_many(self, model: str, keys: Sequence[str]) -> dict[str, bytes]:
        """The responses that are there, by key, with one query for hundreds of keys."""
        if self._store is not None and model not in self._loaded:
            self.load(model)
        found = {key: value for key in keys if (value := self._in_flight.get((model, key))) is not None}
        rows = self._file.get_many(model, [key for key in dict.fromkeys(keys) if key not in found])
        for key, (value, digest) in rows.items():
            if _check(value) == digest:
                found[key] = value
            else:
                self._corrupt(f"{self._file.path}: the response {key} of model {model}")
        hits = sum(key in found for key in keys)
        self.stats.hits += hits
        self.stats.misses += len(keys) - hits
        return found

    def put(self, model: str, key: str, value: bytes) -> "Future[None]":
        """Take a response; the future is done when it is on disk, or raises StoreUnavailableError."""
        return self.put_many(model, {key: value})

    def put_many(self, model: str, items: Mapping[str, bytes]) -> "Future[None]":
        """Take responses by key; the future is done when all are on disk, or raises StoreUnavailableError."""
        item = _Put(model, items)
        with self._lock:
            if self._closed:
                raise ValueError("the response cache is closed")
            self._start()
            self._in_flight.update({(model, key): value for key, value in items.items()})
            self._queue.put(item)
        self.stats.puts += len(items)
        return item.done

    async def aput(self, model: str, key: str, value: bytes) -> None:
        """`put`, awaited until the response is on disk."""
        await asyncio.wrap_future(self.put(model, key, value))

    async def aput_many(self, model: str, items: Mapping[str, bytes]) -> None:
        """`put_many`, awaited until all are on disk."""
        await asyncio.wrap_future(self.put_many(model, items))

    def load(self, model: str) -> int:
        """Take over what the store has for a model and this machine has not; how many objects that were."""
        store = self._store
        if store is None:
            return 0
        with self._load_lock:
            if model in self._loaded:
                return 0
            seen = self._file.seen(self._place, model)
            fresh = [info.key for info in store.list(cache_prefix(model)) if info.key not in seen]
            for key in fresh:
                self._load_object(store, model, key)
            self._loaded.add(model)
            return len(fresh)

    def flush(self) -> int:
        """Write what is new to the store now; how many responses that were. Raises StoreUnavailableError."""
        if self._store is None:
            return 0
        total = 0
        while claim := self._file.claim(self._place, _FLUSH_ROWS):
            try:
                total += sum(self._flush_model(self._store, claim, model) for model in claim.models)
            except StoreError:
                self._file.release(claim)
                raise
        self.stats.flushed += total
        return total

    def _flush_model(self, store: ObjectStore, claim: Claim, model: str) -> int:
        rows = self._file.claimed(claim, model)
        if not rows:  # each was put again meanwhile, and is pending anew
            return 0
        columns = list(zip(*rows, strict=True))
        arrays = [pa.array(column, kind.type) for column, kind in zip(columns, _SCHEMA, strict=True)]
        key = cache_key(model)
        write_table_file(store, key, pa.Table.from_arrays(arrays, schema=_SCHEMA), _SCHEMA)
        self._file.flushed(claim, model, key)
        return len(rows)

    def close(self) -> None:
        """Finish the puts, flush, stop the threads. A store that cannot be reached is logged: the next run flushes."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            threads = list(self._threads)
        self._stop.set()
        self._queue.put(None)
        for thread in threads:
            thread.join()
        self._try_flush()
        self._file.close()

    def __enter__(self) -> "ResponseCache":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _start(self) -> None:
        if self._threads:
            return
        self._threads.append(threading.Thread(target=self._write, name="response-cache-writer", daemon=True))
        if self._store is not None:
            self._threads.append(threading.Thread(target=self._flush_often, name="response-cache-flush", daemon=True))
        for thread in self._threads:
            thread.start()

    def _write(self) -> None:
        """The writer thread: everything that has queued up in one transaction."""
        while (first := self._queue.get()) is not None:
            batch = [first]
            rows_taken = len(first.items)
            ended = False
            while rows_taken < _BATCH and not self._queue.empty():
                item = self._queue.get()
                if item is None:
                    ended = True
                    break
                batch.append(item)
                rows_taken += len(item.items)
            failure: BaseException | None = None
            try:
                rows = [(p.model, key, value, _check(value)) for p in batch for key, value in p.items.items()]
                self._file.put(rows, self._place)
            except BaseException as error:
                failure = error
                if not isinstance(error, StoreError):
                    raise
            finally:
                self._finish(batch, failure)
            if ended:
                return

    def _finish(self, batch: list[_Put], failure: BaseException | None) -> None:
        for item in batch:
            for key in item.items:
                self._in_flight.pop((item.model, key), None)
            if failure is None:
                item.done.set_result(None)
            else:
                item.done.set_exception(failure)

    def _flush_often(self) -> None:
        while not self._stop.wait(self._flush_s):
            self._try_flush()

    def _try_flush(self) -> None:
        try:
            self.flush()
        except StoreError as error:
            self.stats.flush_failures += 1
            _log.warning("responses stay on this machine for now: %s", error)

    def _load_object(self, store: ObjectStore, model: str, key: str) -> None:
        try:
            table = read_table_file(store, key, _SCHEMA.names)
        except CorruptObjectError as error:
            self._corrupt(str(error))
            return
        rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
        good = [(model, name, value, check) for name, value, check in rows if _check(value) == check]
        for _ in range(len(rows) - len(good)):
            self._corrupt(f"{store.uri}/{key}: a response of model {model}")
        self._file.take_over(good, self._place, model, key)
        self.stats.loaded += len(good)

    def _corrupt(self, what: str) -> None:
        self.stats.corrupt += 1
        _log.warning("ignored a corrupt cached response: %s", what)


def _check(value: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=16).digest()
