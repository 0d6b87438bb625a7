"""From settings to a fingerprinted plan, and which of its results a parent snapshot already has."""

from collections.abc import Iterable

from corpusmill.errors import ConfigError
from corpusmill.hashing import fingerprint
from corpusmill.methods.registry import get_method
from corpusmill.models.factory import embedder_dim, model_fingerprints
from corpusmill.settings import Settings
from corpusmill.steps import (
    SOURCE_TABLES,
    AnyStep,
    BuildStep,
    CorpusStep,
    DocumentStep,
    ResolvedPlan,
    TextStep,
    resolve,
)
from corpusmill.store.draft import Draft
from corpusmill.store.manifest import Manifest, MethodEntry

TEXT_FINGERPRINT = "source-texts-v1"  # the step fingerprint of `texts`: a text is keyed by its own hash alone


def resolved_plan(settings: Settings) -> ResolvedPlan:
    """The steps of all methods of the run, equal ones once. Raises UnknownMethodError, ConfigError."""
    if not settings.run.methods:
        raise ConfigError("run.methods is empty; name at least one method")
    dim = embedder_dim(settings)
    steps = [step for name in settings.run.methods for step in get_method(name).plan(settings, dim)]
    steps.sort(key=_rank)  # stable: what is made of single texts, by all methods, before what is made of all
    try:
        return resolve(steps, model_fingerprints(settings))
    except ValueError as error:
        raise ConfigError(f"the plans of {', '.join(settings.run.methods)} do not fit together: {error}") from error


def _rank(step: AnyStep) -> int:
    return 0 if isinstance(step, TextStep) else 1 if isinstance(step, DocumentStep) else 2


def with_methods(settings: Settings, names: Iterable[str]) -> Settings:
    """The settings with these methods before those of the run: an index keeps the methods it has, and the first stays
    the one that answers unless another is asked for."""
    methods = tuple(dict.fromkeys((*names, *settings.run.methods)))
    run = settings.run.model_copy(update={"methods": methods})
    return settings.model_copy(update={"run": run})


def method_steps(settings: Settings, name: str) -> tuple[str, ...]:
    """Names of the steps that one method needs."""
    return tuple(step.name for step in get_method(name).plan(settings, embedder_dim(settings)))


def method_entries(settings: Settings, plan: ResolvedPlan) -> tuple[MethodEntry, ...]:
    return tuple(
        MethodEntry(
            name=name,
            fingerprint=fingerprint({step: plan.fingerprints[step] for step in method_steps(settings, name)}),
            settings=settings.method(name).model_dump(mode="json"),
        )
        for name in settings.run.methods
    )


def table_methods(settings: Settings, step: str) -> tuple[str, ...]:
    """The methods of the run whose plan has this step."""
    return tuple(name for name in settings.run.methods if step in method_steps(settings, name))


def made_from(step: AnyStep, plan: ResolvedPlan, draft: Draft) -> str:
    """Identity of a step's result: its fingerprint with the digests of the tables it reads.

    A corpus step always sees `documents`; any other step only if it says so, so that a moved file remakes nothing that
    does not know of paths. Digests of artifact tables cover which texts are live. Index files count by what they were
    made from.
    """
    read = {*step.inputs, *(("documents",) if isinstance(step, CorpusStep) else ())}
    digests = {t.name: [t.rows, t.digest] for t in draft.tables if t.name in read}
    missing = [name for name in step.inputs if name not in digests and name not in SOURCE_TABLES]
    if missing:
        raise ValueError(f"step {step.name!r} reads {missing[0]!r}, which has no digest yet")
    files = {f.step: f.made_from for f in draft.index_files if f.step in step.indices}
    if without := [name for name in step.indices if name not in files]:
        raise ValueError(f"step {step.name!r} reads index files of {without[0]!r}, which has none yet")
    parts: dict[str, object] = {"step": plan.fingerprints[step.name], "tables": digests}
    return fingerprint(parts | ({"indices": files} if step.indices else {}))


def take_over(step: AnyStep, plan: ResolvedPlan, draft: Draft, parent: Manifest | None, *, refit: bool = False) -> bool:
    """Put the parent's results of `step` into the draft if they were made from the same; True if so.

    Of a pinned step the parent's results count whatever they were made from, unless its tables are all empty or
    `refit`.
    """
    if parent is None:
        return False
    identity = made_from(step, plan, draft)
    tables = [t for t in parent.tables if t.step == step.name]
    files = [f for f in parent.index_files if f.step == step.name]
    if isinstance(step, BuildStep) and step.pinned:
        own = plan.fingerprints[step.name]
        prints = {t.fingerprint for t in tables} | {f.fingerprint for f in files}
        if refit or not any(t.rows for t in tables) or prints != {own}:
            return False
    else:
        tables = [t for t in tables if t.made_from == identity]
        files = [f for f in files if f.made_from == identity]
    if {t.name for t in tables} != {spec.name for spec in step.outputs}:
        return False
    if {f.name for f in files} != set(getattr(step, "files", ())):
        return False
    for table in tables:
        draft.put_table(table)
    for file in files:
        draft.put_index_file(file)
    return True


def result_fingerprint(settings: Settings, plan: ResolvedPlan) -> str:
    """Identity of all settings that change what an index holds or how it answers; engines and paths are not among
    them, so that more workers or another machine publish nothing new."""
    return fingerprint(
        {
            "methods": {entry.name: entry.fingerprint for entry in method_entries(settings, plan)},
            "settings": {name: settings.method(name) for name in settings.run.methods},
            "query": settings.query,
        }
    )


def stages(plan: ResolvedPlan) -> tuple[tuple[AnyStep, ...], ...]:
    """The steps after the document steps, in order; neighbouring corpus steps share one Spark application.

    A plan that does not start with a corpus step gets an empty first group, in which the census runs.
    """
    groups: list[tuple[AnyStep, ...]] = []
    for step in plan.steps:
        if isinstance(step, TextStep | DocumentStep):
            if groups:
                raise ValueError(
                    f"document step {step.name!r} comes after {groups[-1][-1].name!r}; document steps come first"
                )
        elif isinstance(step, CorpusStep) and groups and isinstance(groups[-1][-1], CorpusStep):
            groups[-1] = (*groups[-1], step)
        else:
            groups.append((step,))
    if not groups or not isinstance(groups[0][0], CorpusStep):
        groups.insert(0, ())
    return tuple(groups)
