"""Inputs that kill their worker end the run by name; failed parts of a map step are published and made again."""

from pathlib import Path

import pyarrow as pa
import pytest

from benchmarks.stubs import stub_models
from corpusmill.digest import rows_digest
from corpusmill.errors import RunFailedError
from corpusmill.hashing import hash_text
from corpusmill.methods.flexstructrag.tables import ENTITY_PARTS
from corpusmill.planning import made_from, resolved_plan, take_over
from corpusmill.run import RunSpec, silent
from corpusmill.settings import CacheSettings, EmbedderSettings, ModelSettings, ModelsSettings, RaySettings, Settings
from corpusmill.store import layout
from corpusmill.store.draft import Draft
from corpusmill.store.manifest import TableEntry
from corpusmill.store.objects import open_store
from corpusmill.store.tables import read_table_file, write_table_file
from ray_actors.builder import build
from ray_actors.mapping import map_step, run_map
from tests.drafts import ingested
from tests.poison import POISON, PoisonFactory
from tests.small_index import publish_draft

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("local_ray")]

TEXTS = [f"Ada Lovelace wrote note {i} about the engine of Charles Babbage in London." for i in range(30)]


def spec_of(folder: Path) -> RunSpec:
    settings = Settings(
        models=ModelsSettings(default=ModelSettings(backend="openai", model="stub", retries=0)),
        embedder=EmbedderSettings(backend="hash", dim=32),
        ray=RaySettings(num_cpus=2, builders=1),
        cache=CacheSettings(dir=str(folder / "cache")),
    )
    return RunSpec(run="r", index=str(folder / "index"), source=None, source_id="memory", settings=settings)


def with_parts(spec: RunSpec, draft: Draft) -> Draft:
    """The draft with sixty parts of each of three entities, one of which names the poison."""
    rows = []
    for entity in ("e0", "e1", "e2"):
        for number in range(60):
            poisonous = entity == "e2" and number == 30
            part = f"{entity} is fact {number}{f' of {POISON}' if poisonous else ''}."
            rows.append({"entity_id": entity, "name": entity, "part_hash": hash_text(part), "part": part})
    table = ENTITY_PARTS.table(rows)
    store = open_store(spec.index, spec.settings.store)
    file, _ = write_table_file(store, layout.data_key(spec.run, ENTITY_PARTS.name), table, table.schema)
    digest = rows_digest(table)
    made = draft.model_copy(deep=True)
    made.put_table(
        TableEntry(
            name=ENTITY_PARTS.name,
            step="merge",
            fingerprint="f",
            methods=("flexstructrag",),
            key=ENTITY_PARTS.key,
            rows=digest.rows,
            digest=digest.hex,
            files=(file,),
        )
    )
    return made


def texts_of(spec: RunSpec, draft: Draft) -> tuple[TableEntry, list[dict[str, object]]]:
    entry = next(t for t in draft.tables if t.name == "entity_texts")
    store = open_store(spec.index, spec.settings.store)
    return entry, pa.concat_tables([read_table_file(store, file) for file in entry.files]).to_pylist()


def test_a_failed_part_is_published_with_a_stand_in_and_made_again_by_the_next_run(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    plan = resolved_plan(spec.settings)
    step = map_step(plan, "entity_texts")
    draft = with_parts(spec, ingested(spec, TEXTS).draft)
    first = run_map(spec, draft, step.name, silent, models_factory=PoisonFactory(nonsense=True))
    entry, rows = texts_of(spec, first)
    assert [row["summarised"] for row in rows] == [True, True, False] and all(row["text"] for row in rows)
    assert first.map_failures >= 1 and entry.made_from == ""
    assert first.map_reasons[0].startswith("entity_texts: entity 'e2' (e2): ") and POISON in first.map_reasons[0]
    parent = publish_draft(open_store(spec.index, spec.settings.store), first).manifest
    assert parent.map_failures == first.map_failures
    assert not take_over(step, plan, draft.model_copy(deep=True), parent)
    again = run_map(spec, draft, step.name, silent, models_factory=PoisonFactory(nonsense=True))
    assert again.costs.calls == 0 and again.costs.cached > 0  # what had come of it was in the cache
    assert texts_of(spec, again)[1] == rows
    cured = run_map(spec, draft, step.name, silent, models_factory=stub_models())
    entry, rows = texts_of(spec, cured)
    assert cured.map_failures == 0 and entry.made_from == made_from(step, plan, draft)
    assert all(row["summarised"] for row in rows) and 0 < cured.costs.calls < cured.costs.cached


def test_rows_that_kill_every_map_worker_end_the_run_with_their_step(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    draft = with_parts(spec, ingested(spec, TEXTS).draft)
    with pytest.raises(RunFailedError, match="map step 'entity_texts', rows of entity_parts from entity_id 'e0'"):
        run_map(spec, draft, "entity_texts", silent, models_factory=PoisonFactory())


def test_a_text_that_kills_every_builder_ends_the_run_with_its_batch(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    ingest = ingested(spec, [*TEXTS, f"Agatha Christie wrote of {POISON}."], segments=1)
    with pytest.raises(RunFailedError, match=r"texts 0 to 30 of .*\(4 attempts\)"):
        build(spec, ingest.draft, ingest.todo, ingest.todo_texts, silent, models_factory=PoisonFactory())
