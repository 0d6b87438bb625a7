"""The report page of a run: one HTML file that needs nothing else, readable years later."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources

from corpusmill.estimate import Estimate
from corpusmill.methods.extras import method_extra
from corpusmill.report import plots
from corpusmill.report.elements import Figure, Section, Table
from corpusmill.run import PlanCounts, RunSpec
from corpusmill.store.manifest import Costs, Manifest
from corpusmill.store.view import SnapshotView

LISTED = 50  # rows of a table of documents
SCRIPT_SAMPLE = 200  # texts whose script is looked at
SCRIPT_CHARACTERS = 2000


@dataclass(frozen=True)
class RunFacts:
    """What the page is about, beside the tables of the snapshot. `stage_seconds` are in the order of the stages."""

    spec: RunSpec
    counts: PlanCounts
    costs: Costs
    stage_seconds: Mapping[str, float]
    estimate: Estimate | None
    manifest: Manifest


@dataclass(frozen=True)
class Fact:
    label: str
    value: str
    bad: bool = False


def render_report(view: SnapshotView, facts: RunFacts) -> str:
    """The page as HTML. Reads tables in streams; what it lists is bounded."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined)
    template = environment.from_string(
        resources.files("corpusmill.report").joinpath("report.html.j2").read_text("utf-8")
    )
    sections = [section for section in _sections(view, facts) if not section.empty]
    manifest = facts.manifest
    return template.render(
        title=f"Snapshot {manifest.number} · {facts.spec.run}",
        lead=f"{facts.spec.source or 'all sources'} → {facts.spec.index}, {manifest.created}",
        facts=_facts(facts),
        sections=sections,
        fingerprints=_fingerprints(manifest),
        settings=json.dumps(manifest.config, indent=2, ensure_ascii=False),
        footer=f"corpusmill {manifest.corpusmill}",
    )


def _facts(facts: RunFacts) -> list[Fact]:
    counts, costs = facts.manifest.counts, facts.costs
    tokens = costs.prompt_tokens + costs.completion_tokens
    return [
        Fact("documents", f"{counts.documents:,}"),
        Fact("new or changed", f"{facts.counts.new + facts.counts.changed:,}"),
        Fact("quarantined", f"{counts.quarantined:,}", bad=counts.quarantined > 0),
        Fact("partial", f"{counts.partial:,}", bad=counts.partial > 0),
        Fact("model calls", f"{costs.calls:,}"),
        Fact("tokens", f"{tokens:,}"),
        Fact("cost", f"{costs.cost:,.2f}"),
        Fact("time", clock(sum(facts.stage_seconds.values()))),
    ]


def _sections(view: SnapshotView, facts: RunFacts) -> Iterator[Section]:
    yield _plan(facts)
    yield _time(facts)
    yield _spending(facts)
    yield _chunks(view, facts)
    for name in facts.spec.settings.run.methods:
        extra = method_extra(name, "report")
        if extra is not None:
            yield from extra.sections(view)
    yield _troubles(view)
    yield _scripts(view, facts)
    yield _tables(facts.manifest)


def _plan(facts: RunFacts) -> Section:
    c, counts = facts.counts, facts.manifest.counts
    plan = {"new": c.new, "changed": c.changed, "moved": c.moved, "deleted": c.deleted, "unchanged": c.unchanged}
    outcomes = {
        "indexed": counts.indexed - counts.partial if counts.indexed >= counts.partial else counts.indexed,
        "partial": counts.partial,
        "empty": counts.empty,
        "quarantined": counts.quarantined,
    }
    return Section(
        "Documents",
        figures=(
            Figure(plots.bars(plan, whole), "What the plan found, against the snapshot before."),
            Figure(plots.bars(outcomes, whole), "How the index's documents ended."),
        ),
    )


def _time(facts: RunFacts) -> Section:
    seconds = {name: value for name, value in facts.stage_seconds.items() if value > 0}
    if not seconds:
        return Section("Time")
    return Section(
        "Time", figures=(Figure(plots.bars(seconds, clock, "seconds"), "Wall time by stage, in the order they ran."),)
    )


def _spending(facts: RunFacts) -> Section:
    costs, guess = facts.costs, facts.estimate
    actual = {
        "documents": facts.counts.converted,
        "model calls": costs.calls,
        "tokens in": costs.prompt_tokens,
        "tokens out": costs.completion_tokens,
        "texts embedded": costs.embedded_texts,
        "cost": costs.cost,
    }
    guessed: dict[str, float] = {}
    if guess is not None:
        guessed = {
            "documents": guess.documents,
            "model calls": guess.calls,
            "tokens in": guess.tokens_in,
            "tokens out": guess.tokens_out,
            "texts embedded": guess.embedded_texts,
            "cost": guess.cost,
        }
    rows = [
        (name, amount(value), amount(guessed[name]) if name in guessed else "–", ratio(value, guessed.get(name)))
        for name, value in actual.items()
    ]
    title = "The estimate is of a build from nothing; a run pays only for what changed." if guess else ""
    spent = Table(title, ("", "actual", "estimate", "actual / estimate"), rows, numeric=(1, 2, 3))
    answered = costs.calls + costs.cached
    figures: tuple[Figure, ...] = ()
    if answered:
        shares = {"called": float(costs.calls), "from the cache": float(costs.cached)}
        share = costs.cached / answered
        figures = (Figure(plots.bars(shares, whole), f"Who answered: {share:.0%} of requests came from the cache."),)
    return Section("Calls, tokens and cost", figures=figures, tables=(spent,))


def _chunks(view: SnapshotView, facts: RunFacts) -> Section:
    if "chunks" not in view.tables():
        return Section("Chunks")
    sizes: Counter[int] = Counter()
    for batch in view.unsorted_batches("chunks", ["tokens"]):
        sizes.update(batch.column(0).to_pylist())
    if not sizes:
        return Section("Chunks")
    chunk = facts.spec.settings.chunk
    marks = {f"ct_min {chunk.ct_min}": chunk.ct_min, f"ct_max {chunk.ct_max}": chunk.ct_max}
    drawn = plots.histogram(sizes, f"tokens of a chunk ({chunk.tokenizer})", marks)
    mean = sum(size * count for size, count in sizes.items()) / sizes.total()
    caption = f"{sizes.total():,} chunks, {mean:,.0f} tokens on average, {max(sizes):,} at most."
    return Section("Chunks", figures=(Figure(drawn, caption),))


def _troubles(view: SnapshotView) -> Section:
    quarantined: list[tuple[str, str]] = []
    reasons: Counter[str] = Counter()
    total = 0
    partial_texts = view.partial_texts()
    partial: list[tuple[str, str]] = []
    partial_total = 0
    for batch in view.unsorted_batches("documents", ["uri", "outcome", "reason", "text_hash"]):
        for row in batch.to_pylist():
            if row["outcome"] == "quarantined":
                total += 1
                reasons[_kind_of(row["reason"])] += 1
                if len(quarantined) < LISTED:
                    quarantined.append((row["uri"], row["reason"] or ""))
            elif row["text_hash"] in partial_texts:
                partial_total += 1
                if len(partial) < LISTED:
                    partial.append((row["uri"], "; ".join(partial_texts[row["text_hash"]])))
    common = [(name, f"{count:,}") for name, count in reasons.most_common(12)]
    return Section(
        "What went wrong",
        tables=(
            Table("Reasons", ("reason", "documents"), common, numeric=(1,)),
            Table("Quarantined documents", ("document", "reason"), sorted(quarantined), total),
            Table("Partial documents", ("document", "what failed"), sorted(partial), partial_total),
        ),
    )


def _kind_of(reason: str | None) -> str:
    """A reason without what is particular to one document."""
    return (reason or "no reason given").split(":")[0][:80]


def _scripts(view: SnapshotView, facts: RunFacts) -> Section:
    """Documents in a script that the embedder does not know: the lexical index carries those."""
    from corpusmill.models.embedders.common import knows_script

    backend = facts.spec.settings.embedder.backend
    if backend not in ("minilm", "hash") or "texts" not in view.tables():
        return Section("Scripts")
    seen, unknown = 0, []
    for batch in view.unsorted_batches("texts", ["text_hash", "text"]):
        for text_hash, text in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            seen += 1
            if not knows_script(text[:SCRIPT_CHARACTERS], backend):
                unknown.append(text_hash)
            if seen >= SCRIPT_SAMPLE:
                break
        if seen >= SCRIPT_SAMPLE:
            break
    if not unknown:
        return Section("Scripts")
    names = _uris_of(view, set(unknown), most=10)
    note = (
        f"The embedder ({backend}) was not trained on the script of {len(unknown):,} of {seen:,} texts looked at. "
        "Dense retrieval is weak for them; the lexical index carries them. A multilingual embedder suits them better."
    )
    return Section("Scripts", (note,), tables=(Table("For example", ("document",), [(name,) for name in names]),))


def _uris_of(view: SnapshotView, text_hashes: set[str], most: int) -> list[str]:
    found: list[str] = []
    for batch in view.unsorted_batches("documents", ["uri", "text_hash"]):
        found += [row["uri"] for row in batch.to_pylist() if row["text_hash"] in text_hashes]
        if len(found) >= most:
            break
    return sorted(found[:most])


def _tables(manifest: Manifest) -> Section:
    rows = [(t.name, f"{t.rows:,}", t.step, ", ".join(t.methods), t.digest[:16]) for t in manifest.tables]
    table = Table("", ("table", "rows", "step", "methods", "digest"), rows, numeric=(1,))
    return Section("Tables of the snapshot", tables=(table,))


def _fingerprints(manifest: Manifest) -> list[tuple[str, str]]:
    rows = [("content digest", manifest.digest), ("configuration", manifest.config_fingerprint)]
    rows += [(f"method {method.name}", method.fingerprint) for method in manifest.methods]
    rows += [(f"model for {role}", print_) for role, print_ in sorted(manifest.models.items())]
    rows.append(("embedder", f"{manifest.embedder} ({manifest.dim} dimensions)"))
    rows.append(("parent", "none" if manifest.parent is None else f"snapshot {manifest.parent}"))
    return rows


def whole(value: float) -> str:
    return f"{value:,.0f}"


def amount(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"


def ratio(actual: float, guess: float | None) -> str:
    return f"{actual / guess:.2f}" if guess else "–"


def clock(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d} h"
