"""A snapshot in the making: what the stages of a run hand to one another, and what publishing turns into a manifest."""

from pydantic import BaseModel, ConfigDict, Field

from corpusmill.models.contracts import Usage
from corpusmill.store.manifest import ArtifactEntry, Costs, Counts, IndexFileEntry, SegmentEntry, TableEntry

MAX_REASONS = 20


class Draft(BaseModel):
    """Artifacts, tables and files so far. Reading code treats a draft and a manifest alike (see SnapshotView)."""

    model_config = ConfigDict(extra="forbid")

    artifacts: list[ArtifactEntry] = Field(default_factory=list)
    tables: list[TableEntry] = Field(default_factory=list)
    index_files: list[IndexFileEntry] = Field(default_factory=list)
    counts: Counts = Counts()
    partial_texts: int = 0
    map_failures: int = 0  # parts that stand-ins replace
    map_reasons: list[str] = Field(default_factory=list)
    costs: Costs = Costs()

    def add_segments(self, step: str, fingerprint: str, tables: tuple[str, ...], segments: list[SegmentEntry]) -> None:
        """Join `segments` to the step's artifacts (sorted by id, each once)."""
        known = next((a for a in self.artifacts if a.step == step), None)
        joined = {s.id: s for s in (*(known.segments if known else ()), *segments)}
        entry = ArtifactEntry(
            step=step, fingerprint=fingerprint, tables=tables, segments=tuple(joined[i] for i in sorted(joined))
        )
        self.artifacts = sorted([a for a in self.artifacts if a.step != step] + [entry], key=lambda a: a.step)

    def put_table(self, entry: TableEntry) -> None:
        self.tables = sorted([t for t in self.tables if t.name != entry.name] + [entry], key=lambda t: t.name)

    def put_index_file(self, entry: IndexFileEntry) -> None:
        others = [f for f in self.index_files if (f.step, f.name) != (entry.step, entry.name)]
        self.index_files = sorted([*others, entry], key=lambda f: (f.step, f.name))

    def fail_parts(self, count: int, reasons: list[str]) -> None:
        """Count failed parts of a map step; the first `MAX_REASONS` reasons of a run are kept."""
        self.map_failures += count
        self.map_reasons = [*self.map_reasons, *reasons][:MAX_REASONS]

    def spend(self, usage: Usage, embedded_texts: int = 0, seconds: float = 0.0) -> None:
        c = self.costs
        self.costs = Costs(
            calls=c.calls + usage.calls,
            cached=c.cached + usage.cached,
            prompt_tokens=c.prompt_tokens + usage.prompt_tokens,
            completion_tokens=c.completion_tokens + usage.completion_tokens,
            embedded_texts=c.embedded_texts + embedded_texts,
            cost=c.cost + usage.cost,
            seconds=c.seconds + seconds,
        )
