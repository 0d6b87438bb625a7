"""Map and index steps, and the stage program, on a real Ray, from the artifacts that the builder made."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.stubs import stub_models
from corpusmill.digest import rows_digest
from corpusmill.planning import made_from, resolved_plan
from corpusmill.run import IngestResult, RunSpec, silent
from corpusmill.settings import CacheSettings, EmbedderSettings, RaySettings, Settings
from corpusmill.steps import BuildStep, MapStep, ResolvedPlan
from corpusmill.store import layout
from corpusmill.store.draft import Draft
from corpusmill.store.manifest import TableEntry
from corpusmill.store.objects import open_store
from corpusmill.store.runs import RunFiles
from corpusmill.store.tables import digest_bytes, read_table_file, write_table_file
from ray_actors.mapping import run_map
from tests.drafts import ingested

pytestmark = pytest.mark.engine

TEXTS = [f"Ada Lovelace wrote note {i} about the engine of Charles Babbage in London." for i in range(30)]


def spec_of(folder: Path, **ray: object) -> RunSpec:
    settings = Settings(
        embedder=EmbedderSettings(backend="hash", dim=32),
        ray=RaySettings.model_validate({"num_cpus": 2, **ray}),
        cache=CacheSettings(dir=str(folder / "cache")),
    )
    return RunSpec(run="stages", index=str(folder / "index"), source=None, source_id="memory", settings=settings)


def mapped_input(spec: RunSpec, draft: Draft, step: MapStep, groups: int, order: int) -> Draft:
    """The draft with a made-up input table of `step`, its rows in another order and in other files for each `order`."""
    plan = resolved_plan(spec.settings)
    table = plan.spec(step.inputs[0])
    strings = {f.name for f in table.schema if pa.types.is_string(f.type)}
    rows: list[dict[str, object]] = [
        {
            f.name: (f"{f.name}-{g:04d}" if f.name == step.by else f"{f.name} {g} {part}") if f.name in strings else 1
            for f in table.schema
        }
        for g in range(groups)
        for part in range(1 + g % 3)
    ]
    store = open_store(spec.index, spec.settings.store)
    whole = table.table(rows[::order])
    cut = len(rows) // (2 + order % 2)
    files = [
        write_table_file(store, layout.data_key(spec.run, table.name), part, table.schema)[0]
        for part in (whole.slice(0, cut), whole.slice(cut))
    ]
    digest = rows_digest(whole)
    entry = TableEntry(
        name=table.name,
        step=plan.producers[table.name],
        fingerprint="f",
        methods=("flexstructrag",),
        key=table.key,
        rows=digest.rows,
        digest=digest.hex,
        files=tuple(files),
    )
    made = draft.model_copy(deep=True)
    made.put_table(entry)
    return made


@pytest.mark.usefixtures("local_ray")
def test_a_map_step_gives_the_same_tables_whatever_the_order_and_files_of_its_input(tmp_path: Path) -> None:
    made = []
    for order, workers in ((1, 1), (-1, 2)):
        spec = spec_of(tmp_path / f"order{order}", builders=workers)
        plan = resolved_plan(spec.settings)
        (step,) = (s for s in plan.steps if isinstance(s, MapStep))
        draft = mapped_input(spec, ingested(spec, TEXTS).draft, step, groups=500, order=order)
        out = run_map(spec, draft, step.name, silent, models_factory=stub_models())
        entry = next(t for t in out.tables if t.step == step.name)
        assert entry.made_from == made_from(step, plan, draft)
        store = open_store(spec.index, spec.settings.store)
        rows = pa.concat_tables([read_table_file(store, file) for file in entry.files])
        assert rows_digest(rows).hex == entry.digest and rows.num_rows == entry.rows
        made.append((entry.rows, entry.digest))
    assert made[0] == made[1]
    assert made[0][0] == 500


@pytest.mark.usefixtures("local_ray")
def test_a_map_step_over_nothing_still_has_its_tables(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    (step,) = (s for s in resolved_plan(spec.settings).steps if isinstance(s, MapStep))
    draft = mapped_input(spec, ingested(spec, TEXTS).draft, step, groups=0, order=1)
    out = run_map(spec, draft, step.name, silent)
    assert {t.name for t in out.tables if t.step == step.name} == {s.name for s in step.outputs}
    assert all(t.rows == 0 and t.files == () for t in out.tables if t.step == step.name)


def test_the_stages_run_as_programs_of_their_own(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    files = RunFiles(open_store(spec.index, spec.settings.store), spec.run)
    files.put_spec(spec)
    ingest: IngestResult = ingested(spec, TEXTS)
    files.put_ingest(ingest)
    files.put_draft(ingest.draft)
    assert stage(spec, "build")[-1] == {"done": True}
    draft = files.draft()
    plan = resolved_plan(spec.settings)
    built = {artifact.step for artifact in draft.artifacts}
    assert {"extract", "clusters"} <= built
    for name in ("chunk_vectors", "chunks", "documents"):
        if name in built:
            draft.put_table(counted(plan, name))
    files.put_draft(draft)
    (step,) = (s for s in plan.steps if isinstance(s, BuildStep) and s.inputs == ("chunk_vectors",))
    assert stage(spec, f"index:{step.name}")[-1] == {"done": True}
    published = [file for file in files.draft().index_files if file.step == step.name]
    assert {file.name for file in published} == set(step.files)
    for file in published:
        data = open_store(spec.index).get(file.file.key)
        assert (len(data), digest_bytes(data)) == (file.file.bytes, file.file.blake2b)
    answer = stage(spec, "nowhere")[-1]
    assert answer["error"]["type"] == "UsageError" and "index:NAME" in answer["error"]["message"]


def counted(plan: ResolvedPlan, table: str) -> TableEntry:
    """An artifact table as the census describes it (its digest does not matter here)."""
    step = plan.producers[table]
    return TableEntry(
        name=table,
        step=step,
        fingerprint=plan.fingerprints[step],
        methods=("flexstructrag",),
        key=plan.spec(table).key,
        rows=len(TEXTS),  # one chunk each
        digest=f"{0:064x}",
        artifact=step,
    )


def stage(spec: RunSpec, name: str) -> list[dict]:
    command = [sys.executable, "-m", "ray_actors.stage", "--index", spec.index, "--run", spec.run, "--stage", name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=dict(os.environ))
    return [json.loads(line) for line in done.stdout.splitlines()]
