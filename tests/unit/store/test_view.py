import subprocess
import sys
from pathlib import Path

import pytest

from corpusmill.digest import rows_digest
from corpusmill.errors import CorruptObjectError
from corpusmill.hashing import hash_text
from corpusmill.schemas import DOCUMENTS
from corpusmill.store import view as view_module
from corpusmill.store.local import LocalStore
from corpusmill.store.segments import SegmentWriter, TextArtifact
from corpusmill.store.view import SnapshotView
from tests.small_index import STEPS, TEXTS_OF, artifact, build_draft, document, publish_draft, write_table

ADA = hash_text(TEXTS_OF["a.txt"])


class Remote(LocalStore):
    """A store whose objects are no local files, and which counts what is read."""

    reads: list[str]

    def local_path(self, key: str) -> None:  # type: ignore[override]
        return None

    def open(self, key: str):  # type: ignore[no-untyped-def]
        self.reads = [*getattr(self, "reads", []), key]
        return super().open(key)


@pytest.fixture(params=[LocalStore, Remote])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> LocalStore:
    return request.param(str(tmp_path / "index"))


@pytest.mark.parametrize(("files", "segments"), [(1, 1), (3, 2)])
def test_tables_are_the_same_however_they_lie(store: LocalStore, files: int, segments: int) -> None:
    draft = build_draft(store, files=files, segments=segments)
    view = SnapshotView(store, draft)
    assert view.tables() == ["chunks", "documents", "statements", "texts"]
    for entry in draft.tables:
        table = view.table(entry.name)
        keys = list(zip(*(table.column(name).to_pylist() for name in entry.key), strict=True))
        assert keys == sorted(keys)
        assert table.num_rows == entry.rows == view.rows(entry.name)
        assert rows_digest(table).hex == entry.digest
        streamed = [row for batch in view.batches(entry.name) for row in batch.to_pylist()]
        assert streamed == table.to_pylist()
        unsorted = [row for batch in view.unsorted_batches(entry.name) for row in batch.to_pylist()]
        assert sorted(map(str, unsorted)) == sorted(map(str, streamed))
        last = table.schema.names[-1]
        assert view.table(entry.name, [last]).schema.names == [last]
        assert [row for b in view.batches(entry.name, [last]) for row in b.to_pylist()] == table.select(
            [last]
        ).to_pylist()
    assert view.table("statements", ["text"]).num_rows == 3


def test_only_live_rows_of_the_owning_segment_count(store: LocalStore) -> None:
    """A text whose last document went, an incomplete artifact that was made complete later, a copy made twice."""
    draft = build_draft(store)
    partial = TextArtifact(ADA, {}, ("window 2: nonsense",))
    early, late = (SegmentWriter(store, "statements", "fp-statements", STEPS["statements"]) for _ in range(2))
    early.add(partial)
    early.add(artifact("statements", "Nobody has this text. At all."))
    late.add(artifact("statements", TEXTS_OF["b.txt"]))
    sealed = [early.seal(), late.seal()]
    known = draft.artifacts[[a.step for a in draft.artifacts].index("statements")].segments
    ids = sorted(s.id for s in [*sealed, *known] if s)
    draft.add_segments("statements", "fp-statements", ("statements",), [s for s in sealed if s])
    view = SnapshotView(store, draft)
    entry = next(t for t in draft.tables if t.name == "statements")
    assert len(ids) == 3
    assert rows_digest(view.table("statements")).hex == entry.digest
    assert view.partial_texts() == {}
    assert [row["outcome"] for row in view.documents()].count("partial") == 0


def test_partial_documents_say_why(store: LocalStore) -> None:
    draft = build_draft(store)
    draft.artifacts = [a for a in draft.artifacts if a.step != "statements"]
    draft.tables = [t for t in draft.tables if t.name != "statements"]
    writer = SegmentWriter(store, "statements", "fp-statements", STEPS["statements"])
    writer.add(artifact("statements", TEXTS_OF["a.txt"], ("window 1: nonsense", "window 3: cut off")))
    sealed = writer.seal()
    assert sealed is not None
    draft.add_segments("statements", "fp-statements", ("statements",), [sealed])
    view = SnapshotView(store, draft, specs=STEPS["statements"])
    assert view.rows("statements") == view.table("statements").num_rows == 2
    outcomes = {row["path"]: (row["outcome"], row["reason"]) for row in view.documents()}
    reason = "statements: window 1: nonsense; statements: window 3: cut off"
    assert outcomes["a.txt"] == outcomes["copy/a.txt"] == ("partial", reason)
    assert outcomes["b.txt"] == ("indexed", None)
    assert outcomes["broken.pdf"] == ("quarantined", "a password")


def test_texts_and_documents(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    view = SnapshotView(store, build_draft(store, segments=2))
    assert view.text(ADA) == TEXTS_OF["a.txt"]
    assert view.texts([ADA, hash_text(TEXTS_OF["b.txt"])]) == {hash_text(t): t for t in TEXTS_OF.values()}
    assert [row["path"] for row in view.documents_of(ADA)] == [
        path for _, path in sorted((str(document(p, "")["doc_id"]), p) for p in ("a.txt", "copy/a.txt"))
    ]
    assert view.document(str(document("b.txt", "")["doc_id"]))["path"] == "b.txt"  # type: ignore[index]
    assert view.document("none") is None
    with pytest.raises(KeyError, match="f" * 32):
        view.text("f" * 32)
    monkeypatch.setattr(view_module, "_TEXT_CACHE_CHARS", 20)
    small = SnapshotView(store, view.source)
    for _ in range(3):
        for text in TEXTS_OF.values():
            assert small.text(hash_text(text)) == text


def test_nothing_unasked_is_read(tmp_path: Path) -> None:
    store = Remote(str(tmp_path / "index"))
    view = SnapshotView(store, build_draft(store, segments=2))
    store.reads = []
    view.text(ADA)
    view.text(ADA)
    steps = [key.split("/")[1] for key in store.reads if key.startswith("segments/")]
    assert set(steps) == {"fp-texts"}
    assert sum(key.endswith("texts.parquet") for key in store.reads) == 1


def test_index_files(store: LocalStore, tmp_path: Path) -> None:
    draft = build_draft(store)
    view = SnapshotView(store, draft, cache_dir=tmp_path / "cache")
    path = view.index_file("lexical", "bm25.bin")
    assert path.read_bytes() == b"index bytes"
    assert path.name == "bm25.bin"
    assert view.index_file("lexical", "bm25.bin") == path
    with pytest.raises(KeyError, match=r"lexical/bm25\.bin"):
        view.index_file("lexical", "other")
    store.put(draft.index_files[0].file.key, b"other bytes!")
    with pytest.raises(CorruptObjectError, match="bm25"):
        SnapshotView(store, draft, cache_dir=tmp_path / "other").index_file("lexical", "bm25.bin")


def test_missing_tables_and_empty_ones(store: LocalStore) -> None:
    draft = build_draft(store, {})
    draft.put_table(write_table(store, DOCUMENTS, "ingest", [], "run1"))
    view = SnapshotView(store, draft, specs=STEPS["statements"])
    assert view.table("documents").schema == DOCUMENTS.schema
    assert view.table("statements").schema == STEPS["statements"][0].schema
    assert view.table("chunks", ["start"]).schema.names == ["start"]
    assert list(view.batches("statements")) == []
    assert view.documents() == []
    with pytest.raises(KeyError, match="no artifact table 'x'"):
        view.table("x")


def test_reading_loads_neither_pandas_nor_datasets(tmp_path: Path) -> None:
    """A query should not wait for imports that it does not need."""
    store = LocalStore(str(tmp_path / "index"))
    publish_draft(store, build_draft(store, segments=2))
    program = f"""
import sys
from corpusmill.store.commit import open_index
from corpusmill.store.objects import open_store
from corpusmill.store.view import SnapshotView
store = open_store({store.uri!r})
view = SnapshotView(store, open_index(store))
for name in view.tables():
    view.table(name)
view.text({ADA!r}); view.documents_of({ADA!r}); view.documents(); view.index_file("lexical", "bm25.bin")
print([name for name in ("pandas", "pyarrow.dataset", "boto3", "faiss", "hypothesis") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
