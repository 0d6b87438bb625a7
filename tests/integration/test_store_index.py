"""The same index on both stores: equal digests, one winner of a race of processes, kill -9 at any moment."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

import pytest

from corpusmill.errors import CommitConflictError
from corpusmill.hashing import hash_text
from corpusmill.store.commit import current, list_snapshots, load_snapshot
from corpusmill.store.objects import ObjectStore, open_store
from corpusmill.store.response_cache import ResponseCache
from corpusmill.store.segments import list_segments
from corpusmill.store.verify import verify
from corpusmill.store.view import SnapshotView
from tests.integration.s3_server import S3Server
from tests.small_index import TEXTS_OF, build_draft, publish_draft

pytestmark = pytest.mark.integration
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(params=["file", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "file":
        return open_store(str(tmp_path / "index"))
    server: S3Server = request.getfixturevalue("s3")
    return open_store(f"s3://{server.bucket}/{uuid4().hex}")


def test_publish_read_and_verify(store: ObjectStore, tmp_path: Path) -> None:
    manifest = publish_draft(store, build_draft(store, files=2, segments=2)).manifest
    assert current(store) == manifest
    assert verify(store, manifest) == []
    view = SnapshotView(store, manifest, cache_dir=tmp_path / "cache")
    assert view.text(hash_text(TEXTS_OF["b.txt"])) == TEXTS_OF["b.txt"]
    assert view.index_file("lexical", "bm25.bin").read_bytes() == b"index bytes"
    assert [batch.num_rows for batch in view.batches("statements")] == [3]
    assert list(list_segments(store, "fp-texts")) == list(manifest.artifacts[2].segments)
    assert not publish_draft(store, build_draft(store), manifest).new


def test_the_digest_is_the_same_on_both(s3: S3Server, tmp_path: Path) -> None:
    stores = open_store(str(tmp_path / "index")), open_store(f"s3://{s3.bucket}/{uuid4().hex}")
    digests = [publish_draft(one, build_draft(one, segments=i + 1)).manifest.digest for i, one in enumerate(stores)]
    assert digests[0] == digests[1]


def test_responses_survive_on_both(store: ObjectStore, tmp_path: Path) -> None:
    with ResponseCache(tmp_path / "one", store) as cache:
        for i in range(100):
            cache.put("model", str(i), b"[%d]" % i)
    with ResponseCache(tmp_path / "two", store) as cache:
        assert [cache.get("model", str(i)) for i in range(100)] == [b"[%d]" % i for i in range(100)]


def _python(program: str, *arguments: str) -> "subprocess.Popen[str]":
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments], env=environment, stdout=subprocess.PIPE, text=True
    )


RACER = """
import sys, time
from corpusmill.errors import CommitConflictError
from corpusmill.store.commit import load_snapshot
from corpusmill.store.objects import open_store
from tests.small_index import build_draft, publish_draft
uri, who, start = sys.argv[1], sys.argv[2], float(sys.argv[3])
store = open_store(uri)
parent = load_snapshot(store, 1)
draft = build_draft(store, run=who)
print("ready", flush=True)
time.sleep(max(0, start - time.time()))
try:
    print("won", publish_draft(store, draft, parent, config=who).manifest.commit)
except CommitConflictError:
    print("lost")
"""


def test_of_two_racing_processes_one_wins(store: ObjectStore) -> None:
    first = publish_draft(store, build_draft(store)).manifest
    start = str(time.time() + 5)
    racers = [_python(RACER, store.uri, f"run-{i}", start) for i in range(2)]
    said = [racer.communicate(timeout=120)[0].split() for racer in racers]
    assert sorted(words[1] for words in said) == ["lost", "won"]
    winner = current(store)
    assert winner is not None
    assert [words[2] for words in said if words[1] == "won"] == [winner.commit]
    assert [s.manifest.number for s in list_snapshots(store)] == [winner.number, first.number]
    assert verify(store, winner) == []


PUBLISHER = """
import sys
from corpusmill.errors import CommitConflictError
from corpusmill.store.commit import current
from corpusmill.store.objects import open_store
from tests.small_index import TEXTS_OF, build_draft, publish_draft
store = open_store(sys.argv[1])
print("ready", flush=True)
for i in range(10_000):
    draft = build_draft(store, TEXTS_OF | {"more.txt": f"Text number {sys.argv[2]}-{i}."}, run=f"run-{i}")
    publish_draft(store, draft, current(store), config=f"{sys.argv[2]}-{i}")
    print("published", flush=True)
"""


def test_kill_at_any_moment_leaves_a_sound_index(store: ObjectStore) -> None:
    publish_draft(store, build_draft(store))
    seen = 1
    for round_ in range(3):
        process = _python(PUBLISHER, store.uri, str(round_))
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["ready\n", "published\n"]
        time.sleep(0.15 * round_)
        process.send_signal(signal.SIGKILL)
        process.wait(20)
        process.stdout.close()
        manifest = current(store)
        assert manifest is not None
        assert manifest.number > seen
        seen = manifest.number
        assert verify(store, manifest) == []
        assert load_snapshot(store, seen) == manifest
    after = publish_draft(store, build_draft(store), current(store), config="after the kills")
    assert after.new
    assert verify(store, after.manifest) == []


KILLED_BEFORE_COMMIT = """
import os, signal, sys
from corpusmill.store.commit import current
from corpusmill.store.objects import open_store
from tests.small_index import build_draft, publish_draft
store = open_store(sys.argv[1])
if sys.argv[2] == "data":
    build_draft(store, run="dead")
    os.kill(os.getpid(), signal.SIGKILL)
type(store).swap = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
publish_draft(store, build_draft(store, run="dead"), current(store), config="dead")
"""


@pytest.mark.parametrize("moment", ["data", "reference"])
def test_kill_between_data_and_commit(store: ObjectStore, moment: str) -> None:
    first = publish_draft(store, build_draft(store)).manifest
    process = _python(KILLED_BEFORE_COMMIT, store.uri, moment)
    assert process.wait(120) == -signal.SIGKILL
    assert any("/dead/" in info.key for info in store.list("data/"))
    assert current(store) == first
    assert [s.manifest.number for s in list_snapshots(store)] == [1]
    next_ = publish_draft(store, build_draft(store), first, config="c2").manifest
    assert next_.parent == 1
    assert verify(store, next_) == []
    with pytest.raises(CommitConflictError):
        publish_draft(store, build_draft(store), first, config="c3")
