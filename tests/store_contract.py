"""What every object store must do. Test modules subclass StoreContract and give the fixture `store`."""

import contextlib
import pickle
import threading
from pathlib import Path

import pytest

from corpusmill.errors import CommitConflictError
from corpusmill.store.objects import ObjectStore


class StoreContract:
    def test_put_and_get(self, store: ObjectStore) -> None:
        store.put("data/a.bin", b"hello")
        assert store.get("data/a.bin") == b"hello"
        assert store.exists("data/a.bin")
        assert not store.exists("data/b.bin")
        assert not store.exists("data")

    def test_absent_key(self, store: ObjectStore) -> None:
        for read in (store.get, store.get_versioned, store.open):
            with pytest.raises(FileNotFoundError):
                read("not/there")
        store.delete("not/there")

    @pytest.mark.parametrize("key", ["", "/a", "a//b", "../a", "a/../b", "a/"])
    def test_keys_stay_under_the_root(self, store: ObjectStore, key: str) -> None:
        with pytest.raises(ValueError, match="no key"):
            store.put(key, b"x")

    def test_odd_keys(self, store: ObjectStore) -> None:
        for key in ("ü/a b+c%=&#.txt", "日本/語.json"):
            store.put(key, b"1")
            assert store.get(key) == b"1"
            assert [info.key for info in store.list(key[:2])] == [key]

    def test_list_is_sorted_by_key_and_takes_any_prefix(self, store: ObjectStore) -> None:
        keys = ["l/a", "l/a-b", "l/a/b", "l/a.c", "l/ab/c", "m/x"]
        for key in keys:
            if key != "l/a" or store.local_path("l/a") is None:  # a file system has no file `a` beside a folder `a`
                store.put(key, key.encode())
        listed = list(store.list("l/"))
        wanted = [k for k in keys if k.startswith("l/") and store.exists(k)]
        assert [info.key for info in listed] == sorted(wanted)
        assert all(info.size == len(info.key) and info.modified > 1e9 for info in listed)
        assert [info.key for info in store.list("l/a/")] == ["l/a/b"]
        assert [info.key for info in store.list("l/ab")] == ["l/ab/c"]
        assert list(store.list("none/")) == []
        assert {info.key for info in store.list("")} >= {"m/x", *wanted}

    def test_create_once(self, store: ObjectStore) -> None:
        store.create("snapshots/1.json", b"one")
        store.create("snapshots/1.json", b"one")  # the same bytes are one's own earlier success
        with pytest.raises(CommitConflictError, match=r"snapshots/1\.json"):
            store.create("snapshots/1.json", b"two")
        assert store.get("snapshots/1.json") == b"one"

    def test_swap(self, store: ObjectStore) -> None:
        store.swap("refs/main.json", b"1", None)
        with pytest.raises(CommitConflictError):
            store.swap("refs/main.json", b"2", None)
        first = store.get_versioned("refs/main.json")
        store.swap("refs/main.json", b"2", first.tag)
        with pytest.raises(CommitConflictError, match=r"refs/main\.json"):
            store.swap("refs/main.json", b"3", first.tag)
        store.swap("refs/main.json", b"2", first.tag)  # one's own earlier success
        with pytest.raises(CommitConflictError):
            store.swap("refs/other.json", b"3", first.tag)
        assert store.get("refs/main.json") == b"2"
        assert [info.key for info in store.list("refs/")] == ["refs/main.json"]

    def test_a_race_has_one_winner(self, store: ObjectStore) -> None:
        store.put("warm", b"")
        for round_ in range(5):
            for verb in ("create", "swap"):
                won = self._race(store, verb, f"race/{verb}{round_}")
                assert len(won) == 1
                assert store.get(f"race/{verb}{round_}") == won[0]

    def _race(self, store: ObjectStore, verb: str, key: str) -> list[bytes]:
        won: list[bytes] = []
        start = threading.Barrier(6)

        def attempt(i: int) -> None:
            data = str(i).encode()
            start.wait()
            with contextlib.suppress(CommitConflictError):
                store.create(key, data) if verb == "create" else store.swap(key, data, None)
                won.append(data)

        threads = [threading.Thread(target=attempt, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return won

    def test_swap_counts_without_loss(self, store: ObjectStore) -> None:
        store.put("counter", b"0")

        def add() -> None:
            done = 0
            while done < 5:
                seen = store.get_versioned("counter")
                with contextlib.suppress(CommitConflictError):
                    # the name of the thread tells equal numbers of two writers apart
                    number = int(seen.data.split()[0]) + 1
                    store.swap("counter", f"{number} {threading.get_ident()}".encode(), seen.tag)
                    done += 1

        threads = [threading.Thread(target=add) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.get("counter").split()[0] == b"20"

    def test_put_file_and_seek(self, store: ObjectStore, tmp_path: Path) -> None:
        content = bytes(range(256)) * 4096 * 40  # 40 MiB: several parts on S3
        source = tmp_path / "big.bin"
        source.write_bytes(content)
        store.put_file("data/big.bin", source)
        with store.open("data/big.bin") as stream:
            assert stream.read(5) == content[:5]
            stream.seek(-7, 2)
            assert stream.read() == content[-7:]
            stream.seek(3_000_001)
            assert stream.read(2_000_000) == content[3_000_001:5_000_001]
            assert stream.tell() == 5_000_001
        assert store.get("data/big.bin") == content

    def test_delete(self, store: ObjectStore) -> None:
        store.put("gone", b"1")
        store.delete("gone")
        assert not store.exists("gone")

    def test_pickle(self, store: ObjectStore) -> None:
        store.put("p", b"1")
        copy = pickle.loads(pickle.dumps(store))  # noqa: S301
        assert copy.get("p") == b"1"
        assert copy.uri == store.uri
