"""Indexes written by earlier versions stay readable: one is kept for each manifest version."""

from pathlib import Path

import pytest

from corpusmill.store.commit import list_snapshots, open_index
from corpusmill.store.local import LocalStore
from corpusmill.store.manifest import MANIFEST_VERSION
from corpusmill.store.verify import verify
from corpusmill.store.view import SnapshotView
from tests.small_index import TEXTS_OF

KEPT = sorted((Path(__file__).resolve().parents[2] / "data").glob("index_v*"))


def test_every_version_is_kept() -> None:
    assert [path.name for path in KEPT] == [f"index_v{n}" for n in range(1, MANIFEST_VERSION + 1)]


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_a_kept_index_is_read_and_verified(path: Path) -> None:
    store = LocalStore(str(path))
    newest = open_index(store)
    assert [s.manifest.number for s in list_snapshots(store)] == [2, 1]
    assert verify(store, newest) == []
    assert verify(store, open_index(store, 1)) == []
    view = SnapshotView(store, newest)
    texts = view.table("texts").column("text").to_pylist()
    assert sorted(texts) == sorted({*TEXTS_OF.values(), "A third text."})
    assert view.index_file("lexical", "bm25.bin").read_bytes() == b"index bytes"
