"""What build and map steps may do on a real Ray: make tables and files, cluster on the pool, read side tables and files."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from corpusmill.digest import RowsDigest, rows_digest
from corpusmill.errors import RunFailedError
from corpusmill.planning import made_from
from corpusmill.run import ProgressEvent, RunSpec, silent
from corpusmill.schemas import TableSpec, required
from corpusmill.settings import CacheSettings, EmbedderSettings, RaySettings, Settings
from corpusmill.steps import (
    AnyStep,
    BuildContext,
    BuildStep,
    CorpusStep,
    MapStep,
    ModelFingerprints,
    ResolvedPlan,
    Sql,
    StepContext,
    StepOutput,
    resolve,
)
from corpusmill.store import layout
from corpusmill.store.draft import Draft
from corpusmill.store.manifest import FileEntry, TableEntry
from corpusmill.store.objects import open_store
from corpusmill.store.tables import read_table_file, write_table_file
from ray_actors.indexing import run_build
from ray_actors.mapping import run_map

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("local_ray")]

NUMBERS = TableSpec("numbers", pa.schema([required("id", pa.string()), required("n", pa.int64())]), ("id",))
SUMS = TableSpec("sums", pa.schema([required("id", pa.string()), required("sum", pa.int64())]), ("id",))
RANKS = TableSpec("ranks", pa.schema([required("id", pa.string()), required("place", pa.int32())]), ("id",))
SAID = TableSpec("said", pa.schema([required("id", pa.string()), required("text", pa.string())]), ("id",))


def running_sums(values: np.ndarray) -> list[np.ndarray]:
    """A heavy array function; with it, the process that ran it."""
    return [np.cumsum(values), np.array([os.getpid()])]


def refuse(values: np.ndarray) -> list[np.ndarray]:
    raise ValueError(f"{len(values)} points cannot be clustered")


def fit(context: BuildContext) -> None:
    rows = pa.Table.from_batches(list(context.batches("numbers")), NUMBERS.schema)
    sums, pid = context.cluster(running_sums, rows.column("n").to_numpy())
    assert int(pid[0]) != os.getpid()
    half = rows.num_rows // 2
    for start, length in ((0, half), (half, 0), (half, rows.num_rows - half)):  # in parts, one of them empty
        ids = rows.column("id").slice(start, length)
        context.put("sums", pa.table({"sum": sums[start : start + length], "id": ids}))  # in another order
    context.progress(f"{rows.num_rows} numbers")
    (context.scratch / "last.txt").write_text(str(sums[-1] if rows.num_rows else 0))


def put_elsewhere(context: BuildContext) -> None:
    context.put("numbers", NUMBERS.empty())


def put_other_columns(context: BuildContext) -> None:
    context.put("sums", pa.table({"id": pa.array([], pa.string()), "total": pa.array([], pa.int64())}))


def put_nulls(context: BuildContext) -> None:
    context.put("sums", pa.table({"id": ["a"], "sum": pa.array([None], pa.int64())}))


def cluster_badly(context: BuildContext) -> None:
    context.cluster(refuse, np.zeros(3))


def read_unlisted(context: BuildContext) -> None:
    context.index_file("fit", "last.txt")


def leave_nothing(context: BuildContext) -> None:
    return None


def rank(context: BuildContext) -> None:
    last = int(context.index_file("fit", "last.txt").read_text())
    rows = [row for batch in context.batches("sums") for row in batch.to_pylist()]
    context.put("ranks", RANKS.table([{"id": row["id"], "place": last - row["sum"]} for row in rows]))


async def say(rows: pa.Table, context: StepContext) -> StepOutput:
    assert context.index_file is not None
    last = context.index_file("fit", "last.txt").read_text()
    sums = dict(zip(*(context.sides["sums"].column(name).to_pylist() for name in ("id", "sum")), strict=True))
    said = [{"id": i, "text": f"{sums.get(i)} of {last}"} for i in rows.column("id").to_pylist()]
    return StepOutput({"said": SAID.table(said)})  # type: ignore[arg-type]


async def say_unlisted(rows: pa.Table, context: StepContext) -> StepOutput:
    assert context.index_file is not None
    return StepOutput({"said": pa.table({"id": ["a"], "text": [str(context.index_file("rank", "x"))]})})


async def say_another_table(rows: pa.Table, context: StepContext) -> StepOutput:
    return StepOutput({"sayings": SAID.empty()})


async def say_other_columns(rows: pa.Table, context: StepContext) -> StepOutput:
    return StepOutput({"said": rows.select(["id"])})


COUNT = CorpusStep(name="count", outputs=(NUMBERS,), ops=(Sql("numbers", "SELECT 'a' AS id, 1 AS n"),))
FIT = BuildStep(name="fit", inputs=("numbers",), outputs=(SUMS,), files=("last.txt",), pinned=True, run=fit)
RANK = BuildStep(name="rank", inputs=("sums",), outputs=(RANKS,), indices=("fit",), run=rank)
SAY = MapStep(name="say", inputs=("numbers", "sums"), outputs=(SAID,), by="id", batch_rows=2, indices=("fit",), run=say)


def plan_of(*steps: AnyStep) -> ResolvedPlan:
    return resolve((COUNT, *steps), ModelFingerprints({}, "hash"))


PLAN = plan_of(FIT, RANK, SAY)


@pytest.fixture
def spec(tmp_path: Path) -> RunSpec:
    settings = Settings(
        embedder=EmbedderSettings(backend="hash", dim=32),
        ray=RaySettings(num_cpus=2),
        cache=CacheSettings(dir=str(tmp_path / "cache")),
    )
    return RunSpec(run="seam", index=str(tmp_path / "index"), source=None, source_id="memory", settings=settings)


def numbered(spec: RunSpec, count: int) -> Draft:
    """A draft with the table `numbers`: so many rows, over two files."""
    store = open_store(spec.index)
    rows = NUMBERS.table([{"id": f"{i:04d}", "n": i} for i in range(count)])
    files: list[FileEntry] = []
    for part in (rows.slice(0, count // 3), rows.slice(count // 3)):
        if part.num_rows:
            files.append(write_table_file(store, layout.data_key(spec.run, "numbers"), part, NUMBERS.schema)[0])
    digest = rows_digest(rows) if count else RowsDigest()
    draft = Draft()
    draft.put_table(
        TableEntry(
            name="numbers",
            step="count",
            fingerprint=PLAN.fingerprints["count"],
            methods=(),
            key=NUMBERS.key,
            rows=count,
            digest=digest.hex,
            files=tuple(files),
        )
    )
    return draft


def rows_of(spec: RunSpec, draft: Draft, table: str) -> list[dict[str, object]]:
    entry = next(t for t in draft.tables if t.name == table)
    store = open_store(spec.index)
    found = [row for file in entry.files for row in read_table_file(store, file).to_pylist()]
    assert len(found) == entry.rows
    return sorted(found, key=lambda row: str(row["id"]))


def test_a_build_step_makes_tables_and_files_that_later_steps_read(spec: RunSpec) -> None:
    events: list[ProgressEvent] = []
    draft = run_build(spec, numbered(spec, 9), "fit", events.append, plan=PLAN)
    sums = rows_of(spec, draft, "sums")
    assert [row["sum"] for row in sums] == np.cumsum(range(9)).tolist()
    entry = next(t for t in draft.tables if t.name == "sums")
    assert entry.digest == rows_digest(SUMS.table(sums)).hex and len(entry.files) == 2  # none for no rows
    assert entry.made_from == made_from(FIT, PLAN, draft)
    assert "9 numbers" in [event.message for event in events]

    ranked = run_build(spec, draft, "rank", silent, plan=PLAN)
    assert [row["place"] for row in rows_of(spec, ranked, "ranks")] == [36 - int(str(row["sum"])) for row in sums]

    said = run_map(spec, ranked, "say", silent, plan=PLAN)
    assert rows_of(spec, said, "said")[8] == {"id": "0008", "text": "36 of 36"}


def test_what_reads_the_files_of_a_step_is_made_again_when_they_are(spec: RunSpec) -> None:
    few = run_build(spec, numbered(spec, 4), "fit", silent, plan=PLAN)
    more = run_build(spec, numbered(spec, 6), "fit", silent, plan=PLAN)
    for step in (RANK, SAY):
        kept = more.model_copy(deep=True)
        for table in few.tables:
            kept.put_table(table)  # equal tables, files of another build
        assert made_from(step, PLAN, kept) != made_from(step, PLAN, few)


def test_steps_over_nothing_have_their_tables(spec: RunSpec) -> None:
    draft = run_build(spec, numbered(spec, 0), "fit", silent, plan=PLAN)
    draft = run_map(spec, run_build(spec, draft, "rank", silent, plan=PLAN), "say", silent, plan=PLAN)
    entries = {table.name: table for table in draft.tables}
    for name in ("sums", "ranks", "said"):
        assert (entries[name].rows, entries[name].files, entries[name].digest) == (0, (), RowsDigest().hex)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (put_elsewhere, r"fit: ValueError: step 'fit' has no table 'numbers'; tables: \['sums'\]"),
        (put_other_columns, r"rows of 'sums' without \['sum'\] and with \['total'\]"),
        (put_nulls, r"column 'sum' has 1 nulls"),
        (cluster_badly, r"fit: ValueError: 3 points cannot be clustered"),
        (read_unlisted, r"fit: KeyError: .*does not name 'fit' in its indices"),
        (leave_nothing, r"made the files \[\] instead of \['last.txt'\]"),
    ],
)
def test_a_build_step_that_does_what_it_may_not_ends_the_run_with_a_reason(
    spec: RunSpec, run: Callable[[BuildContext], None], said: str
) -> None:
    plan = plan_of(replace(FIT, run=run))
    draft = numbered(spec, 4)
    with pytest.raises(RunFailedError, match=said):
        run_build(spec, draft, "fit", silent, plan=plan)
    assert [table.name for table in draft.tables] == ["numbers"]


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (say_unlisted, r"map step 'say', rows of numbers from id '0000' on \(part 0\).*does not name 'rank'"),
        (say_another_table, r"'say' returned the tables \['sayings'\] instead of \['said'\]"),
        (say_other_columns, r"rows of 'said' without \['text'\]"),
    ],
)
def test_a_map_step_that_does_what_it_may_not_ends_the_run_with_a_reason(
    spec: RunSpec, run: Callable[..., object], said: str
) -> None:
    plan = plan_of(FIT, RANK, replace(SAY, run=run))
    draft = run_build(spec, numbered(spec, 4), "fit", silent, plan=plan)
    with pytest.raises(RunFailedError, match=said):
        run_map(spec, draft, "say", silent, plan=plan)


def test_a_side_table_that_is_damaged_is_named(spec: RunSpec) -> None:
    draft = run_build(spec, numbered(spec, 4), "fit", silent, plan=PLAN)
    (file,) = {file.key for table in draft.tables if table.name == "sums" for file in table.files[:1]}
    (Path(spec.index) / file).write_bytes(b"no table")
    with pytest.raises(RunFailedError, match=rf"CorruptObjectError: .*{Path(file).name} cannot be read as a table"):
        run_map(spec, draft, "say", silent, plan=PLAN)
