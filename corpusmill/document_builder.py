"""Builds the artifacts of many texts at once on one event loop: documents in flight, sealed segments, a clean stop."""

import asyncio
import threading
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from corpusmill.building import BuiltStep, build_text, document_steps, is_dead, needed_tables, steps_to_run
from corpusmill.errors import BudgetReachedError, CorpusmillError, RunFailedError
from corpusmill.settings import Settings
from corpusmill.steps import DocumentStep, Models, ResolvedPlan, Text
from corpusmill.store.manifest import ArtifactEntry, FileEntry, SegmentEntry
from corpusmill.store.objects import ObjectStore
from corpusmill.store.segments import SegmentWriter, TextArtifact, read_segment_table
from corpusmill.store.tables import read_table_file

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
    have: Mapping[str, str]  # step -> id of the segment that owns its artifact
    partial: frozenset[str]  # those of `have` whose artifact is incomplete: text steps, which builders do not run


@dataclass(frozen=True)
class _Work:
    """A text with what is known of it and what is to be made of it. `judged`: failures tell of the model."""

    text: Text
    tables: Mapping[str, pa.Table]
    missing: Sequence[DocumentStep]
    incomplete: Mapping[str, str]  # table -> the text step that left it incomplete
    judged: bool


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
                step, artifact = self.finished[0]
                sealed = self.writers[step].add(artifact)
                self.finished.popleft()
                self._keep(step, sealed)
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
        dead_limit: int | None,
    ) -> None:
        """`artifacts`: where earlier steps' results lie. After `dead_limit` texts of which nothing came, and none of
        which anything did, the model is not fit and the run ends; None: it goes on whatever comes."""
        self._settings = settings
        self._store = store
        self._plan = plan
        self._models = models
        self._steps = document_steps(plan)
        self._segments = {a.step: {s.id: s for s in a.segments} for a in artifacts}
        self._slots = asyncio.Semaphore(settings.ray.documents_in_flight)
        self._turn = asyncio.Lock()
        self._dead_limit = dead_limit
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
            await asyncio.gather(*batch.tasks, return_exceptions=True)  # cancelled; their errors are in self._error
            drainer.cancel()
            await asyncio.gather(drainer, return_exceptions=True)  # cancelled; its errors are in self._error
            await asyncio.to_thread(batch.drain, seal=True)
        except Exception as error:  # noqa: BLE001 - handed on: it is the result's error, which ends the run
            self.stop(as_run_error(error))
        finally:
            drainer.cancel()
            self._done[item.id] = batch.result.texts
            del self._batches[item.id]
        if self._error is not None:
            batch.result.error = (type(self._error).__name__, str(self._error))
        return batch.result

    async def _start(self, batch: _Batch) -> None:
        """Start a task for each text as slots become free, reading the texts a group ahead.

        One item at a time starts texts: items that took slots in turn would all end, and be sealed, at once.
        """
        rows = await asyncio.to_thread(self._rows, batch.item)
        async with self._turn:
            for start in range(0, len(rows), _GROUP):
                if self._error is not None:
                    return
                for work in await asyncio.to_thread(self._inputs, rows[start : start + _GROUP]):
                    await self._slots.acquire()
                    if self._error is not None:
                        self._slots.release()
                        return
                    batch.tasks.append(asyncio.create_task(self._one(batch, work)))

    async def _one(self, batch: _Batch, work: _Work) -> None:
        built: list[BuiltStep] = []

        def take(step: BuiltStep) -> None:
            built.append(step)
            output = step.output
            artifact = TextArtifact(work.text.text_hash, output.tables, output.failures, step.made_from)
            batch.finished.append((step.step, artifact))

        try:
            await build_text(work.text, work.tables, work.missing, self._plan, self._models, take, work.incomplete)
            self._count(batch, work, built)
        except Exception as error:  # noqa: BLE001 - handed on: it ends the run
            self.stop(as_run_error(error))
        finally:
            self._slots.release()

    def _count(self, batch: _Batch, work: _Work, built: Sequence[BuiltStep]) -> None:
        result = batch.result
        result.texts += 1
        failures = [reason for step in built for reason in step.output.failures]
        result.partial += bool(failures)
        if failures and len(result.reasons) < _MAX_REASONS:
            result.reasons.append(f"text {work.text.text_hash}: {failures[0]}")
        if not (work.judged and is_dead(built)):
            self._alive += work.judged
            return
        result.dead += 1
        self._dead += 1
        if self._dead_limit is not None and self._alive == 0 and self._dead >= self._dead_limit:
            raise RunFailedError(f"nothing came of the first {self._dead} texts; {result.reasons[0]}")

    async def _drain(self, batch: _Batch) -> None:
        while True:
            await asyncio.sleep(_DRAIN_S)
            try:
                await asyncio.shield(asyncio.to_thread(batch.drain, seal=False))
            except Exception as error:  # noqa: BLE001 - handed on: no text can be kept any more, so the run ends
                self.stop(as_run_error(error))
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
        rows = [
            _Todo(row["text_hash"], dict(row["have"]), frozenset(row["missing"]) & dict(row["have"]).keys())
            for row in table.to_pylist()
        ]
        return sorted(rows, key=lambda row: (row.have.get("texts", ""), row.text_hash))

    def _inputs(self, rows: Sequence[_Todo]) -> list[_Work]:
        """What is to be made of the text of each row, and of what."""
        missing = {row.text_hash: steps_to_run(self._steps, row.have) for row in rows}
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
        return [self._work(row, parts[row.text_hash], missing[row.text_hash]) for row in rows]

    def _work(self, row: _Todo, tables: dict[str, pa.Table], missing: Sequence[DocumentStep]) -> _Work:
        text = Text(row.text_hash, tables.pop("texts").column("text")[0].as_py())
        made_by = {name: self._plan.producers[name] for name in tables}
        incomplete = {name: step for name, step in made_by.items() if step in row.partial}
        kept = {step.name for step in self._steps} & row.have.keys()
        return _Work(text, tables, missing, incomplete, judged=not incomplete and not kept)

    def _segment(self, step: str, segment: str) -> SegmentEntry:
        try:
            return self._segments[step][segment]
        except KeyError:
            raise RunFailedError(f"the draft lists no segment {segment!r} of step {step!r}") from None


def as_run_error(error: Exception) -> CorpusmillError:
    """What ends a run: errors of ours as they are, others as a RunFailedError that names them."""
    if isinstance(error, CorpusmillError):
        return error
    failed = RunFailedError(f"the document builder failed: {type(error).__name__}: {error}")
    failed.__cause__ = error
    return failed


def _by_text(table: pa.Table, hashes: Collection[str]) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each text: segments are sorted by text, so each is one slice; a text without rows gets none."""
    table = table.combine_chunks()
    column = np.asarray(table.column("text_hash").to_pylist(), dtype=object)
    starts = np.flatnonzero(np.r_[True, column[1:] != column[:-1]]) if len(column) else np.zeros(0, int)
    ends = np.r_[starts[1:], len(column)] if len(column) else starts
    found = {column[start]: table.slice(start, end - start) for start, end in zip(starts, ends, strict=True)}
    for text_hash in hashes:
        yield text_hash, found.get(text_hash, table.slice(0, 0))
