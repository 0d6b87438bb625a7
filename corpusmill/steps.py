"""The seam of a method: a plan of named steps, each with its engine, its tables and a pure function over Arrow.

Engines run steps, methods describe them; neither knows the other. Five kinds:

TextStep      Spark   text -> tables of that text, no models                       (chunks)
DocumentStep  Ray     text and its earlier tables -> tables of that text, models    (statements, clusters, vectors)
CorpusStep    Spark   tables over all documents -> tables: SQL, grouped maps, connected components (the merge)
MapStep       Ray     rows of one table, in bounded batches -> tables, models       (summaries, corpus-level vectors)
BuildStep     Ray     streams of tables -> files and tables: indices, and what is trained on or counted over all rows

What a TextStep or DocumentStep makes is an artifact, keyed by (text hash, step fingerprint); it holds no doc_id, uri
or title, so moved, copied and unchanged documents cost nothing.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa
from pydantic import BaseModel

from corpusmill.frozen import Frozen
from corpusmill.hashing import fingerprint
from corpusmill.models.contracts import Embedder, LanguageModel, Reranker, Role
from corpusmill.schemas import TableSpec


@dataclass(frozen=True)
class Text:
    """A document text under its hash."""

    text_hash: str
    text: str


@dataclass(frozen=True)
class StepOutput:
    """What a step made of one text, or of one batch of a map step: its tables by name, and a reason for each part that
    failed (then it is partial, and the next run makes it again)."""

    tables: Mapping[str, pa.Table]
    failures: tuple[str, ...] = ()


class Models(Protocol):
    """The models of a run, by role."""

    def language_model(self, role: Role) -> LanguageModel: ...

    @property
    def embedder(self) -> Embedder: ...

    @property
    def reranker(self) -> Reranker:
        """For retrievers; no step uses it."""
        ...

    async def cluster(self, call: Callable[..., np.ndarray], *args: object) -> np.ndarray:
        """Run a CPU- or GPU-heavy array function on the clustering pool (in a thread where there is none)."""
        ...


# (build step, file) -> local path; KeyError for a step that the asking one does not list in `indices`
Indices = Callable[[str, str], Path]


@dataclass(frozen=True)
class StepContext:
    """What a step's function gets beside its rows. `sides` and `index_file` are for map steps: the tables after the
    first input, whole, and the files of the build steps that `indices` names."""

    settings: BaseModel
    fingerprint: str
    models: Models
    sides: Mapping[str, pa.Table] = field(default_factory=dict)
    index_file: Indices | None = None


TextFunction = Callable[[Text, Mapping[str, pa.Table], "TextContext"], Mapping[str, pa.Table]]
DocumentFunction = Callable[[Text, Mapping[str, pa.Table], StepContext], Awaitable[StepOutput]]
MapFunction = Callable[[pa.Table, StepContext], Awaitable[StepOutput]]


@dataclass(frozen=True)
class TextContext:
    settings: BaseModel
    fingerprint: str


class NoSettings(Frozen):
    """Of a step whose result only its version, its inputs and its models change."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """Common to all kinds. `settings` holds only what changes the result; it is hashed into the fingerprint, as is
    `version`, which rises when the step's code makes something else of the same.

    `task_fingerprints` are those of the model tasks it calls (prompt and schema included); `roles` name the models;
    `indices` the earlier build steps whose files it reads (map and build steps alone).
    """

    name: str
    version: int = 1
    settings: BaseModel = field(default_factory=NoSettings)
    inputs: tuple[str, ...] = ()
    outputs: tuple[TableSpec, ...] = ()
    roles: tuple[Role, ...] = ()
    task_fingerprints: tuple[str, ...] = ()
    embeds: bool = False
    indices: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TextStep(Step):
    run: TextFunction


@dataclass(frozen=True, kw_only=True)
class DocumentStep(Step):
    run: DocumentFunction


@dataclass(frozen=True)
class Sql:
    """`name` := Spark SQL over earlier names (the step's inputs and `documents` among them). Plain ANSI SQL."""

    name: str
    query: str


@dataclass(frozen=True)
class GroupMap:
    """`name` := fn(key, one table for each input) for every value of the string column `by`, co-grouped.

    An input group reaches one task whole: keep it bounded, or make `fn` stream. Inputs may lack a key (empty table).
    """

    name: str
    inputs: tuple[str, ...]
    by: str
    fn: Callable[[str, Sequence[pa.Table]], pa.Table]
    schema: pa.Schema


@dataclass(frozen=True)
class FlatMap:
    """`name` := fn over record batches of one input, with no grouping (mapInArrow)."""

    name: str
    input: str
    fn: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    schema: pa.Schema


@dataclass(frozen=True)
class Components:
    """`name` (node string, component string) := connected components of `edges` (columns a, b), component = least node.

    Isolated nodes do not appear. Below the bound of the settings scipy runs on the driver, above it GraphFrames.
    """

    name: str
    edges: str


CorpusOp = Sql | GroupMap | FlatMap | Components


@dataclass(frozen=True, kw_only=True)
class CorpusStep(Step):
    """Relational operations over whole tables. `inputs` may name artifact tables: they then arrive restricted to live
    texts. Outputs are those of `ops` that `outputs` names."""

    ops: tuple[CorpusOp, ...]


@dataclass(frozen=True, kw_only=True)
class MapStep(Step):
    """Runs `run` over `inputs[0]`; rows with one value of `by` stay in one batch. Further inputs reach every call
    whole, as `StepContext.sides`: small tables, such as a codebook.

    A part that fails has a stand-in in the tables and a reason in `failures`: the run publishes what it has and counts
    the failures, and the next run does the step again."""

    by: str
    batch_rows: int = 256
    run: MapFunction


class BuildContext(Protocol):
    """What an index build reads and where it writes. `scratch` is a local folder; each file left in it is published."""

    settings: BaseModel
    scratch: Path
    seed: int

    def index_file(self, step: str, name: str) -> Path:
        """A file of a build step that `indices` names; KeyError for others."""
        ...

    def batches(self, table: str, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Rows of a table, live ones only, in a fixed order (sorted by the table's key within bounded memory)."""
        ...

    def rows(self, table: str) -> int: ...

    def put(self, table: str, rows: pa.Table) -> None:
        """Add rows to a table of the step's `outputs`. Raises ValueError on another table, and on columns that are
        not exactly the table's (in any order)."""
        ...

    def cluster(self, call: Callable[..., Sequence[np.ndarray]], *args: object) -> Sequence[np.ndarray]:
        """Run a heavy array function where the clustering pool runs them (accelerators included)."""
        ...

    def progress(self, message: str) -> None: ...


@dataclass(frozen=True, kw_only=True)
class BuildStep(Step):
    """One task over whole tables, streamed. `files` are published under `<name>/<file>` and reach the retriever and
    later steps through `index_file`; `outputs` are tables.

    `pinned`: what it made once (a codebook) stays as it is while its fingerprint does, whatever its inputs become,
    until a run asks for a refit; an empty result is made again. Steps after it see its digest, not its history. A
    pinned step has tables, since digests cover no files; its files are a function of its tables.
    """

    files: tuple[str, ...] = ()
    pinned: bool = False
    run: Callable[[BuildContext], None]


AnyStep = TextStep | DocumentStep | CorpusStep | MapStep | BuildStep


@dataclass(frozen=True)
class ModelFingerprints:
    """Fingerprints of the configured models, by role, and of the embedder."""

    roles: Mapping[Role, str]
    embedder: str


@dataclass(frozen=True)
class ResolvedPlan:
    """A plan with a fingerprint for each step; a step's fingerprint covers those of all it reads."""

    steps: tuple[AnyStep, ...]
    fingerprints: Mapping[str, str]
    producers: Mapping[str, str] = field(default_factory=dict)  # table -> step name

    def of_kind(self, kind: type[Step]) -> tuple[AnyStep, ...]:
        return tuple(step for step in self.steps if isinstance(step, kind))

    def spec(self, table: str) -> TableSpec:
        for step in self.steps:
            for spec in step.outputs:
                if spec.name == table:
                    return spec
        raise KeyError(f"no step of the plan makes a table {table!r}; tables: {sorted(self.producers)}")


SOURCE_TABLES = ("documents", "texts")


def resolve(steps: Sequence[AnyStep], models: ModelFingerprints) -> ResolvedPlan:
    """Fingerprint each step in order. Raises ValueError on a repeated name, an input that no earlier step makes, index
    files that no earlier step makes or that a step of this kind cannot read, and a build step that makes nothing.

    Equal steps of several methods (same name, same fingerprint) are kept once.
    """
    prints: dict[str, str] = {}
    producers: dict[str, str] = {}
    kept: list[AnyStep] = []
    for step in steps:
        missing = [table for table in step.inputs if table not in producers and table not in SOURCE_TABLES]
        if missing:
            raise ValueError(
                f"step {step.name!r} reads {missing[0]!r}, which no earlier step makes; made: {sorted(producers)}"
            )
        if isinstance(step, BuildStep):
            _refuse_empty(step)
        _refuse_indices(step, [earlier.name for earlier in kept if isinstance(earlier, BuildStep) and earlier.files])
        own = fingerprint(
            {
                "name": step.name,
                "kind": type(step).__name__,
                "version": step.version,
                "settings": step.settings,
                "inputs": {table: prints[producers[table]] for table in step.inputs if table in producers},
                "tasks": sorted(step.task_fingerprints),
                "roles": {role: models.roles[role] for role in sorted(step.roles)},
                "embedder": models.embedder if step.embeds else None,
                **({"indices": {name: prints[name] for name in step.indices}} if step.indices else {}),
            }
        )
        if step.name in prints:
            if prints[step.name] == own:
                continue
            raise ValueError(f"two different steps are named {step.name!r}")
        prints[step.name] = own
        for spec in step.outputs:
            if spec.name in producers or spec.name in SOURCE_TABLES:
                maker = producers.get(spec.name, "the source")
                raise ValueError(f"table {spec.name!r} of step {step.name!r} is already made by {maker!r}")
            producers[spec.name] = step.name
        kept.append(step)
    return ResolvedPlan(tuple(kept), prints, producers)


def _refuse_empty(step: BuildStep) -> None:
    """Raises ValueError where a build step makes nothing, or nothing that a digest tells."""
    if not step.files and not step.outputs:
        raise ValueError(f"build step {step.name!r} makes neither files nor tables")
    if step.pinned and not step.outputs:
        raise ValueError(
            f"pinned step {step.name!r} makes files alone, which no digest covers: a refit could not be told from what "
            "was there; put what it keeps into a table (outputs)"
        )


def _refuse_indices(step: AnyStep, builders: Sequence[str]) -> None:
    """Raises ValueError where the step names index files that it cannot have."""
    if step.indices and not isinstance(step, MapStep | BuildStep):
        raise ValueError(
            f"step {step.name!r} names the indices {list(step.indices)}, but a {type(step).__name__} reads tables "
            "alone; map and build steps read index files"
        )
    if unknown := [name for name in step.indices if name not in builders]:
        raise ValueError(
            f"step {step.name!r} reads the files of {unknown[0]!r}, which is no build step before it that makes any; "
            f"such steps: {sorted(builders)}"
        )
