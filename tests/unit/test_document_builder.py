"""The document builder over a small store: what ends a run, what costs one text, and what is built anew."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pydantic import BaseModel

from corpusmill import document_builder
from corpusmill.digest import rows_digest
from corpusmill.document_builder import BatchResult, DocumentBuilder, WorkItem
from corpusmill.models.factory import build_models
from corpusmill.models.metered import Meter
from corpusmill.planning import TEXT_FINGERPRINT
from corpusmill.run import TODO
from corpusmill.schemas import TEXTS, TableSpec, required
from corpusmill.settings import Settings
from corpusmill.steps import (
    DocumentStep,
    ModelFingerprints,
    ResolvedPlan,
    StepContext,
    StepOutput,
    Text,
    TextContext,
    TextStep,
    resolve,
)
from corpusmill.store.draft import Draft
from corpusmill.store.local import LocalStore
from corpusmill.store.segments import SegmentWriter, TextArtifact, owners, read_segment_index, write_segment
from corpusmill.store.tables import write_table_file

Rows = Callable[[str], list[dict[str, object]]]


class Nothing(BaseModel):
    pass


def spec(name: str) -> TableSpec:
    item = pa.struct([required("name", pa.string())])
    fields = [required("text_hash", pa.string()), required("value", pa.string()), required("names", pa.list_(item))]
    return TableSpec(name, pa.schema(fields), ("text_hash",))


def row(text_hash: str, value: object = "v", names: Sequence[object] = ("n",)) -> dict[str, object]:
    return {"text_hash": text_hash, "value": value, "names": [{"name": name} for name in names]}


def loose(rows: list[dict[str, object]]) -> pa.Table:
    item = pa.struct([pa.field("name", pa.string())])
    return pa.Table.from_pylist(
        rows, schema=pa.schema({"text_hash": pa.string(), "value": pa.string(), "names": pa.list_(item)})
    )


def good(text_hash: str) -> list[dict[str, object]]:
    return [row(text_hash)]


def step(
    name: str, reads: tuple[str, ...] = (), rows: Rows = good, fails: str | None = None, wait: float = 0.0
) -> DocumentStep:
    async def run(text: Text, tables: Mapping[str, pa.Table], context: StepContext) -> StepOutput:
        await asyncio.sleep(wait)
        return StepOutput({name: loose(rows(text.text_hash))}, (fails,) if fails else ())

    return DocumentStep(
        name=name, version=1, settings=Nothing(), inputs=reads, outputs=(spec(name),), roles=("extract",), run=run
    )


def chunks() -> TextStep:
    def run(text: Text, tables: Mapping[str, pa.Table], context: TextContext) -> Mapping[str, pa.Table]:
        raise AssertionError("builders run no text steps")

    return TextStep(name="chunks", version=1, settings=Nothing(), outputs=(spec("chunks"),), run=run)


class Case:
    """Texts `t0`, `t1`, ... in a store, what is there of them, and a builder over them."""

    def __init__(self, folder: Path, steps: Sequence[DocumentStep], texts: int = 1) -> None:
        self.store = LocalStore(str(folder))
        self.steps = (chunks(), *steps)
        self.plan: ResolvedPlan = resolve(self.steps, ModelFingerprints({"extract": "none"}, "none"))
        self.hashes = [f"t{number}" for number in range(texts)]
        self.draft = Draft()
        self.have: dict[str, str] = {}
        whole = [TextArtifact(h, {"texts": TEXTS.table([{"text_hash": h, "text": h}])}) for h in self.hashes]
        entry = write_segment(self.store, "texts", TEXT_FINGERPRINT, [TEXTS], whole)
        self.draft.add_segments("texts", TEXT_FINGERPRINT, ("texts",), [entry])
        self.have["texts"] = entry.id

    def put(self, name: str, value: str = "v", **artifact: object) -> None:
        made = [TextArtifact(h, {name: spec(name).table([row(h, value)])}, **artifact) for h in self.hashes]  # type: ignore[arg-type]
        entry = write_segment(self.store, name, self.plan.fingerprints[name], [spec(name)], made)
        self.draft.add_segments(name, self.plan.fingerprints[name], (name,), [entry])
        self.have[name] = entry.id

    def run(self, *, missing: Sequence[str] = (), dead_limit: int | None = None) -> BatchResult:
        rows = [
            {"segment": self.have["texts"], "text_hash": h, "missing": list(missing), "have": list(self.have.items())}
            for h in self.hashes
        ]
        file, _ = write_table_file(self.store, "todo.parquet", TODO.table(rows), TODO.schema)
        builder = DocumentBuilder(
            Settings(), self.store, self.plan, build_models(Settings(), meter=Meter()), self.draft.artifacts, dead_limit
        )
        result = asyncio.run(builder.run_batch(WorkItem(id="0", file=file, start=0, count=len(rows))))
        for name, sealed in result.segments.items():
            self.draft.add_segments(name, self.plan.fingerprints[name], (name,), sealed)
        return result

    def owned(self) -> dict[str, list[dict[str, object]]]:
        indexes = {a.step: [read_segment_index(self.store, s) for s in a.segments] for a in self.draft.artifacts}
        return {name: rows.to_pylist() for name, rows in owners(indexes).items()}


def test_artifacts_name_what_they_were_made_from(tmp_path: Path) -> None:
    case = Case(tmp_path, [step("a", ("chunks",)), step("b", ("chunks", "a")), step("c")])
    case.put("chunks")
    assert case.run().error is None
    owned = case.owned()
    digest = {name: owned[name][0]["tables"][0]["digest"] for name in "abc"}  # type: ignore[index]
    assert [part["name"] for part in owned["b"][0]["made_from"]] == ["a", "chunks"]  # type: ignore[attr-defined]
    assert owned["b"][0]["made_from"][0]["digest"] == digest["a"]  # type: ignore[index]
    assert owned["c"][0]["made_from"] == []
    assert all(rows[0]["complete"] for rows in owned.values())


def test_what_reads_a_step_that_is_made_anew_is_made_anew(tmp_path: Path) -> None:
    case = Case(tmp_path, [step("a", ("chunks",)), step("b", ("a",)), step("c", ("chunks",))])
    case.put("chunks")
    of_old = {"a": rows_digest(spec("a").table([row("t0", "lost")]))}
    case.put("b", "old", made_from=of_old)
    case.put("c")
    result = case.run(missing=["a"])
    assert result.error is None and set(result.segments) == {"a", "b"}
    (made,) = case.owned()["b"]
    assert made["segment"] == 1 and made["complete"]


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (lambda h: [row("t1" if h == "t0" else h)], "holds rows of text t1"),
        (lambda h: [row(h, None if h == "t0" else "v")], "a.value has 1 nulls"),
        (lambda h: [row(h, names=[None if h == "t0" else "n"])], "a.names items.name has 1 nulls"),
    ],
)
def test_rows_that_do_not_fit_cost_their_text_alone(tmp_path: Path, rows: Rows, reason: str) -> None:
    case = Case(tmp_path, [step("a", rows=rows), step("b", ("a",))], texts=3)
    result = case.run()
    assert (result.error, result.texts, result.partial) == (None, 3, 1)
    bad, *others = case.owned()["a"]
    assert not bad["complete"] and reason in bad["failures"][0]  # type: ignore[index]
    assert all(other["complete"] for other in others)
    assert [made["complete"] for made in case.owned()["b"]] == [False, True, True]


def test_a_writer_refuses_what_does_not_fit_and_keeps_the_rest(tmp_path: Path) -> None:
    writer = SegmentWriter(LocalStore(str(tmp_path)), "a", "fp", [spec("a")])
    writer.add(TextArtifact("t0", {"a": loose([row("t0")])}))
    for bad in (row("t2"), row("t1", None), row("t1", names=["n", None])):
        with pytest.raises(ValueError, match=r"holds rows of text t2|nulls, where none may be"):
            writer.add(TextArtifact("t1", {"a": loose([bad])}))
    sealed = writer.seal()
    assert sealed is not None and sealed.index.rows == 1


@pytest.mark.parametrize("seal", [True, False])
def test_any_error_of_the_drainer_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seal: bool) -> None:
    monkeypatch.setattr(document_builder, "_DRAIN_S", 0.01)

    def broken(self: document_builder._Batch, *, seal: bool) -> None:
        if seal == at_the_end:
            raise ZeroDivisionError("of the drainer")

    at_the_end = seal
    monkeypatch.setattr(document_builder._Batch, "drain", broken)
    case = Case(tmp_path, [step("a", wait=0.2)], texts=4)
    assert case.run().error == ("RunFailedError", "the document builder failed: ZeroDivisionError: of the drainer")


def test_what_could_not_be_sealed_is_sealed_by_the_next_try(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "index"))
    writer = SegmentWriter(store, "a", "fp", [spec("a")])
    writer.add(TextArtifact("t0", {"a": loose([row("t0")])}))
    (tmp_path / "index").mkdir(exist_ok=True)
    (tmp_path / "index" / "segments").write_text("a file where a folder must be")
    with pytest.raises(Exception, match="segments"):
        writer.seal()
    os.remove(tmp_path / "index" / "segments")
    sealed = writer.seal()
    assert sealed is not None and sealed.index.rows == 1


def test_a_model_that_gives_nothing_ends_a_first_run_early_and_no_later_one(tmp_path: Path) -> None:
    case = Case(tmp_path, [step("a", rows=lambda h: [], fails="nonsense")], texts=30)
    late = case.run()
    assert (late.error, late.texts, late.dead) == (None, 30, 30)
    early = case.run(dead_limit=10)
    assert early.error is not None and "nothing came of the first 10 texts" in early.error[1]
    mixed = Case(tmp_path / "mixed", [step("a", rows=lambda h: good(h) if h == "t0" else [], fails="f")], texts=30)
    assert mixed.run(dead_limit=10).error is None


def test_an_incomplete_text_step_leaves_the_steps_after_it_incomplete_and_says_nothing_of_the_model(
    tmp_path: Path,
) -> None:
    case = Case(tmp_path, [step("a", ("chunks",), rows=lambda h: []), step("c")], texts=3)
    case.put("chunks", failures=("step 'chunks' failed on it",))
    result = case.run(missing=["a", "c", "chunks"], dead_limit=1)
    assert (result.error, result.texts, result.partial, result.dead) == (None, 3, 3, 0)
    owned = case.owned()
    assert owned["a"][0]["failures"] == ["step 'chunks' before it is incomplete"]
    assert owned["c"][0]["complete"]
