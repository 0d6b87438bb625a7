"""The report page: complete, bounded, self-contained, safe against what documents are called."""

import re
from pathlib import Path

import pytest

from corpusmill.estimate import SourceSample, estimate
from corpusmill.report import page, plots
from corpusmill.report.page import RunFacts, render_report
from corpusmill.run import PlanCounts, RunSpec
from corpusmill.store.commit import Published
from corpusmill.store.objects import open_store
from corpusmill.store.view import SnapshotView
from tests.report_index import SETTINGS, report_index


def rendered(folder: Path, published: Published) -> str:
    store = open_store(str(folder))
    facts = RunFacts(
        spec=RunSpec(run="run-1", index=store.uri, source="/corpus", source_id="corpus", settings=SETTINGS),
        counts=PlanCounts(new=3, deleted=1, quarantined=1, converted=4),
        costs=published.manifest.costs,
        stage_seconds={"ingest": 3.2, "build": 61.0, "publish": 0.1},
        estimate=estimate(SETTINGS, SourceSample(4, True, ((9,), (10,)))),
        manifest=published.manifest,
    )
    return render_report(SnapshotView(store, published.manifest), facts)


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("report")
    return rendered(folder, report_index(folder))


def test_the_page_says_what_happened(html: str) -> None:
    for word in ("Snapshot 1", "run-1", "1:01 min", "ingest", "4,200", "25% of requests came from the cache"):
        assert word in html
    assert "the file is protected by a password" in html  # the quarantined document's reason
    assert "extraction: window 1: not JSON" in html  # the partial one's
    assert "Merged entities" in html and "Hypergraph" in html and "ct_max 600" in html
    assert "/corpus/हिन्दी.md" in html and "was not trained on the script of 1 of 3 texts" in html
    assert "config" in html and "minilm (384 dimensions)" in html


def test_the_page_asks_nothing_of_the_network(html: str) -> None:
    outside = re.sub(r'xmlns(:\w+)?="[^"]*"', "", html)
    assert not re.search(r"https?://(?!json-schema)", outside.split("<pre>")[0])
    assert "<script" not in html and "<link" not in html and "@import" not in html


def test_figures_take_the_pages_colours_and_their_ids_differ(html: str) -> None:
    assert html.count("<svg") >= 6
    assert "var(--accent)" in html and "prefers-color-scheme: dark" in html
    for drawn in (plots.INK, plots.MUTED, plots.ACCENT, plots.SECOND):
        assert drawn not in html
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    for reference in re.findall(r'(?:url\(#|href="#)([^")]+)', html):
        assert reference in ids


def test_what_documents_are_called_is_never_markup(tmp_path: Path) -> None:
    name = '<img src=x onerror="alert(1)">.md'
    found = rendered(tmp_path, report_index(tmp_path, {name: "<b>Bold</b> claims. They stay text."}, partial=name))
    assert "<img" not in found and "&lt;img" in found and "<b>Bold" not in found


def test_an_empty_index_has_a_page(tmp_path: Path) -> None:
    assert "Documents" in rendered(tmp_path, report_index(tmp_path, {}))


def test_lists_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "LISTED", 0)
    found = rendered(tmp_path, report_index(tmp_path))
    assert "/corpus/c.pdf" not in found


def test_the_same_drawing_is_the_same_text() -> None:
    assert plots.bars({"a": 1, "b": 2}, str) == plots.bars({"a": 1, "b": 2}, str)


def test_a_distribution_of_one_thing() -> None:
    assert "<svg" in plots.log_log({1: 1}, "size", "things")
    assert "<svg" in plots.histogram({7: 3}, "tokens")
