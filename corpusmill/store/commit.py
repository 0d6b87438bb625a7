"""The commit protocol: `snapshots/<n>.json` is created, then `refs/<name>.json` is swapped. The swap is the commit.

A run that dies between the two leaves a snapshot object that no reference reaches: readers never see it, and the next
commit takes a higher number. Of two publishers on one parent exactly one wins the swap; the other gets
CommitConflictError and plans again on the newer parent, reusing its segments.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

from pydantic import ValidationError

from corpusmill.digest import RowsDigest, snapshot_digest
from corpusmill.errors import (
    CommitConflictError,
    CommitUnknownError,
    CorruptObjectError,
    IndexNotFoundError,
    StoreError,
    StoreUnavailableError,
)
from corpusmill.store.draft import Draft
from corpusmill.store.layout import ref_key, snapshot_key
from corpusmill.store.manifest import MANIFEST_VERSION, Manifest, MethodEntry, Ref, TableEntry
from corpusmill.store.objects import ObjectStore

_NUMBERS_TRIED = 100


@dataclass(frozen=True)
class Published:
    """What publishing came to: the new snapshot, or the parent when nothing changed (`new` is False)."""

    manifest: Manifest
    new: bool


@dataclass(frozen=True)
class SnapshotInfo:
    """A published snapshot and the references that point at it."""

    manifest: Manifest
    refs: tuple[str, ...]


def current(store: ObjectStore, ref: str = "main") -> Manifest | None:
    """The snapshot a reference points at; None if there is no such reference (no index, or nothing published)."""
    found = _read_ref(store, ref)
    return None if found is None else _load(store, found[0].snapshot)


def open_index(store: ObjectStore, number: int | None = None, ref: str = "main") -> Manifest:
    """The snapshot to read: of that number, else of the reference. Raises IndexNotFoundError naming the place."""
    if number is not None:
        return load_snapshot(store, number)
    manifest = current(store, ref)
    if manifest is None:
        others = [info.key for info in store.list("refs/")]
        if others:
            raise IndexNotFoundError(f"no index at {store.uri}: it has no {ref_key(ref)}; it has {', '.join(others)}")
        raise IndexNotFoundError(
            f"no index at {store.uri}: nothing has been published there; make one: corpusmill index SOURCE --to "
            f"{store.uri}"
        )
    return manifest


def load_snapshot(store: ObjectStore, number: int) -> Manifest:
    """A snapshot by number. Raises IndexNotFoundError with the numbers there are."""
    try:
        return _load(store, number)
    except FileNotFoundError:
        have = [info.manifest.number for info in list_snapshots(store)]
        choices = f"snapshots: {', '.join(map(str, have))}" if have else "it has no snapshot"
        raise IndexNotFoundError(f"no snapshot {number} in {store.uri}; {choices}") from None


def list_snapshots(store: ObjectStore) -> list[SnapshotInfo]:
    """Snapshots that a reference reaches through parents, newest first. A commit that failed half-way is not one."""
    refs: dict[int, list[str]] = {}
    for info in store.list("refs/"):
        name = info.key.removeprefix("refs/").removesuffix(".json")
        found = _read_ref(store, name)
        if found is not None:
            refs.setdefault(found[0].snapshot, []).append(name)
    manifests: dict[int, Manifest] = {}
    for number in refs:
        step: int | None = number
        while step is not None and step not in manifests:
            try:
                manifests[step] = _load(store, step)
            except FileNotFoundError:
                break  # retired: older snapshots may be deleted
            step = manifests[step].parent
    return [SnapshotInfo(manifests[n], tuple(sorted(refs.get(n, ())))) for n in sorted(manifests, reverse=True)]


def content_digest(tables: Sequence[TableEntry], methods: Sequence[MethodEntry], embedder: str) -> str:
    """The snapshot's digest: the rows of every table, and what made them."""
    made_by = {"methods": sorted([m.name, m.fingerprint] for m in methods), "embedder": embedder}
    return snapshot_digest({t.name: RowsDigest.parse(t.rows, t.digest) for t in tables}, made_by)


def publish(
    store: ObjectStore,
    draft: Draft,
    *,
    run: str,
    parent: Manifest | None,
    config: Mapping[str, object],
    config_fingerprint: str,
    methods: Sequence[MethodEntry],
    models: Mapping[str, str],
    embedder: str,
    dim: int,
    corpusmill_version: str,
    ref: str = "main",
) -> Published:
    """Make the draft the snapshot that `ref` points at, by one conditional write.

    Content, configuration, partial texts and failed parts as the parent has them: nothing is written. Raises
    CommitConflictError if the reference no longer points at `parent`, CommitUnknownError if it cannot be told whether
    the commit happened, StoreUnavailableError if nothing could be written.
    """
    found = _read_ref(store, ref)
    _require_parent(store, found, parent, ref)
    digest = content_digest(draft.tables, methods, embedder)
    if (
        parent is not None
        and (digest, config_fingerprint) == (parent.digest, parent.config_fingerprint)
        and (draft.partial_texts, draft.map_failures) == (parent.partial_texts, parent.map_failures)
    ):
        return Published(parent, new=False)
    created = datetime.now(UTC).isoformat(timespec="milliseconds")
    proposal = Manifest(
        number=1 if parent is None else parent.number + 1,
        parent=None if parent is None else parent.number,
        commit=uuid4().hex,
        run=run,
        created=created,
        corpusmill=corpusmill_version,
        digest=digest,
        config=dict(config),
        config_fingerprint=config_fingerprint,
        methods=tuple(methods),
        models=dict(models),
        embedder=embedder,
        dim=dim,
        artifacts=tuple(draft.artifacts),
        tables=tuple(draft.tables),
        index_files=tuple(draft.index_files),
        counts=draft.counts,
        partial_texts=draft.partial_texts,
        map_failures=draft.map_failures,
        map_reasons=tuple(draft.map_reasons),
        costs=draft.costs,
    )
    manifest = _create(store, proposal)
    target = Ref(snapshot=manifest.number, commit=manifest.commit, updated=created)
    _swap(store, ref, target, None if found is None else found[1])
    return Published(manifest, new=True)


def parse_manifest(data: bytes, place: str) -> Manifest:
    """A manifest of any version up to this one's. Raises StoreError on a newer one, CorruptObjectError on nonsense."""
    try:
        raw = json.loads(data)
        version = raw["version"]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptObjectError(f"{place} is not a manifest: {error}") from error
    if not isinstance(version, int) or version > MANIFEST_VERSION:
        raise StoreError(f"{place} has format version {version!r}; this corpusmill reads up to {MANIFEST_VERSION}")
    try:
        return Manifest.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise CorruptObjectError(f"{place} is not a manifest: {where}: {first['msg']}") from error


def _load(store: ObjectStore, number: int) -> Manifest:
    key = snapshot_key(number)
    return parse_manifest(store.get(key), f"{store.uri}/{key}")


def _read_ref(store: ObjectStore, name: str) -> tuple[Ref, str] | None:
    try:
        found = store.get_versioned(ref_key(name))
    except FileNotFoundError:
        return None
    try:
        return Ref.model_validate_json(found.data), found.tag
    except ValidationError as error:
        raise CorruptObjectError(
            f"{store.uri}/{ref_key(name)} is not a reference: {error.errors()[0]['msg']}"
        ) from error


def _require_parent(store: ObjectStore, found: tuple[Ref, str] | None, parent: Manifest | None, ref: str) -> None:
    have = None if found is None else found[0].snapshot
    want = None if parent is None else parent.number
    if have != want or (found is not None and parent is not None and found[0].commit != parent.commit):
        names = ["nothing" if n is None else f"snapshot {n}" for n in (have, want)]
        raise CommitConflictError(
            f"{store.uri}/{ref_key(ref)} points at {names[0]}, this run was planned on {names[1]}"
        )


def _create(store: ObjectStore, proposal: Manifest) -> Manifest:
    """Create the manifest under the first free number from its own on; the swap decides about a race, not this."""
    number = proposal.number
    for _ in range(_NUMBERS_TRIED):
        manifest = proposal.model_copy(update={"number": number})
        try:
            store.create(snapshot_key(number), manifest.model_dump_json().encode())
        except CommitConflictError:
            number += 1
            continue
        except CommitUnknownError as error:
            raise StoreUnavailableError(f"{error}; no reference points at it, so nothing was published") from error
        return manifest
    raise CommitConflictError(f"{store.uri}/snapshots: no free number from {proposal.number} to {number - 1}")


def _swap(store: ObjectStore, name: str, target: Ref, tag: str | None) -> None:
    """Point the reference at `target`. Whatever the write says, one's own commit in the chain is success."""
    try:
        store.swap(ref_key(name), target.model_dump_json().encode(), tag)
    except (CommitConflictError, CommitUnknownError) as error:
        try:
            mine = _reaches(store, name, target)
        except StoreError as unreadable:
            raise CommitUnknownError(f"commit {target.commit} (snapshot {target.snapshot}): {error}") from unreadable
        if mine:
            return
        if isinstance(error, CommitConflictError):
            store.delete(snapshot_key(target.snapshot))
        raise


def _reaches(store: ObjectStore, name: str, target: Ref) -> bool:
    """The reference points at the target's commit or at a descendant of it."""
    manifest = current(store, name)
    while manifest is not None and manifest.number > target.snapshot and manifest.parent is not None:
        manifest = _load(store, manifest.parent)
    return manifest is not None and manifest.commit == target.commit
