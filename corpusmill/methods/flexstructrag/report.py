"""FlexStructRAG's part of the run report: hyperdegrees, merged components, clusters, top entities."""

import heapq
from collections import Counter
from collections.abc import Iterator

from corpusmill.report import plots
from corpusmill.report.elements import Figure, Section, Table
from corpusmill.store.view import SnapshotView

TOP = 20


def sections(view: SnapshotView) -> Iterator[Section]:
    """Sections over the tables that this snapshot has."""
    have = set(view.tables())
    if {"local_entities", "statements"} <= have:
        yield _hypergraph(view, have)
    if "entities" in have:
        yield _merge(view)


def _hypergraph(view: SnapshotView, have: set[str]) -> Section:
    degrees = Counter(_column(view, "local_entities", "degree"))
    figures = []
    if degrees:
        drawn = plots.log_log(
            dict(degrees), "hyperdegree: statements that name an entity, within a document", "entities"
        )
        caption = f"{sum(degrees.values()):,} entities of documents; the busiest is in {max(degrees):,} statements."
        figures.append(Figure(drawn, caption))
    if "clusters" in have:
        sizes = Counter(
            len(members)
            for batch in view.unsorted_batches("clusters", ["members"])
            for members in batch.column(0).to_pylist()
        )
        if sizes:
            inside = sum(size * count for size, count in sizes.items())
            total = view.rows("statements")
            caption = f"{sum(sizes.values()):,} clusters hold {inside:,} of {total:,} statements."
            figures.append(Figure(plots.log_log(dict(sizes), "statements of a cluster", "clusters"), caption))
    edges = f" and {view.rows('edges'):,} pairwise relations" if "edges" in have else ""
    return Section("Hypergraph", (f"{view.rows('statements'):,} statements{edges}.",), tuple(figures))


def _merge(view: SnapshotView) -> Section:
    sizes: Counter[int] = Counter()
    best: list[tuple[int, int, str, int]] = []
    for batch in view.unsorted_batches("entities", ["degree", "documents", "name", "min_score_e4"]):
        sizes.update(batch.column(1).to_pylist())
        best = heapq.nlargest(TOP, [*best, *zip(*(column.to_pylist() for column in batch.columns), strict=True)])
    if not sizes:
        return Section("Merged entities")
    rows = [
        (name, f"{degree:,}", f"{documents:,}", f"{score / 10_000:.2f}" if score < 10_000 else "–")
        for degree, documents, name, score in best
    ]
    merged = sum(count for size, count in sizes.items() if size > 1)
    caption = f"{sizes.total():,} entities over all documents; {merged:,} join the mentions of more than one document."
    drawn = plots.log_log(dict(sizes), "documents joined into one entity", "entities")
    names = ("entity", "statements", "documents", "least similarity")
    return Section(
        "Merged entities",
        figures=(Figure(drawn, caption),),
        tables=(Table("Most connected entities", names, rows, numeric=(1, 2, 3)),),
    )


def _column(view: SnapshotView, table: str, name: str) -> Iterator[int]:
    for batch in view.unsorted_batches(table, [name]):
        yield from batch.column(0).to_pylist()
