"""ContextRAG's part of the run report: occupancy, the concept graph drawn, how often structure is retrieved."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from corpusmill.methods.common.passages import PassageSearch
from corpusmill.methods.contextrag.memberships import ONE
from corpusmill.methods.contextrag.scoring import Scorer, open_scorer
from corpusmill.methods.contextrag.settings import ContextSettings
from corpusmill.report import plots
from corpusmill.report.elements import Figure, Section, Table
from corpusmill.retrieval.vectors import matrix
from corpusmill.store.view import SnapshotView

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DRAWN_LINKS = 240
DRAWN_LABELS = 24
LABEL_CHARS = 26
REFIT_DRIFT = 1.1
PROBES = 64  # sampled sentences that are asked as questions


def sections(view: SnapshotView) -> Iterator[Section]:
    """Sections over the tables that this snapshot has."""
    if "context_levels" not in view.tables():
        return
    yield _occupancy(view)
    yield _graph(view)
    yield _activation(view)


def _occupancy(view: SnapshotView) -> Section:
    levels = view.table("context_levels").to_pylist()
    training = {row["level"]: row for row in view.table("context_training").to_pylist()}
    rows, notes = [], []
    for row in levels:
        fit = training[row["level"]]
        drift = row["drift_e4"] / ONE
        rows.append(
            (
                f"{row['level']}",
                f"{row['centroids']} of {fit['asked']}",
                f"{row['occupied']}",
                f"{row['singletons']}",
                f"{row['median']}",
                f"{row['largest']:,}",
                f"{fit['explained_e4'] / ONE:.1%}",
                f"{row['residual_e4'] / ONE:.3f}",
                f"{drift:.2f}",
                " ".join(f"{value / ONE:.2f}" for value in row["spread"]),
            )
        )
        if row["centroids"] < fit["asked"]:
            notes.append(
                f"Level {row['level']} has {row['centroids']} centroids instead of {fit['asked']}: "
                f"{fit['trained_on']:,} chunks were too few for more."
            )
        if drift > REFIT_DRIFT:
            notes.append(
                f"Level {row['level']} fits the corpus worse than what it was trained on ({drift:.2f} times the "
                "residual): index once with --refit."
            )
    columns = (
        "level", "centroids", "occupied", "of one chunk", "median", "largest", "variance explained", "residual",
        "drift", "membership at 5, 25, 50, 75, 95 %",
    )  # fmt: skip
    table = Table("Codebook", columns, rows, numeric=tuple(range(1, 9)))
    return Section("Clusters of chunks", tuple(notes), tables=(table,))


def _graph(view: SnapshotView) -> Section:
    concepts = view.table(
        "context_concepts", ["concept_id", "kind", "level", "centroid", "chunks", "vector"]
    ).to_pylist()
    links = view.table("context_links").to_pylist()
    if not concepts:
        return Section("Concept graph", ("No cluster has two chunks: there are no concepts.",))
    seeds = [row for row in concepts if row["kind"] == "seed"]
    counts = {kind: sum(row["kind"] == kind for row in concepts) for kind in ("seed", "meet", "join")}
    near = sorted((row for row in links if row["kind"] == "cooccurrence"), key=_heaviest)[:DRAWN_LINKS]
    lattice = sum(row["kind"] == "lattice" for row in links)
    caption = (
        f"{counts['seed']} seeds, {counts['meet']} meets, {counts['join']} joins (bridges), {lattice} links of the "
        f"order. Drawn: the seeds by size, and {len(near)} of {len(links) - lattice} links between seeds that share "
        "retrieval windows more often than by chance."
    )
    drawn = plots.svg(lambda axes: _draw(axes, seeds, near, _labels(view)), height=6.4)
    return Section("Concept graph", figures=(Figure(drawn, caption),))


def _heaviest(row: Mapping[str, object]) -> tuple[int, str, str]:
    return (-int(str(row["weight_e4"])), str(row["source"]), str(row["target"]))


def _labels(view: SnapshotView) -> dict[int, str]:
    """Centroid of level 0 -> the first words of its summary."""
    rows = view.table("context_summaries", ["topic", "text"]).to_pylist()
    return {row["topic"]: row["text"][:LABEL_CHARS].rsplit(" ", 1)[0] + " …" for row in rows}


def _draw(
    axes: "Axes",
    seeds: Sequence[Mapping[str, object]],
    links: Sequence[Mapping[str, object]],
    labels: Mapping[int, str],
) -> None:
    places = _places(seeds)
    for link in links:
        xs, ys = zip(places[str(link["source"])], places[str(link["target"])], strict=True)
        axes.plot(xs, ys, color=plots.MUTED, linewidth=0.6, alpha=0.45, zorder=1)
    for level, colour in ((0, plots.ACCENT), (1, plots.SECOND)):
        own = [row for row in seeds if (row["level"] == 0) == (level == 0)]
        if own:
            xs, ys = zip(*(places[str(row["concept_id"])] for row in own), strict=True)
            sizes = [8 + 3 * math.sqrt(int(str(row["chunks"]))) for row in own]
            name = "level 0" if level == 0 else "deeper levels"
            axes.scatter(xs, ys, s=sizes, color=colour, alpha=0.85, zorder=2, label=name)
    named = sorted((row for row in seeds if row["level"] == 0), key=lambda row: -int(str(row["chunks"])))
    for row in named[:DRAWN_LABELS]:
        label = labels.get(int(str(row["centroid"])))
        if label:
            axes.annotate(label, places[str(row["concept_id"])], fontsize=6.5, color=plots.INK, zorder=3)
    axes.legend(frameon=False, loc="lower right")
    axes.set_axis_off()


def _places(seeds: Sequence[Mapping[str, object]]) -> dict[str, tuple[float, float]]:
    """Where each seed is drawn: its vector on the two directions in which the seeds differ most, evened out by rank so
    that a dense middle does not hide itself."""
    vectors = np.array([row["vector"] for row in seeds], np.float64)
    centred = vectors - vectors.mean(axis=0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    flat = centred @ directions[:2].T if len(seeds) > 1 else np.zeros((len(seeds), 2))
    if flat.shape[1] < 2:
        flat = np.pad(flat, ((0, 0), (0, 2 - flat.shape[1])))
    even = flat.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable").astype(float)
    return {str(row["concept_id"]): (float(x), float(y)) for row, (x, y) in zip(seeds, even, strict=True)}


def _activation(view: SnapshotView) -> Section:
    """Sampled sentences of the corpus asked as questions: how often structure stands among the first five."""
    probes = view.table("context_probe_vectors")
    config = getattr(view.source, "config", {}).get("methods", {}).get("contextrag", {})
    if not probes.num_rows or not view.table("context_concepts", ["kind"]).num_rows:
        return Section("Activation")
    scorer = open_scorer(ContextSettings.model_validate(config), PassageSearch(view), view)
    texts = probes.column("text").to_pylist()[:PROBES]
    vectors = matrix(probes.column("vector"), probes.schema.field("vector").type.list_size)[:PROBES]
    found = [_kinds(scorer, text, vector) for text, vector in zip(texts, vectors, strict=True)]
    shares = {
        name: sum(kind in kinds for kinds in found) / len(found)
        for name, kind in (("a summary", "summary"), ("a bridge", "concept"))
    }
    either = sum(bool(kinds & {"summary", "concept"}) for kinds in found) / len(found)
    spreads = [_spreads(scorer, text, vector) for text, vector in zip(texts, vectors, strict=True)]
    routed, fuzzy, cosine = (float(np.mean(column)) for column in zip(*spreads, strict=True))
    caption = f"{len(found)} sentences of the corpus as questions: {either:.0%} have either among the first five units."
    note = (
        f"Of the candidates of such a question {routed:.0%} have a fuzzy score above zero; its standard deviation "
        f"within a question is {fuzzy:.3f}, that of the cosine {cosine:.3f}."
    )
    drawn = plots.bars(shares, lambda share: f"{share:.0%}")
    return Section("Activation", (note,), (Figure(drawn, caption),))


def _kinds(scorer: Scorer, text: str, vector: np.ndarray) -> set[str]:
    scores = scorer.rank(text, vector)
    return {kind for kind, _ in sorted(scores, key=lambda unit: (-scores[unit], unit))[:5]}


def _spreads(scorer: Scorer, text: str, vector: np.ndarray) -> tuple[float, float, float]:
    """Share of candidate passages with a fuzzy score, the spread of that score, and of the cosine, unscaled."""
    raw = scorer.raw(text, vector, None)
    return float((raw.fuzzy > 0).mean()), float(raw.fuzzy.std()), float(raw.cosine.std())
