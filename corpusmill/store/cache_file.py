"""The local side of the response cache: one SQLite file in WAL mode with full syncs, shared by processes."""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from corpusmill.errors import StoreUnavailableError

_CLAIM_SECONDS = 120.0  # a claim of a process that died is free again after this
_BUSY_SECONDS = 60.0
_KEYS_A_QUERY = 512  # SQLite may be built for no more than 999 parameters
_TABLES = """
CREATE TABLE IF NOT EXISTS responses (
    model TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (model, key)
);
CREATE TABLE IF NOT EXISTS pending (
    place TEXT NOT NULL, model TEXT NOT NULL, key TEXT NOT NULL, claim TEXT, claimed_at REAL,
    PRIMARY KEY (place, model, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS seen (
    place TEXT NOT NULL, model TEXT NOT NULL, object TEXT NOT NULL, PRIMARY KEY (place, model, object)
) WITHOUT ROWID;
"""

Row = tuple[str, str, bytes, bytes]  # model, key, value, digest of the value


@dataclass(frozen=True)
class Claim:
    """Pending responses that one process has taken to flush."""

    id: str
    place: str
    models: tuple[str, ...]


class CacheFile:
    """Responses, which of them a store still lacks (`pending`), and which of its objects were taken over (`seen`)."""

    def __init__(self, path: Path) -> None:
        """Raises StoreUnavailableError if the file cannot be opened or is damaged."""
        self.path = path
        self._lock = threading.Lock()
        self._read_lock = threading.Lock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreUnavailableError(f"cannot make the cache folder {path.parent}: {error.strerror}") from error
        with self._reporting():
            self._writer = self._connect()
            self._writer.executescript(_TABLES)
            self._reader = self._connect()

    def get(self, model: str, key: str) -> tuple[bytes, bytes] | None:
        """(value, digest) or None."""
        with self._reporting(), self._read_lock:
            query = "SELECT value, digest FROM responses WHERE model = ? AND key = ?"
            row: tuple[bytes, bytes] | None = self._reader.execute(query, (model, key)).fetchone()
            return row

    def get_many(self, model: str, keys: Sequence[str]) -> dict[str, tuple[bytes, bytes]]:
        """key -> (value, digest) of those keys that are there; one query for every `_KEYS_A_QUERY` keys."""
        found: dict[str, tuple[bytes, bytes]] = {}
        with self._reporting(), self._read_lock:
            for at in range(0, len(keys), _KEYS_A_QUERY):
                part = keys[at : at + _KEYS_A_QUERY]
                marks = ",".join("?" * len(part))
                query = f"SELECT key, value, digest FROM responses WHERE model = ? AND key IN ({marks})"
                for key, value, digest in self._reader.execute(query, (model, *part)):
                    found[key] = (value, digest)
        return found

    def put(self, rows: Sequence[Row], place: str) -> None:
        """Store rows durably in one transaction; with a `place` they are pending for it."""
        with self._transaction() as db:
            db.executemany("INSERT OR REPLACE INTO responses VALUES (?, ?, ?, ?)", rows)
            if place:
                marks = [(place, model, key) for model, key, _, _ in rows]
                db.executemany("INSERT OR REPLACE INTO pending VALUES (?, ?, ?, NULL, NULL)", marks)

    def seen(self, place: str, model: str) -> set[str]:
        """Objects of the store that are in this file already."""
        with self._reporting(), self._read_lock:
            query = "SELECT object FROM seen WHERE place = ? AND model = ?"
            return {row[0] for row in self._reader.execute(query, (place, model))}

    def take_over(self, rows: Sequence[Row], place: str, model: str, name: str) -> None:
        """Add an object's rows (what is here stays) and mark the object as seen."""
        with self._transaction() as db:
            db.executemany("INSERT OR IGNORE INTO responses VALUES (?, ?, ?, ?)", rows)
            db.execute("INSERT OR IGNORE INTO seen VALUES (?, ?, ?)", (place, model, name))

    def claim(self, place: str, limit: int) -> Claim | None:
        """Take up to `limit` pending responses of a place that no live process has taken."""
        claim, now = uuid4().hex, time.time()
        with self._transaction() as db:
            db.execute(
                "UPDATE pending SET claim = ?, claimed_at = ? WHERE (place, model, key) IN (SELECT place, model, key "
                "FROM pending WHERE place = ? AND (claim IS NULL OR claimed_at < ?) LIMIT ?)",
                (claim, now, place, now - _CLAIM_SECONDS, limit),
            )
            found = db.execute("SELECT DISTINCT model FROM pending WHERE place = ? AND claim = ?", (place, claim))
            models = tuple(sorted(row[0] for row in found))
        return Claim(claim, place, models) if models else None

    def claimed(self, claim: Claim, model: str) -> list[tuple[str, bytes, bytes]]:
        """(key, value, digest) of the claimed responses of a model, by key."""
        with self._reporting(), self._read_lock:
            query = (
                "SELECT r.key, r.value, r.digest FROM pending p "
                "JOIN responses r ON r.model = p.model AND r.key = p.key "
                "WHERE p.place = ? AND p.model = ? AND p.claim = ? ORDER BY r.key"
            )
            return self._reader.execute(query, (claim.place, model, claim.id)).fetchall()

    def flushed(self, claim: Claim, model: str, name: str) -> None:
        """The claimed responses of a model are in the store as the object `name`."""
        with self._transaction() as db:
            arguments = (claim.place, model, claim.id)
            db.execute("DELETE FROM pending WHERE place = ? AND model = ? AND claim = ?", arguments)
            db.execute("INSERT OR IGNORE INTO seen VALUES (?, ?, ?)", (claim.place, model, name))

    def release(self, claim: Claim) -> None:
        """Give back what was claimed and not flushed."""
        with self._transaction() as db:
            arguments = (claim.place, claim.id)
            db.execute("UPDATE pending SET claim = NULL, claimed_at = NULL WHERE place = ? AND claim = ?", arguments)

    def close(self) -> None:
        with self._lock, self._read_lock:
            self._writer.close()
            self._reader.close()

    def _connect(self) -> sqlite3.Connection:
        db = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        return db

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._reporting(), self._lock:
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
            except BaseException:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")
                raise
            self._writer.execute("COMMIT")

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            advice = "" if isinstance(error, sqlite3.OperationalError) else "; remove the file to start it anew"
            raise StoreUnavailableError(f"cannot use the response cache {self.path}: {error}{advice}") from error
