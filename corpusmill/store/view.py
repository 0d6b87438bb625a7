"""Reading a pinned snapshot, or a draft in the making: tables, texts, documents and index files, nothing unasked."""

import contextlib
import os
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.errors import CorruptObjectError
from corpusmill.schemas import CHUNKS, DOCUMENTS, TEXTS, TableSpec
from corpusmill.store.arrow import among, integers, of_place, repeated
from corpusmill.store.draft import Draft
from corpusmill.store.manifest import ArtifactEntry, FileEntry, Manifest, SegmentEntry, TableEntry
from corpusmill.store.objects import ObjectStore
from corpusmill.store.ownership import LINEAGE_COLUMNS
from corpusmill.store.segments import (
    owners,
    read_index_rows_of,
    read_segment_index,
    read_segment_table,
    segment_file,
)
from corpusmill.store.sorting import sort_table, sorted_batches
from corpusmill.store.tables import digest_file, iter_table_file, read_table_file

_TEXT_CACHE_CHARS = 16 << 20
_KNOWN = {spec.name: spec for spec in (DOCUMENTS, TEXTS, CHUNKS)}


class SnapshotView:
    """Implements methods.protocol.Snapshot over a manifest or a draft. Safe for several threads.

    Rows of an artifact table count if their text is live (some document has it) and their segment owns the text (see
    ownership.py). The census leaves each live text one artifact of each step at least, so where a step's segments hold
    only one, that is the one; only texts with several are looked into, and no others' lineage is read.
    """

    def __init__(
        self,
        store: ObjectStore,
        source: Manifest | Draft,
        *,
        cache_dir: Path | None = None,
        specs: Iterable[TableSpec] = (),
    ) -> None:
        """`cache_dir` keeps index files of a remote store (default: the user's cache folder). `specs` give the schema
        of tables that have no file yet, and the key of tables that a draft has not described yet."""
        self.store = store
        self.source = source
        self._cache_dir = cache_dir
        self._specs = {**_KNOWN, **{spec.name: spec for spec in specs}}
        self._entries = {entry.name: entry for entry in source.tables}
        self._artifacts = {artifact.step: artifact for artifact in source.artifacts}
        self._lock = threading.RLock()
        self._tables: dict[tuple[str, tuple[str, ...] | None], pa.Table] = {}
        self._owners: dict[str, tuple[pa.Table, list[int]]] = {}
        self._indexes: dict[str, pa.Table] = {}
        self._texts: OrderedDict[str, str] = OrderedDict()
        self._text_chars = 0

    # tables

    def tables(self) -> list[str]:
        """Names of all tables of the snapshot."""
        made = {name for artifact in self._artifacts.values() for name in artifact.tables}
        return sorted(made | set(self._entries))

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The live rows sorted by the table's key, read once and kept. Raises KeyError on an unknown table."""
        wanted = None if columns is None else tuple(columns)
        with self._lock:
            whole = self._tables.get((name, None))
            if whole is not None:
                return whole if wanted is None else whole.select(list(wanted))
            if (name, wanted) not in self._tables:
                self._tables[name, wanted] = self._read(name, wanted)
            return self._tables[name, wanted]

    def batches(self, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The live rows in a stream sorted by the table's key. Beyond 96 MiB the rows are sorted on the local disk:
        memory stays near that whatever the table's size."""
        wanted = None if columns is None else tuple(columns)
        key = self.key(name)
        stream = self._stream(name, self._with(wanted, key))
        for batch in sorted_batches(stream, key):
            yield batch if wanted is None else batch.select(list(wanted))

    def unsorted_batches(self, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The live rows in the order of their files, one row batch in memory at a time."""
        wanted = None if columns is None else tuple(columns)
        for batch in self._stream(name, wanted):
            yield batch if wanted is None else batch.select(list(wanted))

    def rows(self, name: str) -> int:
        """How many live rows the table has, without reading them."""
        entry = self._entries.get(name)
        if entry is not None:
            return entry.rows
        artifact = self.artifact(name)
        live = self.index_rows(artifact.step)
        counts = live.column("tables").combine_chunks().flatten()
        return int(pc.sum(pc.filter(counts.field("rows"), among(counts.field("name"), [name]))).as_py() or 0)

    def key(self, name: str) -> tuple[str, ...]:
        """The columns that identify a row."""
        if name in self._entries:
            return self._entries[name].key
        self.artifact(name)
        return self._specs[name].key if name in self._specs else ("text_hash",)

    # index files

    def index_file(self, step: str, name: str) -> Path:
        """A local path of a published file: the object itself where it is local, else a checked copy.

        Raises KeyError if the snapshot has no such file, CorruptObjectError if its bytes are not what was published.
        """
        for item in self.source.index_files:
            if (item.step, item.name) == (step, name):
                return self._local_file(item.file, name)
        have = [f"{item.step}/{item.name}" for item in self.source.index_files]
        raise KeyError(f"the snapshot has no index file {step}/{name}; it has {have}")

    # texts and documents

    def text(self, text_hash: str) -> str:
        """The text under its hash. Raises KeyError if no live document has it."""
        return self.texts([text_hash])[text_hash]

    def texts(self, text_hashes: Iterable[str]) -> dict[str, str]:
        """Several texts, each segment opened once; the last ones used are kept (16 Mi characters)."""
        wanted = set(text_hashes)
        with self._lock:
            found = {h: self._texts[h] for h in wanted if h in self._texts}
            for h in found:
                self._texts.move_to_end(h)
            missing = wanted - found.keys()
            for place, here in self._locate(missing).items() if missing else ():
                segment = self.artifact("texts").segments[place]
                rows = read_segment_table(self.store, segment, "texts", here, ("text_hash", "text"))
                found |= dict(zip(*(column.to_pylist() for column in rows.columns), strict=True))
            if lacking := wanted - found.keys():
                raise KeyError(f"no live document of the snapshot has the text {min(lacking)}")
            for h in missing:
                self._keep_text(h, found[h])
        return found

    def documents_of(self, text_hash: str) -> Sequence[Mapping[str, object]]:
        """The rows of `documents` that have this text, ordered by doc_id."""
        documents = self.table("documents")
        rows: list[dict[str, object]] = documents.filter(among(documents.column("text_hash"), [text_hash])).to_pylist()
        return rows

    def document(self, doc_id: str) -> dict[str, object] | None:
        """The row of one document, or None."""
        documents = self.table("documents")
        rows: list[dict[str, object]] = documents.filter(among(documents.column("doc_id"), [doc_id])).to_pylist()
        return rows[0] if rows else None

    def documents(self) -> list[dict[str, object]]:
        """All rows of `documents`; an indexed one with an incomplete step artifact says `partial`, and why."""
        partial = self.partial_texts()
        rows: list[dict[str, object]] = self.table("documents").to_pylist()
        for row in rows:
            reasons = partial.get(str(row["text_hash"]))
            if reasons is not None and row["outcome"] == "indexed":
                row["outcome"], row["reason"] = "partial", "; ".join(reasons)
        return rows

    def partial_texts(self) -> dict[str, list[str]]:
        """Live texts with an incomplete artifact -> what failed, each reason led by its step."""
        found: dict[str, list[str]] = {}
        for step in sorted(self._artifacts):
            rows = self.index_rows(step)
            for row in rows.filter(pc.invert(rows.column("complete"))).to_pylist():
                reasons = [f"{step}: {failure}" for failure in row["failures"]] or [f"{step}: incomplete"]
                found.setdefault(row["text_hash"], []).extend(reasons)
        return found

    # artifacts

    def artifact(self, table: str) -> ArtifactEntry:
        """The artifacts whose segments hold `table`. Raises KeyError with the choices."""
        entry = self._entries.get(table)
        if entry is not None and entry.artifact is not None:
            return self._artifacts[entry.artifact]
        for artifact in self._artifacts.values():
            if entry is None and table in artifact.tables:
                return artifact
        raise KeyError(f"the snapshot has no artifact table {table!r}; tables: {self.tables()}")

    def live_texts(self) -> pa.Array:
        """Distinct text hashes of documents."""
        return pc.drop_null(pc.unique(self.table("documents", ("text_hash",)).column("text_hash")))

    def owned(self, table: str) -> Iterator[tuple[SegmentEntry, pa.Array]]:
        """Segments in order of id with the live texts that each owns (only segments that own one)."""
        for segment, hashes, _ in self._segments_of(table):
            yield segment, hashes

    def index_rows(self, step: str) -> pa.Table:
        """INDEX_SCHEMA rows of the live texts of a step's artifacts, each by its owner, sorted by text hash; `segment`
        is the place in the artifact's segments."""
        with self._lock:
            if step not in self._indexes:
                self._indexes[step] = self._owning(self._artifacts[step], None)[0]
            return self._indexes[step]

    def _places(self, artifact: ArtifactEntry) -> tuple[pa.Table, list[int]]:
        """(text_hash, complete, segment) of the live texts sorted by text hash, and how many texts each segment has."""
        with self._lock:
            if artifact.step not in self._owners:
                rows, sizes = self._owning(artifact, ("text_hash", "complete"))
                self._owners[artifact.step] = (rows.combine_chunks(), sizes)
            return self._owners[artifact.step]

    def _owning(self, artifact: ArtifactEntry, columns: Sequence[str] | None) -> tuple[pa.Table, list[int]]:
        """The index rows of the owners of live texts, sorted by text hash, and how many texts each segment has."""
        indexes = [read_segment_index(self.store, segment, columns) for segment in artifact.segments]
        sizes = [index.num_rows for index in indexes]
        if not indexes:
            return self._live(owners({artifact.step: []})[artifact.step]), sizes
        tagged = [index.append_column("segment", repeated(at, index.num_rows)) for at, index in enumerate(indexes)]
        rows = self._live(pa.concat_tables(tagged)).sort_by("text_hash")
        several = _repeated_values(rows.column("text_hash").combine_chunks())
        if not len(several):
            return rows, sizes
        chosen = self._chosen(artifact.step, several)
        among_several = pc.is_in(rows.column("text_hash"), value_set=several)
        more = rows.filter(among_several)
        cells = zip(more.column("text_hash").to_pylist(), more.column("segment").to_pylist(), strict=True)
        more = more.take(integers([at for at, (text, segment) in enumerate(cells) if chosen.get(text) == segment]))
        return pa.concat_tables([rows.filter(pc.invert(among_several)), more]).sort_by("text_hash"), sizes

    def _chosen(self, step: str, text_hashes: pa.Array) -> dict[str, int]:
        """Text -> place of the segment of `step` that owns it, by the lineage of all its artifacts."""
        wanted = text_hashes.to_pylist()
        rows = {
            name: [read_index_rows_of(self.store, segment, wanted, LINEAGE_COLUMNS) for segment in artifact.segments]
            for name, artifact in self._artifacts.items()
        }
        mine = owners(rows)[step]
        return dict(zip(mine.column("text_hash").to_pylist(), mine.column("segment").to_pylist(), strict=True))

    def _live(self, rows: pa.Table) -> pa.Table:
        return rows.filter(pc.is_in(rows.column("text_hash"), value_set=self.live_texts()))

    def _segments_of(self, table: str) -> Iterator[tuple[SegmentEntry, pa.Array, bool]]:
        """(segment, its owned live texts, whether these are all it has), of an artifact table."""
        artifact = self.artifact(table)
        rows, sizes = self._places(artifact)
        for place, segment in enumerate(artifact.segments):
            mine = rows.filter(of_place(rows.column("segment"), place)).column("text_hash").combine_chunks()
            if len(mine):
                yield segment, mine, len(mine) == sizes[place]

    def _locate(self, text_hashes: Iterable[str]) -> dict[int, list[str]]:
        """Place of the owning segment -> those of the live texts named, by bisection in the sorted hashes."""
        rows, _ = self._places(self.artifact("texts"))
        hashes, segments = rows.column("text_hash"), rows.column("segment")
        found: dict[int, list[str]] = {}
        for wanted in sorted(text_hashes):
            at = bisect_left(range(len(hashes)), wanted, key=lambda i: hashes[i].as_py())
            if at < len(hashes) and hashes[at].as_py() == wanted:
                found.setdefault(segments[at].as_py(), []).append(wanted)
        return found

    # reading

    def _entry(self, name: str) -> TableEntry | None:
        entry = self._entries.get(name)
        return entry if entry is not None and entry.artifact is None else None

    def _with(self, columns: tuple[str, ...] | None, more: Sequence[str]) -> tuple[str, ...] | None:
        return None if columns is None else tuple(dict.fromkeys([*columns, *more]))

    def _read(self, name: str, columns: tuple[str, ...] | None) -> pa.Table:
        key = self.key(name)
        parts = list(self._parts(name, self._with(columns, key)))
        if not parts:
            return self._empty(name, columns)
        table = sort_table(pa.concat_tables(parts, promote_options="permissive"), key)
        return table if columns is None else table.select(list(columns))

    def _parts(self, name: str, columns: tuple[str, ...] | None) -> Iterator[pa.Table]:
        entry = self._entry(name)
        if entry is not None:
            for file in entry.files:
                yield read_table_file(self.store, file, columns)
            return
        for segment, hashes, everything in self._segments_of(name):
            if everything:
                yield read_segment_table(self.store, segment, name, None, columns)
            else:
                yield read_segment_table(self.store, segment, name, hashes.to_pylist(), columns)

    def _stream(self, name: str, columns: tuple[str, ...] | None) -> Iterator[pa.RecordBatch]:
        entry = self._entry(name)
        if entry is not None:
            for file in entry.files:
                yield from iter_table_file(self.store, file, columns)
            return
        for segment, hashes, everything in self._segments_of(name):
            file = segment_file(segment, name)
            for batch in iter_table_file(self.store, file, self._with(columns, ("text_hash",))):
                kept = batch if everything else batch.filter(pc.is_in(batch.column("text_hash"), value_set=hashes))
                yield kept if columns is None else kept.select(list(columns))

    def _empty(self, name: str, columns: tuple[str, ...] | None) -> pa.Table:
        spec = self._specs.get(name)
        if spec is not None:
            return spec.empty() if columns is None else spec.empty().select(list(columns))
        return pa.table({column: pa.nulls(0) for column in columns or self.key(name)})

    def _local_file(self, file: FileEntry, name: str) -> Path:
        path = self.store.local_path(file.key)
        if path is not None:
            size = path.stat().st_size if path.is_file() else -1
            if size != file.bytes:
                found = f"has {size} bytes instead of {file.bytes}" if size >= 0 else "is missing"
                raise CorruptObjectError(f"{path} {found}")
            return path
        folder = (self._cache_dir or default_cache_dir() / "files") / file.blake2b
        target = folder / name
        with self._lock:
            if target.is_file() and target.stat().st_size == file.bytes:
                return target
            return _download(self.store, file, target)

    def _keep_text(self, text_hash: str, text: str) -> None:
        self._texts[text_hash] = text
        self._text_chars += len(text)
        while self._text_chars > _TEXT_CACHE_CHARS and len(self._texts) > 1:
            self._text_chars -= len(self._texts.popitem(last=False)[1])


def _repeated_values(values: pa.Array) -> pa.Array:
    """Those of sorted values that stand more than once."""
    if len(values) < 2:
        return values.slice(0, 0)
    later = values.slice(1)
    return pc.unique(later.filter(pc.equal(later, values.slice(0, len(values) - 1))))


def default_cache_dir() -> Path:
    """The user's cache folder of corpusmill (XDG_CACHE_HOME, else ~/.cache)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "corpusmill"


def _download(store: ObjectStore, file: FileEntry, target: Path) -> Path:
    """Fetch an object beside its place, check its digest, move it there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f".{uuid4().hex}"
    try:
        with contextlib.closing(store.open(file.key)) as source, temporary.open("wb") as out:
            while piece := source.read(8 << 20):
                out.write(piece)
        found = digest_file(temporary)
        if found != file.blake2b:
            raise CorruptObjectError(f"{store.uri}/{file.key} has digest {found} instead of {file.blake2b}")
        os.replace(temporary, target)
    except FileNotFoundError as error:
        raise CorruptObjectError(f"{store.uri}/{file.key} is missing, though the snapshot names it") from error
    finally:
        temporary.unlink(missing_ok=True)
    return target
