import threading
from pathlib import Path

import pytest

from corpusmill.errors import (
    CommitConflictError,
    CommitUnknownError,
    CorruptObjectError,
    IndexNotFoundError,
    StoreError,
)
from corpusmill.store.commit import current, list_snapshots, load_snapshot, open_index, parse_manifest, publish
from corpusmill.store.local import LocalStore
from tests.small_index import TEXTS_OF, build_draft, publish_draft


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path / "index"))


def test_first_and_second_snapshot(store: LocalStore) -> None:
    assert current(store) is None
    first = publish_draft(store, build_draft(store))
    assert first.new
    assert current(store) == first.manifest == load_snapshot(store, 1) == open_index(store)
    more = build_draft(store, TEXTS_OF | {"c.txt": "A third text."})
    second = publish_draft(store, more, first.manifest)
    assert (second.manifest.number, second.manifest.parent) == (2, 1)
    assert second.manifest.digest != first.manifest.digest
    listed = list_snapshots(store)
    assert [(s.manifest.number, s.refs) for s in listed] == [(2, ("main",)), (1, ())]


@pytest.mark.parametrize(("files", "segments"), [(1, 2), (2, 1), (4, 2)])
def test_equal_content_publishes_nothing(store: LocalStore, files: int, segments: int) -> None:
    first = publish_draft(store, build_draft(store)).manifest
    before = [info.key for info in store.list("snapshots/")]
    again = publish_draft(store, build_draft(store, files=files, segments=segments, run="run2"), first)
    assert not again.new
    assert again.manifest == first
    assert [info.key for info in store.list("snapshots/")] == before
    assert publish_draft(store, build_draft(store), first, config="c2").new


def test_fewer_partial_texts_are_news(store: LocalStore) -> None:
    draft = build_draft(store)
    draft.partial_texts = 1
    first = publish_draft(store, draft).manifest
    assert publish_draft(store, build_draft(store), first).new


def test_a_failed_part_that_was_made_up_for_is_news_and_its_reason_is_kept(store: LocalStore) -> None:
    draft = build_draft(store)
    draft.fail_parts(30, [f"reason {k}" for k in range(30)])
    first = publish_draft(store, draft).manifest
    assert (first.map_failures, len(first.map_reasons), first.map_reasons[0]) == (30, 20, "reason 0")
    assert not publish_draft(store, draft, first).new
    assert publish_draft(store, build_draft(store), first).manifest.map_failures == 0


def test_a_stale_parent_is_a_conflict(store: LocalStore) -> None:
    first = publish_draft(store, build_draft(store)).manifest
    publish_draft(store, build_draft(store), first, config="c2")
    with pytest.raises(CommitConflictError, match="points at snapshot 2, this run was planned on snapshot 1"):
        publish_draft(store, build_draft(store), first, config="c3")
    with pytest.raises(CommitConflictError, match="planned on nothing"):
        publish_draft(store, build_draft(store), None)
    assert len(list(store.list("snapshots/"))) == 2


def test_of_racing_publishers_one_wins(tmp_path: Path) -> None:
    root = LocalStore(str(tmp_path / "index"))
    parent = publish_draft(root, build_draft(root)).manifest
    for round_ in range(5):
        draft = build_draft(root)
        barrier = threading.Barrier(4)
        results: list[object] = []

        def race(
            i: int,
            draft: object = draft,
            parent: object = parent,
            barrier: threading.Barrier = barrier,
            round_: int = round_,
        ) -> None:
            barrier.wait()
            try:
                results.append(publish_draft(LocalStore(root.uri), draft, parent, f"{round_}-{i}"))  # type: ignore[arg-type] # noqa: B023
            except CommitConflictError as error:
                results.append(error)  # noqa: B023

        threads = [threading.Thread(target=race, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        won = [r.manifest for r in results if not isinstance(r, CommitConflictError)]  # type: ignore[attr-defined]
        assert len(won) == 1
        assert len(results) == 4
        assert current(root) == won[0]
        parent = won[0]
    assert [s.manifest.config_fingerprint[0] for s in list_snapshots(root)[:5]] == ["4", "3", "2", "1", "0"]


class DiesBeforeSwap(LocalStore):
    def swap(self, key: str, data: bytes, tag: str | None) -> None:
        raise KeyboardInterrupt


class AnswersLost(LocalStore):
    """Writes the reference and says that it does not know; then another writer may commit on top."""

    def swap(self, key: str, data: bytes, tag: str | None) -> None:
        super().swap(key, data, tag)
        after = getattr(self, "after", None)
        if after:
            after()
        raise self.error


def test_death_between_data_and_reference_changes_nothing(store: LocalStore) -> None:
    first = publish_draft(store, build_draft(store)).manifest
    with pytest.raises(KeyboardInterrupt):
        publish_draft(DiesBeforeSwap(store.uri), build_draft(store), first, config="c2")
    assert current(store) == first
    assert [s.manifest.number for s in list_snapshots(store)] == [1]
    third = publish_draft(store, build_draft(store), first, config="c3").manifest
    assert (third.number, third.parent) == (3, 1)
    assert [s.manifest.number for s in list_snapshots(store)] == [3, 1]


@pytest.mark.parametrize("error", [CommitUnknownError("lost"), CommitConflictError("412 for one's own success")])
def test_a_lost_answer_is_resolved_by_the_commit_id(store: LocalStore, error: StoreError) -> None:
    lossy = AnswersLost(store.uri)
    lossy.error = error  # type: ignore[attr-defined]
    first = publish_draft(lossy, build_draft(store))
    assert first.new
    assert current(store) == first.manifest
    lossy.after = lambda: publish_draft(store, build_draft(store), current(store), config="c9")  # type: ignore[attr-defined]
    second = publish_draft(lossy, build_draft(store), first.manifest, config="c2")
    assert second.new
    assert current(store).parent == second.manifest.number  # type: ignore[union-attr]


def test_an_unknown_commit_that_did_not_happen_stays_unknown(store: LocalStore) -> None:
    class Lost(LocalStore):
        def swap(self, key: str, data: bytes, tag: str | None) -> None:
            raise CommitUnknownError(f"lost {key}")

    with pytest.raises(CommitUnknownError, match=r"lost refs/main\.json"):
        publish_draft(Lost(store.uri), build_draft(store))


def test_no_index_is_named(store: LocalStore) -> None:
    with pytest.raises(IndexNotFoundError, match=f"no index at {store.uri}"):
        open_index(store)
    with pytest.raises(IndexNotFoundError, match=f"no snapshot 4 in {store.uri}; it has no snapshot"):
        load_snapshot(store, 4)
    publish_draft(store, build_draft(store))
    with pytest.raises(IndexNotFoundError, match=r"no snapshot 4 in .*; snapshots: 1"):
        open_index(store, 4)
    with pytest.raises(IndexNotFoundError, match=r"refs/stable\.json; it has refs/main\.json"):
        open_index(store, ref="stable")


def test_manifests_that_cannot_be_read() -> None:
    with pytest.raises(CorruptObjectError, match="place is not a manifest"):
        parse_manifest(b"{", "place")
    with pytest.raises(StoreError, match="format version 99; this corpusmill reads up to 1"):
        parse_manifest(b'{"version": 99}', "place")
    with pytest.raises(CorruptObjectError, match="place is not a manifest: number"):
        parse_manifest(b'{"version": 1}', "place")


def test_publish_to_another_reference(store: LocalStore) -> None:
    draft = build_draft(store)
    made = publish(
        store,
        draft,
        run="r",
        parent=None,
        config={},
        config_fingerprint="c",
        methods=[],
        models={},
        embedder="e",
        dim=1,
        corpusmill_version="0",
        ref="stable",
    )
    assert current(store) is None
    assert current(store, "stable") == made.manifest
