"""Which results of a parent snapshot count, how steps of several methods are ordered, and what identifies a result."""

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pytest

from corpusmill.digest import RowsDigest
from corpusmill.drafting import fitting, table_entry
from corpusmill.errors import ConfigError
from corpusmill.planning import made_from, resolved_plan, stages, take_over, with_methods
from corpusmill.settings import RunSettings, Settings
from corpusmill.steps import AnyStep, BuildStep, MapStep, ResolvedPlan, resolve
from corpusmill.store.draft import Draft
from corpusmill.store.manifest import Costs, Counts, FileEntry, IndexFileEntry, Manifest, MethodEntry
from tests.unit.test_steps import FACTS, INDEX, MERGE, MODELS, PIECES, PLAN, SAY, build_run, map_run, spec

FIT = BuildStep(name="fit", inputs=("merged",), outputs=(spec("codes"),), files=("t.bin",), pinned=True, run=build_run)
USE = MapStep(
    name="use", inputs=("merged", "codes"), outputs=(spec("used"),), by="text_hash", indices=("fit",), run=map_run
)
FITTED = resolve((PIECES, FACTS, MERGE, FIT, USE), MODELS)


@pytest.fixture(autouse=True)
def one_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corpusmill.planning.table_methods", lambda settings, step: ("m",))
    monkeypatch.setattr("corpusmill.drafting.table_methods", lambda settings, step: ("m",))


def put(draft: Draft, plan: ResolvedPlan, step: AnyStep, rows: int, value: int) -> None:
    """The step's tables of so many rows with the digest `value`, and its files, as made from the draft as it is."""
    identity = made_from(step, plan, draft)
    for table in step.outputs:
        digest = RowsDigest(rows, value)
        draft.put_table(table_entry(Settings(), plan, step, table, [], digest, identity))
    for name in getattr(step, "files", ()):
        entry = FileEntry(key=f"{step.name}/{name}/{value}", bytes=1, blake2b="0" * 64)
        print_ = plan.fingerprints[step.name]
        draft.put_index_file(
            IndexFileEntry(step=step.name, fingerprint=print_, made_from=identity, name=name, file=entry)
        )


def draft_of(
    plan: ResolvedPlan, merged: int, fitted: tuple[int, int] | None = None, steps: Sequence[str] = ()
) -> Draft:
    """A draft with the merge's table of digest `merged`; with `fitted` (rows, digest) also what the pinned step made."""
    draft = Draft()
    for step in plan.steps[:3]:
        put(draft, plan, step, 5, merged if step.name == "merge" else 7)
    if fitted is not None:
        put(draft, plan, next(s for s in plan.steps if s.name == "fit"), *fitted)
    for name in steps:
        put(draft, plan, next(s for s in plan.steps if s.name == name), 2, 3)
    return draft


def published(draft: Draft) -> Manifest:
    return Manifest(
        number=1,
        parent=None,
        commit="c",
        run="r",
        created="now",
        corpusmill="0",
        digest="d",
        config={},
        config_fingerprint="f",
        methods=(MethodEntry(name="m", fingerprint="f", settings={}),),
        models={},
        embedder="hash",
        dim=8,
        tables=tuple(draft.tables),
        artifacts=(),
        index_files=tuple(draft.index_files),
        counts=Counts(),
        costs=Costs(),
    )


def test_a_pinned_step_stays_whatever_its_inputs_became() -> None:
    parent = published(draft_of(FITTED, merged=1, fitted=(4, 9)))
    draft = draft_of(FITTED, merged=2)
    assert take_over(FIT, FITTED, draft, parent)
    assert [t.digest for t in draft.tables if t.name == "codes"] == [parent.table("codes").digest]
    assert [f.file.key for f in draft.index_files] == ["fit/t.bin/9"]


def test_a_pinned_step_is_made_again_when_asked_when_empty_and_when_it_is_another_step() -> None:
    parent = published(draft_of(FITTED, merged=1, fitted=(4, 9)))
    assert not take_over(FIT, FITTED, draft_of(FITTED, merged=1), parent, refit=True)
    assert not take_over(FIT, FITTED, draft_of(FITTED, merged=1), published(draft_of(FITTED, 1, (0, 0))))
    other = resolve((PIECES, FACTS, MERGE, replace(FIT, version=2), USE), MODELS)
    assert not take_over(replace(FIT, version=2), other, draft_of(other, merged=1), parent)
    assert not take_over(FIT, FITTED, draft_of(FITTED, merged=1), published(draft_of(FITTED, merged=1)))


def test_a_step_that_is_not_pinned_is_made_again_when_an_input_changed() -> None:
    step = replace(FIT, pinned=False)
    plan = resolve((PIECES, FACTS, MERGE, step), MODELS)
    parent = published(draft_of(plan, merged=1, fitted=(4, 9)))
    assert take_over(step, plan, draft_of(plan, merged=1), parent)
    assert not take_over(step, plan, draft_of(plan, merged=2), parent)
    assert take_over(step, plan, draft_of(plan, merged=1), parent, refit=True)


def test_what_reads_index_files_is_made_from_what_they_were_made_from() -> None:
    kept = draft_of(FITTED, merged=1, fitted=(4, 9))
    before = made_from(USE, FITTED, kept)
    assert made_from(USE, FITTED, draft_of(FITTED, merged=1, fitted=(4, 9))) == before
    refitted = kept.model_copy(deep=True)
    (entry,) = refitted.index_files
    refitted.put_index_file(entry.model_copy(update={"made_from": "of other rows"}))
    assert made_from(USE, FITTED, refitted) != before
    without = replace(USE, indices=())
    plan = resolve((PIECES, FACTS, MERGE, FIT, without), MODELS)
    assert made_from(without, plan, kept) == made_from(without, plan, refitted)


def test_index_files_that_are_not_there_are_named() -> None:
    draft = draft_of(FITTED, merged=1, fitted=(4, 9))
    draft.index_files = []
    with pytest.raises(ValueError, match="'use' reads index files of 'fit', which has none yet"):
        made_from(USE, FITTED, draft)


class Fake:
    """A method of which only the plan counts."""

    def __init__(self, *steps: AnyStep) -> None:
        self.steps = steps

    def plan(self, settings: Settings, dim: int) -> tuple[AnyStep, ...]:
        return self.steps


def test_methods_of_one_index_share_the_document_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    second = replace(FACTS, name="more", outputs=(spec("more"),))
    methods = {"a": Fake(*PLAN), "b": Fake(PIECES, second, replace(SAY, name="more_said", outputs=(spec("m2"),)))}
    methods["b"].steps = (PIECES, second, replace(INDEX, name="own", inputs=("more",), files=("b.bin",)))
    monkeypatch.setattr("corpusmill.planning.get_method", methods.__getitem__)
    plan = resolved_plan(Settings(run=RunSettings(methods=("a", "b"))))
    assert [step.name for step in plan.steps] == ["pieces", "facts", "more", "merge", "index", "say", "own"]
    assert [[step.name for step in group] for group in stages(plan)] == [["merge"], ["index"], ["say"], ["own"]]


def test_plans_that_do_not_fit_are_refused_with_their_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    methods = {"a": Fake(*PLAN), "b": Fake(replace(PIECES, version=2))}
    monkeypatch.setattr("corpusmill.planning.get_method", methods.__getitem__)
    with pytest.raises(ConfigError, match="a, b do not fit together: two different steps are named 'pieces'"):
        resolved_plan(Settings(run=RunSettings(methods=("a", "b"))))


def test_rows_of_a_table_have_its_columns_and_no_others() -> None:
    table = spec("codes")
    assert fitting("fit", table, pa.table({"text_hash": ["a"]})).num_rows == 1
    with pytest.raises(ValueError, match=r"'fit' made rows of 'codes' without \['text_hash'\] and with \['hash'\]"):
        fitting("fit", table, pa.table({"hash": ["a"]}))
    with pytest.raises(ValueError, match=r"with \['more'\]; its columns: \['text_hash'\]"):
        fitting("fit", table, pa.table({"text_hash": ["a"], "more": [1]}))
    with pytest.raises(ValueError, match="repeated"):
        fitting("fit", table, pa.table([pa.array(["a"]), pa.array(["b"])], names=["text_hash", "text_hash"]))


def test_a_method_added_to_an_index_comes_after_those_it_has() -> None:
    asked = Settings(run=RunSettings(methods=("dense", "bm25")))
    assert with_methods(asked, ["bm25", "contextrag"]).run.methods == ("bm25", "contextrag", "dense")
    assert with_methods(asked, []).run.methods == ("dense", "bm25")
