"""`corpusmill index` without engines: what it refuses before any starts, and how it tells the outcome."""

import io
from pathlib import Path

import pytest
from corpusmill_jobs import cli
from corpusmill_jobs.commands.index import _summary, as_json
from corpusmill_jobs.driver import RunOutcome
from rich.console import Console
from typer.testing import CliRunner, Result

from corpusmill.run import PlanCounts

OUTCOME = RunOutcome(
    run="run-1",
    snapshot=4,
    digest="d" * 32,
    new=True,
    counts=PlanCounts(new=3, changed=1, moved=1, deleted=2, unchanged=90, quarantined=1),
    documents=96,
    partial=1,
    quarantined=1,
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
        "quarantined": 1,
    }
    assert OUTCOME.exit_code == 5


def test_the_summary_tells_counts_spending_and_where_the_report_is() -> None:
    console = Console(file=io.StringIO(), width=200, markup=False)
    _summary(OUTCOME, "/data/index/", console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for word in ("published snapshot 4", "d" * 32, "3 new", "2 deleted", "1 partial", "1 quarantined", "1,200 calls"):
        assert word in text
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
