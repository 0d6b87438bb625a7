"""The manifest: one frozen object that is a snapshot. Older versions stay readable."""

from corpusmill.frozen import Frozen

MANIFEST_VERSION = 1


class FileEntry(Frozen):
    """One immutable object: its key, size and BLAKE2b-256 digest in hex."""

    key: str
    rows: int = 0
    bytes: int
    blake2b: str


class SegmentEntry(Frozen):
    """One segment of a step's artifacts: its index and one file a table."""

    id: str
    index: FileEntry
    files: dict[str, FileEntry]


class ArtifactEntry(Frozen):
    """The artifacts of a text or document step: of several segments that hold one text, one owns it (ownership.py
    says which). Rows of texts that no live document has are not part of the snapshot."""

    step: str
    fingerprint: str
    tables: tuple[str, ...]
    segments: tuple[SegmentEntry, ...]


class TableEntry(Frozen):
    """A logical table. `artifact` names the step whose segments hold it; otherwise `files` do."""

    name: str
    step: str
    fingerprint: str
    methods: tuple[str, ...]  # the methods that read it; shared tables name several
    key: tuple[str, ...]
    rows: int
    digest: str  # RowsDigest.hex
    made_from: str = ""  # fingerprint of its step with the digests of all it read; equal: reused as it is
    artifact: str | None = None
    files: tuple[FileEntry, ...] = ()


class IndexFileEntry(Frozen):
    """A file made by a BuildStep (not part of the content digest: it is a function of digested tables)."""

    step: str
    fingerprint: str
    made_from: str
    name: str
    file: FileEntry


class MethodEntry(Frozen):
    name: str
    fingerprint: str  # over the fingerprints of its steps
    settings: dict[str, object]


class Counts(Frozen):
    documents: int = 0
    indexed: int = 0
    empty: int = 0
    partial: int = 0
    quarantined: int = 0
    texts: int = 0


class Costs(Frozen):
    calls: int = 0
    cached: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    embedded_texts: int = 0
    cost: float = 0.0
    seconds: float = 0.0


class Manifest(Frozen):
    version: int = MANIFEST_VERSION
    number: int
    parent: int | None
    commit: str  # unique id of this commit, to recognise one's own write after a lost response
    run: str
    created: str  # ISO 8601, UTC
    corpusmill: str
    digest: str
    config: dict[str, object]
    config_fingerprint: str
    methods: tuple[MethodEntry, ...]
    models: dict[str, str]  # role -> fingerprint
    embedder: str
    dim: int
    artifacts: tuple[ArtifactEntry, ...]
    tables: tuple[TableEntry, ...]
    index_files: tuple[IndexFileEntry, ...]
    counts: Counts
    partial_texts: int = 0
    map_failures: int = 0  # parts of map steps that stand-ins replace until a later run succeeds
    map_reasons: tuple[str, ...] = ()
    costs: Costs = Costs()

    def table(self, name: str) -> TableEntry:
        for entry in self.tables:
            if entry.name == name:
                return entry
        raise KeyError(f"snapshot {self.number} has no table {name!r}; tables: {sorted(t.name for t in self.tables)}")


class Ref(Frozen):
    """refs/<name>.json: which snapshot readers of that name take."""

    snapshot: int
    commit: str
    updated: str
