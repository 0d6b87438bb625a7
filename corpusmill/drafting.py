"""A draft as steps read it, and the entry of a table that a step made."""

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from corpusmill.digest import RowsDigest
from corpusmill.planning import table_methods
from corpusmill.schemas import TableSpec
from corpusmill.settings import Settings
from corpusmill.steps import AnyStep, ResolvedPlan
from corpusmill.store.draft import Draft
from corpusmill.store.manifest import FileEntry, TableEntry
from corpusmill.store.objects import ObjectStore
from corpusmill.store.view import SnapshotView


def draft_view(store: ObjectStore, draft: Draft, plan: ResolvedPlan) -> SnapshotView:
    """The draft's tables and files; tables of the plan that have no rows yet are empty."""
    return SnapshotView(store, draft, specs=[spec for step in plan.steps for spec in step.outputs])


class StepIndices:
    """The files of the build steps that a step names (satisfies steps.Indices)."""

    def __init__(self, step: AnyStep, view: SnapshotView) -> None:
        self._step = step
        self._view = view

    def __call__(self, step: str, name: str) -> Path:
        if step not in self._step.indices:
            raise KeyError(f"step {self._step.name!r} does not name {step!r} in its indices: {self._step.indices}")
        return self._view.index_file(step, name)


def fitting(step: str, spec: TableSpec, rows: pa.Table) -> pa.Table:
    """The columns of a step's table in their order; types are cast when the rows are written.

    Raises ValueError naming the columns that are missing and those that are too many.
    """
    wanted = spec.schema.names
    missing = [name for name in wanted if name not in rows.column_names]
    more = [name for name in rows.column_names if name not in wanted]
    if missing or more or rows.num_columns != len(wanted):
        said = [f"without {missing}" if missing else "", f"with {more}" if more else ""]
        why = " and ".join(part for part in said if part) or f"with a repeated one: {rows.column_names}"
        raise ValueError(f"step {step!r} made rows of {spec.name!r} {why}; its columns: {wanted}")
    return rows.select(wanted)


def table_entry(
    settings: Settings,
    plan: ResolvedPlan,
    step: AnyStep,
    table: TableSpec,
    files: Iterable[FileEntry],
    digest: RowsDigest,
    made_from: str,
) -> TableEntry:
    """What a manifest says of a table of a corpus, map or build step; `digest` is that of all its rows."""
    return TableEntry(
        name=table.name,
        step=step.name,
        fingerprint=plan.fingerprints[step.name],
        methods=table_methods(settings, step.name),
        key=table.key,
        rows=digest.rows,
        digest=digest.hex,
        made_from=made_from,
        files=tuple(files),
    )
