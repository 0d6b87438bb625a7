import asyncio
import json
import logging
import multiprocessing
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from corpusmill.errors import StoreUnavailableError
from corpusmill.store.layout import cache_prefix
from corpusmill.store.local import LocalStore
from corpusmill.store.response_cache import ResponseCache


def value(i: int) -> bytes:
    return json.dumps({"answer": i, "text": "é鲁" * 20}).encode()


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "index"))


def test_put_is_seen_at_once_and_kept(tmp_path: Path) -> None:
    with ResponseCache(tmp_path / "cache") as cache:
        assert cache.get("m", "k") is None
        done = cache.put("m", "k", value(1))
        assert cache.get("m", "k") == value(1)
        done.result(10)
        assert cache.get("other", "k") is None
    with ResponseCache(tmp_path / "cache") as cache:
        assert cache.get("m", "k") == value(1)
        assert (cache.stats.hits, cache.stats.misses) == (1, 0)


def test_aput_is_durable_when_awaited(tmp_path: Path) -> None:
    async def fill(cache: ResponseCache) -> None:
        await asyncio.gather(*(cache.aput("m", str(i), value(i)) for i in range(500)))

    cache = ResponseCache(tmp_path)
    asyncio.run(fill(cache))
    with sqlite3.connect(tmp_path / "responses.sqlite") as other:
        assert other.execute("SELECT count(*) FROM responses").fetchone() == (500,)
    cache.close()


def test_the_store_has_it_when_the_machine_is_lost(tmp_path: Path, store: LocalStore) -> None:
    with ResponseCache(tmp_path / "one", store) as cache:
        for i in range(10):
            cache.put("m1" if i % 2 else "m2", str(i), value(i))
    assert len(list(store.list("cache/"))) == 2
    with ResponseCache(tmp_path / "two", store) as cache:
        assert [cache.get("m1", str(i)) for i in (1, 3)] == [value(1), value(3)]
        assert cache.stats.loaded == 5
        assert cache.get("m1", "0") is None
        assert cache.get("m2", "0") == value(0)
    with ResponseCache(tmp_path / "two", store) as cache:
        assert cache.get("m1", "1") == value(1)
        assert cache.stats.loaded == 0
    assert len(list(store.list("cache/"))) == 2


def test_flushed_while_open(tmp_path: Path, store: LocalStore) -> None:
    with ResponseCache(tmp_path / "one", store, flush_s=0.1) as cache:
        cache.put("m", "k", value(1)).result(10)
        deadline = time.monotonic() + 20
        while not list(store.list(cache_prefix("m"))) and time.monotonic() < deadline:
            time.sleep(0.05)
        with ResponseCache(tmp_path / "two", store) as other:
            assert other.get("m", "k") == value(1)


def test_many_at_once_as_one_by_one(tmp_path: Path, store: LocalStore) -> None:
    items = {f"k{i}": value(i) for i in range(1300)}
    with ResponseCache(tmp_path / "one", store) as cache:
        done = cache.put_many("m", items)
        assert cache.get_many("m", [*items, "none"]) == items
        done.result(20)
        assert cache.get_many("m", ["k7", "k7", "none"]) == {"k7": value(7)}
        assert cache.get("m", "k1299") == value(1299)
        assert cache.get_many("other", list(items)) == {}
    with sqlite3.connect(tmp_path / "one" / "responses.sqlite") as db:
        db.execute("UPDATE responses SET value = ? WHERE key = 'k1'", (b"{}",))
    db.close()
    with ResponseCache(tmp_path / "one") as cache:
        assert cache.get_many("m", ["k1", "k2"]) == {"k2": value(2)}
        assert (cache.stats.corrupt, cache.stats.hits, cache.stats.misses) == (1, 1, 1)
    with ResponseCache(tmp_path / "two", store) as cache:
        assert cache.get_many("m", list(items)) == items


def test_a_killed_process_loses_only_what_was_in_flight(tmp_path: Path, store: LocalStore) -> None:
    """Puts that were acknowledged are there after kill -9, and the next process flushes them."""
    program = f"""
import os, signal
from pathlib import Path
from corpusmill.store.local import LocalStore
from corpusmill.store.response_cache import ResponseCache
cache = ResponseCache(Path({str(tmp_path / "cache")!r}), LocalStore({store.uri!r}), flush_s=1000)
for i in range(50):
    cache.put("m", str(i), b'{{"n": %d}}' % i).result(20)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == -9
    assert list(store.list("cache/")) == []
    with ResponseCache(tmp_path / "cache", store) as cache:
        assert all(cache.get("m", str(i)) == b'{"n": %d}' % i for i in range(50))
        assert cache.flush() == 50
    with ResponseCache(tmp_path / "new", store) as cache:
        assert cache.get("m", "49") == b'{"n": 49}'


def _fill(directory: str, who: int) -> None:
    with ResponseCache(Path(directory)) as cache:
        for future in [cache.put("m", f"{who}-{i}", value(i)) for i in range(200)]:
            future.result(60)


def test_several_processes_share_the_file(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_fill, args=(str(tmp_path), who)) for who in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    with ResponseCache(tmp_path) as cache:
        assert all(cache.get("m", f"{who}-{i}") == value(i) for who in range(3) for i in range(200))


def test_corrupt_rows_are_ignored_and_counted(
    tmp_path: Path, store: LocalStore, caplog: pytest.LogCaptureFixture
) -> None:
    with ResponseCache(tmp_path / "one", store) as cache:
        for i in range(3):
            cache.put("m", str(i), value(i))
    with sqlite3.connect(tmp_path / "one" / "responses.sqlite") as db:
        db.execute("UPDATE responses SET value = ? WHERE key = '1'", (b"{}",))
    db.close()
    with caplog.at_level(logging.WARNING), ResponseCache(tmp_path / "one") as cache:
        assert cache.get("m", "1") is None
        assert cache.get("m", "0") == value(0)
        assert cache.stats.corrupt == 1
        cache.put("m", "1", value(1)).result(10)
        assert cache.get("m", "1") == value(1)
    assert "corrupt" in caplog.text
    store.put(f"{cache_prefix('m')}broken.parquet", b"PAR1")
    with ResponseCache(tmp_path / "two", store) as cache:
        assert cache.get("m", "2") == value(2)
        assert cache.stats.corrupt == 1


def test_a_store_that_fails_costs_nothing_but_the_flush(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    class Down(LocalStore):
        def put(self, key: str, data: bytes) -> None:
            raise StoreUnavailableError(f"cannot write {key}: endpoint down")

    root = str(tmp_path / "index")
    with ResponseCache(tmp_path / "cache", Down(root)) as cache:
        cache.put("m", "k", value(1)).result(10)
    assert cache.stats.flush_failures == 1
    assert "endpoint down" in caplog.text
    with ResponseCache(tmp_path / "cache", LocalStore(root)) as cache:
        assert cache.flush() == 1


def test_a_place_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreUnavailableError, match="cannot make the cache folder"):
        ResponseCache(tmp_path / "file" / "cache")
    (tmp_path / "responses.sqlite").write_bytes(b"this is no database" * 100)
    with pytest.raises(StoreUnavailableError, match=r"responses\.sqlite: .*; remove the file"):
        ResponseCache(tmp_path)


def test_no_put_after_close(tmp_path: Path) -> None:
    cache = ResponseCache(tmp_path)
    cache.close()
    cache.close()
    with pytest.raises(ValueError, match="closed"):
        cache.put("m", "k", b"1")
