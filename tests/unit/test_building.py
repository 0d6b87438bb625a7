"""The runner of document steps on one text: order, failures and what they do downstream."""

import asyncio
from collections.abc import Mapping

import pyarrow as pa
import pytest
from pydantic import BaseModel

from corpusmill.building import BuiltStep, build_text, is_dead, needed_tables
from corpusmill.errors import BudgetReachedError, ModelOutputError
from corpusmill.models.factory import build_models
from corpusmill.models.metered import Meter
from corpusmill.schemas import TableSpec, required
from corpusmill.settings import Settings
from corpusmill.steps import DocumentStep, ModelFingerprints, ResolvedPlan, StepContext, StepOutput, Text, resolve


class Nothing(BaseModel):
    pass


def spec(name: str) -> TableSpec:
    return TableSpec(
        name, pa.schema([required("text_hash", pa.string()), required("value", pa.string())]), ("text_hash",)
    )


def step(name: str, reads: tuple[str, ...] = (), fails: Exception | str | None = None, rows: int = 1) -> DocumentStep:
    own = spec(name)

    async def run(text: Text, tables: Mapping[str, pa.Table], context: StepContext) -> StepOutput:
        assert set(tables) == set(reads)
        if isinstance(fails, Exception):
            raise fails
        value = "+".join([name, *(f"{n}:{tables[n].num_rows}" for n in reads)])
        table = own.table([{"text_hash": text.text_hash, "value": value}] * rows)
        return StepOutput({name: table}, (fails,) if fails else ())

    return DocumentStep(
        name=name, version=1, settings=Nothing(), inputs=reads, outputs=(own,), roles=("extract",), run=run
    )


def plan_of(*steps: DocumentStep) -> ResolvedPlan:
    return resolve(steps, ModelFingerprints({"extract": "none"}, "none"))


def run(plan: ResolvedPlan, missing: list[str], tables: dict[str, pa.Table] | None = None) -> list[BuiltStep]:
    built: list[BuiltStep] = []
    models = build_models(Settings(), meter=Meter())
    steps = [s for s in plan.steps if s.name in missing and isinstance(s, DocumentStep)]
    asyncio.run(build_text(Text("h", "some text"), tables or {}, steps, plan, models, built.append))
    return built


def values(built: BuiltStep) -> list[str]:
    return [v for t in built.output.tables.values() for v in t.column("value").to_pylist()]


def test_each_step_sees_the_tables_of_the_steps_before_it() -> None:
    built = run(plan_of(step("a"), step("b", ("a",)), step("c", ("a", "b"))), ["a", "b", "c"])
    assert [b.step for b in built] == ["a", "b", "c"]
    assert values(built[2]) == ["c+a:1+b:1"]
    assert all(b.complete for b in built)


def test_only_missing_steps_run_over_the_tables_given() -> None:
    plan = plan_of(step("a"), step("b", ("a",)))
    known = spec("a").table([{"text_hash": "h", "value": str(i)} for i in range(3)])
    (built,) = run(plan, ["b"], {"a": known})
    assert values(built) == ["b+a:3"]


def test_needed_tables_are_those_that_the_missing_steps_do_not_make() -> None:
    steps = [step("b", ("a",)), step("c", ("a", "b", "z"))]
    assert needed_tables(steps) == ("a", "z")


def test_a_failed_part_keeps_the_rest_and_leaves_later_steps_incomplete() -> None:
    built = run(plan_of(step("a", fails="window 2: cut off"), step("b", ("a",)), step("c")), ["a", "b", "c"])
    assert values(built[0]) == ["a"] and not built[0].complete and not is_dead(built)
    assert values(built[1]) == ["b+a:1"] and not built[1].complete
    assert "'a'" in built[1].output.failures[0]
    assert built[2].complete


@pytest.mark.parametrize("error", [ModelOutputError("nonsense twice"), ValueError("cannot take it")])
def test_an_unhandled_failure_gives_empty_tables_and_a_reason(error: Exception) -> None:
    built = run(plan_of(step("a", fails=error), step("b", ("a",))), ["a", "b"])
    assert is_dead(built[:1]) and str(error) in built[0].output.failures[0]
    assert values(built[1]) == ["b+a:0"] and not built[1].complete


def test_what_stops_a_run_is_raised_after_the_finished_steps_are_handed_on() -> None:
    plan = plan_of(step("a"), step("b", ("a",), fails=BudgetReachedError("spent")))
    built: list[BuiltStep] = []
    models = build_models(Settings(), meter=Meter())
    steps = [s for s in plan.steps if isinstance(s, DocumentStep)]
    with pytest.raises(BudgetReachedError):
        asyncio.run(build_text(Text("h", "t"), {}, steps, plan, models, built.append))
    assert [b.step for b in built] == ["a"]


def test_a_step_that_forgets_a_table_is_told_by_name() -> None:
    async def forget(text: Text, tables: Mapping[str, pa.Table], context: StepContext) -> StepOutput:
        return StepOutput({})

    lazy = DocumentStep(name="lazy", version=1, settings=Nothing(), outputs=(spec("lazy"),), run=forget)
    (built,) = run(plan_of(lazy), ["lazy"])
    assert "returned no table 'lazy'" in built.output.failures[0]
