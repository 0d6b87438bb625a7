"""Builds the artifacts of many texts at once on one event loop: documents in flight, sealed segments, a clean stop."""

import asyncio
import threading
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from corpusmill.building import BuiltStep, build_text, document_steps, is_dead, needed_tables
from corpusmill.errors import BudgetReachedError, CorpusmillError, RunFailedError
from corpusmill.settings import Settings
from corpusmill.steps import DocumentStep, Models, ResolvedPlan, Text
from corpusmill.store.manifest import ArtifactEntry, FileEntry, SegmentEntry
from corpusmill.store.objects import ObjectStore
from corpusmill.store.segments import SegmentWriter, TextArtifact, read_segment_table
from corpusmill.store.tables import read_table_file

DEAD_AT_FIRST = 20  # so many texts of which nothing came, and none of which anything did: the model is not fit
_DRAIN_S = 0.25
_GROUP = 64  # texts read at a time
_MAX_REASONS = 5


class WorkItem(BaseModel):
    """A slice of a todo file: the grain at which work is handed out, retried and sealed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    file: FileEntry
    start: int
    count: int


class BatchResult(BaseModel):
    """What came of a work item; also of one that a stop cut short: its sealed segments count."""

    model_config = ConfigDict(extra="forbid")

    id: str
    segments: dict[str, list[SegmentEntry]] = Field(default_factory=dict)  # by step
    texts: int = 0
    partial: int = 0
    dead: int = 0
    reasons: list[str] = Field(default_factory=list)
    error: tuple[str, str] | None = None  # type and message of what stopped the builder


@dataclass(frozen=True)
class _Todo:
    text_hash: str
    have: Mapping[str, str]  # step -> id of the segment that holds its complete artifact


@dataclass
class _Batch:
    """The state of one work item."""

    item: WorkItem
    writers: dict[str, SegmentWriter]
    result: BatchResult
    finished: deque[tuple[str, TextArtifact]] = field(default_factory=deque)
    tasks: list["asyncio.Task[None]"] = field(default_factory=list)
    _draining: threading.Lock = field(default_factory=threading.Lock)

    def drain(self, *, seal: bool) -> None:
        """Move finished artifacts into the writers and keep what they seal. Runs in a thread: it digests and writes."""
        with self._draining:
            while self.finished:
                step, artifact = self.finished.popleft()
                self._keep(step, self.writers[step].add(artifact))
            for step, writer in self.writers.items():
                self._keep(step, writer.seal() if seal else writer.seal_if_due())

    def _keep(self, step: str, sealed: SegmentEntry | None) -> None:
        if sealed is not None:
            self.result.segments.setdefault(step, []).append(sealed)


class DocumentBuilder:
    """One builder of a run. `run_batch` may run for several work items at once: together they keep
    `ray.documents_in_flight` texts under way, so that the end of one item overlaps with the start of the next.
    """

    def __init__(
        self,
        settings: Settings,
        store: ObjectStore,
        plan: ResolvedPlan,
        models: Models,
        artifacts: Sequence[ArtifactEntry],
        documents: int,
    ) -> None:
        """`artifacts`: where earlier steps' results lie; `documents`: live ones of the index, to judge failures by."""
        self._settings = settings
        self._store = store
        self._plan = plan
        self._models = models
        self._steps = document_steps(plan)
        self._segments = {a.step: {s.id: s for s in a.segments} for a in artifacts}
        self._slots = asyncio.Semaphore(settings.ray.documents_in_flight)
        self._dead_limit = max(DEAD_AT_FIRST, int(settings.run.max_failed_fraction * documents))
        self._error: CorpusmillError | None = None
        self._batches: dict[str, _Batch] = {}
        self._done: dict[str, int] = {}
        self._alive = 0
        self._dead = 0

    def done(self) -> dict[str, int]:
        """Texts done, by work item."""
        return self._done | {batch.item.id: batch.result.texts for batch in self._batches.values()}

    def stop(self, error: CorpusmillError) -> None:
        """Start no further texts. After BudgetReachedError those in flight go on, since their calls are paid for."""
        self._error = self._error or error
        if isinstance(error, BudgetReachedError):
            return
        for batch in self._batches.values():
            for task in batch.tasks:
                task.cancel()
            self._slots.release()  # whoever waits for a slot sees the error; a task cancelled unstarted frees none

    async def run_batch(self, item: WorkItem) -> BatchResult:
        """Build what the texts of `item` lack. Errors that stop a run are in the result, after sealing what is done."""
        batch = _Batch(item, self._writers(), BatchResult(id=item.id))
        self._batches[item.id] = batch
        drainer = asyncio.create_task(self._drain(batch))
        try:
            await self._start(batch)
            outcomes = await asyncio.gather(*batch.tasks, return_exceptions=True)
            drainer.cancel()
            await asyncio.gather(drainer, return_exceptions=True)
            await asyncio.to_thread(batch.drain, seal=True)
            for outcome in outcomes:
                if isinstance(outcome, Exception):
                    raise outcome
        except CorpusmillError as error:
            self.stop(error)
        finally:
            drainer.cancel()
            self._done[item.id] = batch.result.texts
            del self._batches[item.id]
        if self._error is not None:
            batch.result.error = (type(self._error).__name__, str(self._error))
        return batch.result

    async def _start(self, batch: _Batch) -> None:
        """Start a task for each text as slots become free, reading the texts a group ahead."""
        rows = await asyncio.to_thread(self._rows, batch.item)
        for start in range(0, len(rows), _GROUP):
            if self._error is not None:
                return
            for text, tables, missing in await asyncio.to_thread(self._inputs, rows[start : start + _GROUP]):
                await self._slots.acquire()
                if self._error is not None:
                    self._slots.release()
                    return
                batch.tasks.append(asyncio.create_task(self._one(batch, text, tables, missing)))

    async def _one(
        self, batch: _Batch, text: Text, tables: Mapping[str, pa.Table], missing: Sequence[DocumentStep]
    ) -> None:
        built: list[BuiltStep] = []

        def take(step: BuiltStep) -> None:
            built.append(step)
            artifact = TextArtifact(text.text_hash, step.output.tables, step.output.failures)
            batch.finished.append((step.step, artifact))

        try:
            await build_text(text, tables, missing, self._plan, self._models, take)
            self._count(batch, text, built)
        except CorpusmillError as error:
            self.stop(error)
        finally:
            self._slots.release()

    def _count(self, batch: _Batch, text: Text, built: Sequence[BuiltStep]) -> None:
        result = batch.result
        result.texts += 1
        failures = [reason for step in built for reason in step.output.failures]
        result.partial += bool(failures)
        if failures and len(result.reasons) < _MAX_REASONS:
            result.reasons.append(f"text {text.text_hash}: {failures[0]}")
        if is_dead(built):
            result.dead += 1
            self._dead += 1
            if self._alive == 0 and self._dead >= self._dead_limit:
                raise RunFailedError(f"nothing came of the first {self._dead} texts; {result.reasons[0]}")
        else:
            self._alive += 1

    async def _drain(self, batch: _Batch) -> None:
        while True:
            await asyncio.sleep(_DRAIN_S)
            try:
                await asyncio.shield(asyncio.to_thread(batch.drain, seal=False))
            except CorpusmillError as error:  # the store is gone: no text can be kept any more
                self.stop(error)
                return

    def _writers(self) -> dict[str, SegmentWriter]:
        ray = self._settings.ray
        return {
            step.name: SegmentWriter(
                self._store,
                step.name,
                self._plan.fingerprints[step.name],
                step.outputs,
                max_bytes=ray.segment_mb << 20,
                max_age_s=ray.segment_age_s,
            )
            for step in self._steps
        }

    def _rows(self, item: WorkItem) -> list[_Todo]:
        """The item's rows in the order in which their texts lie in the segments."""
        table = read_table_file(self._store, item.file).slice(item.start, item.count)
        rows = [_Todo(row["text_hash"], dict(row["have"])) for row in table.to_pylist()]
        return sorted(rows, key=lambda row: (row.have.get("texts", ""), row.text_hash))

    def _inputs(self, rows: Sequence[_Todo]) -> list[tuple[Text, dict[str, pa.Table], list[DocumentStep]]]:
        """Text, earlier tables and missing steps of each row."""
        missing = {row.text_hash: [s for s in self._steps if s.name not in row.have] for row in rows}
        needs: dict[tuple[str, str], list[str]] = {}  # (table, segment) -> texts
        for row in rows:
            for table in ("texts", *needed_tables(missing[row.text_hash])):
                step = self._plan.producers.get(table, table)
                if step not in row.have:
                    raise RunFailedError(f"text {row.text_hash} has no artifact of step {step!r}, which others read")
                needs.setdefault((table, row.have[step]), []).append(row.text_hash)
        parts: dict[str, dict[str, pa.Table]] = {row.text_hash: {} for row in rows}
        for (table, segment), hashes in sorted(needs.items()):
            entry = self._segment(self._plan.producers.get(table, table), segment)
            for text_hash, piece in _by_text(read_segment_table(self._store, entry, table, hashes), hashes):
                parts[text_hash][table] = piece
        out = []
        for row in rows:
            tables = parts[row.text_hash]
            text = Text(row.text_hash, tables.pop("texts").column("text")[0].as_py())
            out.append((text, tables, missing[row.text_hash]))
        return out

    def _segment(self, step: str, segment: str) -> SegmentEntry:
        try:
            return self._segments[step][segment]
        except KeyError:
            raise RunFailedError(f"the draft lists no segment {segment!r} of step {step!r}") from None


def _by_text(table: pa.Table, hashes: Collection[str]) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each text: segments are sorted by text, so each is one slice; a text without rows gets none."""
    table = table.combine_chunks()
    column = np.asarray(table.column("text_hash").to_pylist(), dtype=object)
    starts = np.flatnonzero(np.r_[True, column[1:] != column[:-1]]) if len(column) else np.zeros(0, int)
    ends = np.r_[starts[1:], len(column)] if len(column) else starts
    found = {column[start]: table.slice(start, end - start) for start, end in zip(starts, ends, strict=True)}
    for text_hash in hashes:
        yield text_hash, found.get(text_hash, table.slice(0, 0))
