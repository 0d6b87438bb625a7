"""`corpusmill index` without engines: what it refuses before any starts, and how it tells the outcome."""

import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from corpusmill_jobs import cli
from corpusmill_jobs.commands.index import _summary, as_json, of_index
from corpusmill_jobs.driver import RunOutcome, plan_text
from rich.console import Console
from typer.testing import CliRunner, Result

from corpusmill.run import IngestResult, PlanCounts
from corpusmill.settings_sources import load_settings
from corpusmill.store.draft import Draft
from corpusmill.store.manifest import Counts

OUTCOME = RunOutcome(
    run="run-1",
    snapshot=4,
    digest="d" * 32,
    new=True,
    counts=PlanCounts(new=3, changed=1, moved=1, deleted=2, unchanged=90, quarantined=1),
    documents=96,
    partial=1,
    quarantined=2,
    empty=3,
    failed_parts=0,
    calls=1200,
    cached=30,
    tokens=54_321,
    cost=1.25,
    seconds=75.4,
    stage_seconds={"ingest": 10.0, "build": 60.0},
    report_key="runs/run-1/report.html",
    message="published snapshot 4",
)


def index(source: Path, to: Path, *more: str) -> Result:
    return CliRunner().invoke(cli.app, ["index", str(source), "--to", str(to), *more])


def test_json_keys() -> None:
    value = as_json(OUTCOME)
    assert set(value) >= {"run", "snapshot", "digest", "documents", "calls", "tokens", "seconds"}
    assert value["documents"] == {
        "new": 3,
        "changed": 1,
        "moved": 1,
        "deleted": 2,
        "unchanged": 90,
        "partial": 1,
        "empty": 3,
        "quarantined": 2,
    }
    assert OUTCOME.exit_code == 5


def test_failed_parts_of_what_is_made_over_all_documents_are_told_apart_from_partial_documents() -> None:
    parts = replace(OUTCOME, partial=0, quarantined=0, failed_parts=7)
    assert (parts.exit_code, as_json(parts)["failed_parts"]) == (5, 7)
    documents = as_json(parts)["documents"]
    assert isinstance(documents, dict) and documents["partial"] == 0
    assert "7 parts" in summary(parts) and "--outcome" not in summary(parts)
    assert replace(parts, new=False).exit_code == 0


def summary(outcome: RunOutcome) -> str:
    console = Console(file=io.StringIO(), width=200, markup=False)
    _summary(outcome, "/data/index/", console)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_the_plan_counts_every_document_of_the_source_once() -> None:
    """New ones that are empty or quarantined are not counted beside the new ones, but among all."""
    ingest = IngestResult(
        draft=Draft(counts=Counts(documents=1_011, indexed=1_000)),
        counts=PlanCounts(new=12, changed=1, unchanged=998, quarantined=2, empty=9),
        todo_texts=1,
    )
    assert plan_text(ingest) == (
        "plan: 12 new, 1 changed, 0 moved, 0 deleted, 998 unchanged "
        "(of all 1,011 documents, 9 empty and 2 quarantined); 1 text to build"
    )
    plain = ingest.model_copy(update={"counts": PlanCounts(new=12), "todo_texts": 12})
    assert plan_text(plain) == "plan: 12 new, 0 changed, 0 moved, 0 deleted, 0 unchanged; 12 texts to build"


def test_the_summary_tells_counts_spending_and_where_the_report_is() -> None:
    text = summary(OUTCOME)
    for word in ("published snapshot 4", "d" * 32, "3 new", "2 deleted", "1,200 calls"):
        assert word in text
    assert "in all     96: 91 indexed (1 of them partial), 3 empty, 2 quarantined\n" in text
    assert [line.split()[-1] for line in text.splitlines() if "see  " in line] == ["quarantined", "partial"]
    for word in ("54,321 tokens", "cost 1.25", "1 min 15 s", "/data/index/runs/run-1/report.html", "--outcome"):
        assert word in text


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "a.txt").write_text("Ada wrote a program.")
    return folder


def test_a_missing_source_is_refused_and_nothing_is_made(tmp_path: Path) -> None:
    done = index(tmp_path / "nowhere", tmp_path / "index")
    assert done.exit_code == 2
    assert str(tmp_path / "nowhere") in done.stderr
    assert not (tmp_path / "index").exists()


def test_an_unknown_method_is_refused_with_the_choices(source: Path, tmp_path: Path) -> None:
    done = index(source, tmp_path / "index", "--method", "flexrag")
    assert done.exit_code == 2
    assert "'flexrag'" in done.stderr and "flexstructrag" in done.stderr
    assert not (tmp_path / "index").exists()


def test_a_bucket_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("CORPUSMILL__STORE__ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("CORPUSMILL__STORE__RETRIES", "0")
    done = CliRunner().invoke(cli.app, ["index", "s3://corpora/books", "--to", str(tmp_path / "index")])
    assert done.exit_code in (2, 3)
    assert "s3://corpora/books" in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "index").exists()


def test_a_model_section_that_is_not_complete_is_refused(source: Path, tmp_path: Path) -> None:
    done = index(source, tmp_path / "index", "--set", "models.default.backend=openai")
    assert done.exit_code == 2
    assert "models.default" in done.stderr and "needs a `model`" in done.stderr


def held(monkeypatch: pytest.MonkeyPatch, *methods: str) -> None:
    """An index of these methods, wherever one is looked for."""
    found = SimpleNamespace(methods=[SimpleNamespace(name=name) for name in methods])
    monkeypatch.setattr("corpusmill.store.commit.current", lambda store: found if methods else None)


@pytest.mark.parametrize(
    ("there", "asked", "methods"),
    [
        ((), None, ("flexstructrag",)),
        (("contextrag", "bm25"), None, ("contextrag", "bm25")),
        (("contextrag",), "bm25", ("contextrag", "bm25")),
        ((), "bm25", ("bm25",)),
    ],
)
def test_a_run_without_methods_updates_those_of_the_index(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    there: tuple[str, ...],
    asked: str | None,
    methods: tuple[str, ...],
) -> None:
    held(monkeypatch, *there)
    given = {} if asked is None else {"run.methods": asked}
    settings = of_index(load_settings(None, given, {}), str(tmp_path), str(tmp_path / "ix"))
    assert settings.run.methods == methods
    assert settings.source.exclude == ("ix/*",)
