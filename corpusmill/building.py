"""The document steps of one text: what they need, what they give, and what a failed part does to those after it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from corpusmill.digest import RowsDigest, rows_digest
from corpusmill.errors import CorpusmillError, ModelOutputError
from corpusmill.schemas import TableSpec
from corpusmill.steps import SOURCE_TABLES, DocumentStep, Models, ResolvedPlan, StepContext, StepOutput, Text
from corpusmill.store.segments import conformed


@dataclass(frozen=True)
class BuiltStep:
    """What one step made of one text. `modelled`: it asks a language model; `empty`: its first table has no rows;
    `made_from`: digests of the artifact tables that it read."""

    step: str
    modelled: bool
    empty: bool
    output: StepOutput
    made_from: Mapping[str, RowsDigest] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return not self.output.failures


def is_dead(built: Sequence[BuiltStep]) -> bool:
    """Whether parts of a text failed and no step that asks a language model gave anything: what a model that answers
    nonsense leaves behind."""
    asked = [step for step in built if step.modelled]
    return bool(asked) and all(step.empty for step in asked) and not all(step.complete for step in asked)


def document_steps(plan: ResolvedPlan) -> tuple[DocumentStep, ...]:
    return tuple(step for step in plan.steps if isinstance(step, DocumentStep))


def steps_to_run(steps: Sequence[DocumentStep], have: Collection[str]) -> list[DocumentStep]:
    """The steps of which a text has no complete artifact, and all that read what those will make anew."""
    run: list[DocumentStep] = []
    anew: set[str] = set()
    for step in steps:
        if step.name not in have or not anew.isdisjoint(step.inputs):
            run.append(step)
            anew |= {spec.name for spec in step.outputs}
    return run


def needed_tables(missing: Sequence[DocumentStep]) -> tuple[str, ...]:
    """The artifact tables that the missing steps read and do not make themselves, in a fixed order."""
    made = {spec.name for step in missing for spec in step.outputs}
    return tuple(sorted({name for step in missing for name in step.inputs} - made - set(SOURCE_TABLES)))


async def build_text(
    text: Text,
    tables: Mapping[str, pa.Table],
    missing: Sequence[DocumentStep],
    plan: ResolvedPlan,
    models: Models,
    finished: Callable[[BuiltStep], None],
    incomplete: Mapping[str, str] | None = None,
) -> None:
    """Run the `missing` steps of one text in order, handing on each result as soon as it is there.

    `tables` holds what earlier steps made of this text, at least `needed_tables(missing)`; `incomplete` names those of
    them that are not whole, with the step that left them so. A step whose parts failed
    leaves what it has; steps that read it still run, and are incomplete like it, so that the next run makes them again.
    Raises what stops a run: ModelUnavailableError, ModelRejectedError, BudgetReachedError, StoreError.
    """
    known = dict(tables)
    partial = dict(incomplete or {})  # table -> the step that left it incomplete
    digests: dict[str, RowsDigest] = {}
    for step in missing:
        inputs = {name: known[name] for name in step.inputs if name not in SOURCE_TABLES}
        context = StepContext(step.settings, plan.fingerprints[step.name], models)
        output = await _run_step(step, text, inputs, context)
        upstream = sorted({partial[name] for name in step.inputs if name in partial})
        failures = (*output.failures, *(f"step {name!r} before it is incomplete" for name in upstream))
        empty = bool(step.outputs) and output.tables[step.outputs[0].name].num_rows == 0
        for name in inputs.keys() - digests.keys():
            digests[name] = rows_digest(inputs[name])
        made_from = {name: digests[name] for name in inputs}
        built = BuiltStep(step.name, bool(step.roles), empty, StepOutput(output.tables, failures), made_from)
        for spec in step.outputs:
            known[spec.name] = built.output.tables[spec.name]
            if failures:
                partial[spec.name] = step.name
        finished(built)


async def _run_step(step: DocumentStep, text: Text, inputs: Mapping[str, pa.Table], context: StepContext) -> StepOutput:
    try:
        output = await step.run(text, inputs, context)
        return StepOutput({spec.name: _checked(step, spec, output, text) for spec in step.outputs}, output.failures)
    except ModelOutputError as error:
        reason = str(error)
    except (CorpusmillError, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - recorded: one text that a step cannot take must not stop the others
        reason = f"step {step.name!r} failed on it: {type(error).__name__}: {error}"
    return StepOutput({spec.name: spec.empty() for spec in step.outputs}, (reason,))


def _checked(step: DocumentStep, spec: TableSpec, output: StepOutput, text: Text) -> pa.Table:
    """The step's table, if it has the schema that it promised and rows of this text alone."""
    table = output.tables.get(spec.name)
    if table is None:
        raise ValueError(f"step {step.name!r} returned no table {spec.name!r}; it returned {sorted(output.tables)}")
    return conformed(spec, table, text.text_hash)
