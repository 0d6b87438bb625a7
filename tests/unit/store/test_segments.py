from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.digest import RowsDigest, rows_digest
from corpusmill.errors import CorruptObjectError
from corpusmill.schemas import CHUNKS, TEXTS
from corpusmill.store.local import LocalStore
from corpusmill.store.segments import (
    INDEX_SCHEMA,
    SegmentWriter,
    TextArtifact,
    list_segments,
    new_segment_id,
    owners,
    read_segment_index,
    read_segment_table,
)
from tests.small_index import artifact


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "index"))


def _writer(store: LocalStore, **limits: float) -> SegmentWriter:
    return SegmentWriter(store, "chunks", "fp", [CHUNKS], **limits)  # type: ignore[arg-type]


def test_a_segment_is_found_and_read_from_its_index(store: LocalStore) -> None:
    writer = _writer(store)
    made = [artifact("chunks", text) for text in ("one", "two", "three")]
    empty = TextArtifact("0" * 32, {}, ("window 1: nonsense",))
    for item in (*made, empty):
        assert writer.add(item) is None
    entry = writer.seal()
    assert entry is not None
    assert writer.seal() is None
    assert list_segments(store, "fp") == [entry]
    assert list_segments(store, "fp", known=[entry]) == [entry]
    rows = {row["text_hash"]: row for row in read_segment_index(store, entry).to_pylist()}
    assert list(rows) == sorted(rows)
    for item in made:
        digest = rows_digest(item.tables["chunks"])
        assert rows[item.text_hash]["complete"]
        assert rows[item.text_hash]["tables"] == [{"name": "chunks", "rows": 1, "digest": digest.hex}]
    failed = rows[empty.text_hash]
    assert (failed["complete"], failed["failures"]) == (False, ["window 1: nonsense"])
    assert failed["tables"] == [{"name": "chunks", "rows": 0, "digest": RowsDigest().hex}]
    assert read_segment_table(store, entry, "chunks").num_rows == 3
    one = read_segment_table(store, entry, "chunks", {made[0].text_hash, "other"}, ["end"])
    assert one.to_pydict() == {"end": [3]}
    with pytest.raises(KeyError, match="no table 'x'"):
        read_segment_table(store, entry, "x")


def test_a_segment_without_its_index_does_not_exist(store: LocalStore) -> None:
    writer = _writer(store)
    writer.add(artifact("chunks", "one"))
    entry = writer.seal()
    assert entry is not None
    store.delete(entry.index.key)
    assert list_segments(store, "fp") == []
    assert store.exists(entry.files["chunks"].key)
    store.put(entry.index.key, b"rubbish")
    with pytest.raises(CorruptObjectError, match=entry.id):
        list_segments(store, "fp")


def test_sealed_when_full_or_old(store: LocalStore) -> None:
    full = _writer(store, max_bytes=1)
    assert full.add(artifact("chunks", "one")) is not None
    old = _writer(store, max_age_s=0.0)
    assert old.add(artifact("chunks", "one")) is not None
    young = _writer(store)
    young.add(artifact("chunks", "one"))
    assert young.seal_if_due() is None
    segments = list_segments(store, "fp")
    assert [s.id for s in segments] == sorted(s.id for s in segments)
    assert len(segments) == 2


def test_one_text_once_in_a_segment(store: LocalStore) -> None:
    writer = _writer(store)
    whole = artifact("chunks", "one")
    partial = TextArtifact(whole.text_hash, {}, ("failed",))
    for item in (partial, whole, partial):
        writer.add(item)
    entry = writer.seal()
    assert entry is not None
    assert read_segment_index(store, entry).column("complete").to_pylist() == [True]
    assert read_segment_table(store, entry, "chunks").num_rows == 1


def test_foreign_rows_are_refused(store: LocalStore) -> None:
    writer = _writer(store)
    item = artifact("chunks", "one")
    with pytest.raises(ValueError, match="holds rows of text"):
        writer.add(TextArtifact("f" * 32, item.tables))
    with pytest.raises(ValueError, match="no table 'texts'"):
        writer.add(TextArtifact(item.text_hash, {"texts": TEXTS.empty()}))
    with pytest.raises(ValueError, match="lack the column 'chunk_id'"):
        writer.add(TextArtifact(item.text_hash, {"chunks": item.tables["chunks"].select(["text_hash"])}))
    assert writer.seal() is None


def test_ids_are_unique_and_sortable() -> None:
    ids = [new_segment_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert [i[:16] for i in ids] == sorted(i[:16] for i in ids)
    assert {len(i) for i in ids} == {32}


@given(st.lists(st.dictionaries(st.sampled_from("abcdef"), st.booleans(), max_size=6), max_size=5))
def test_owners_are_first_complete_else_last(segments: list[dict[str, bool]]) -> None:
    indexes = [
        pa.Table.from_pylist(
            [{"text_hash": h, "complete": c, "failures": [], "tables": []} for h, c in sorted(rows.items())],
            schema=INDEX_SCHEMA,
        )
        for rows in segments
    ]
    found = owners({"chunks": indexes})["chunks"]
    expected = {}
    for h in sorted({h for rows in segments for h in rows}):
        holders = [i for i, rows in enumerate(segments) if h in rows]
        expected[h] = next((i for i in holders if segments[i][h]), holders[-1])
    assert found.column("text_hash").to_pylist() == sorted(expected)
    assert (
        dict(zip(found.column("text_hash").to_pylist(), found.column("segment").to_pylist(), strict=True)) == expected
    )
