"""The command line without engines: output shapes, exit codes, messages, start-up."""

import json
import math
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from corpusmill_jobs import cli
from corpusmill_jobs.commands import methods
from typer.testing import CliRunner, Result

from corpusmill.errors import BudgetReachedError, RunFailedError
from corpusmill.hashing import content_id
from tests.report_index import CORPUS, document_row, report_index

ENGINES = ("pyspark", "ray", "graphframes", "torch", "vllm")


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("cli") / "index"
    report_index(folder)
    report_index(folder, {**CORPUS, "d.md": "Radium glows. Radium was found in Paris."})
    return str(folder)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, list(arguments), prog_name="corpusmill")


def parsed(*arguments: str, code: int = 0) -> object:
    done = run(*arguments)
    assert done.exit_code == code, (done.stdout, done.stderr)
    return json.loads(done.stdout)


def test_documents_shape_and_outcomes(index: str) -> None:
    rows = parsed("documents", index, "--json")
    assert isinstance(rows, list)
    assert all(set(row) == {"doc_id", "uri", "outcome", "reason"} for row in rows)
    outcomes = {row["uri"]: row["outcome"] for row in rows}
    assert outcomes == {
        "/corpus/a.md": "indexed",
        "/corpus/b.md": "partial",
        "/corpus/c.pdf": "quarantined",
        "/corpus/d.md": "indexed",
        "/corpus/हिन्दी.md": "indexed",
    }
    assert [row["uri"] for row in rows] == [f"/corpus/{name}" for name in ("a.md", "b.md", "c.pdf", "d.md", "हिन्दी.md")]
    lines = run("documents", index).stdout.splitlines()
    assert [line.split()[2] for line in lines] == [row["uri"] for row in rows]


@pytest.mark.parametrize(
    ("outcome", "uri", "reason"),
    [("partial", "/corpus/b.md", "window 1: not JSON"), ("quarantined", "/corpus/c.pdf", "password")],
)
def test_documents_of_one_outcome_say_why(index: str, outcome: str, uri: str, reason: str) -> None:
    rows = parsed("documents", index, "--outcome", outcome, "--json")
    assert isinstance(rows, list)
    assert [row["uri"] for row in rows] == [uri]
    assert reason in rows[0]["reason"]
    assert uri in run("documents", index, "--outcome", outcome).stdout


def test_documents_of_an_earlier_snapshot(index: str) -> None:
    assert len(parsed("documents", index, "--snapshot", "1", "--json")) == 4  # type: ignore[arg-type]
    done = run("documents", index, "--snapshot", "9")
    assert done.exit_code == 2
    assert "no snapshot 9" in done.stderr and "snapshots: 2, 1" in done.stderr


def test_show_by_id_prefix_and_uri(index: str) -> None:
    doc_id = content_id("document", "corpus", "हिन्दी.md")
    for name in (doc_id, doc_id[:8], "/corpus/हिन्दी.md"):
        shown = parsed("show", index, name, "--json")
        assert isinstance(shown, dict)
        assert (shown["doc_id"], shown["text"]) == (doc_id, CORPUS["हिन्दी.md"])
        assert shown["metadata"] == {"language": "en"}
    assert CORPUS["हिन्दी.md"] in run("show", index, doc_id).stdout


def test_show_of_a_document_without_text_and_of_none(index: str) -> None:
    shown = parsed("show", index, str(document_row("c.pdf", None)["doc_id"]), "--json")
    assert isinstance(shown, dict)
    assert (shown["text"], shown["outcome"]) == ("", "quarantined")
    done = run("show", index, "nobody")
    assert done.exit_code == 2
    assert "'nobody'" in done.stderr and index in done.stderr


def test_snapshots_newest_first(index: str) -> None:
    rows = parsed("snapshots", index, "--json")
    assert isinstance(rows, list)
    assert [(row["id"], row["parent"], row["refs"], row["documents"]) for row in rows] == [
        (2, 1, ["main"], 5),
        (1, None, [], 4),
    ]
    assert set(rows[0]) == {"id", "digest", "parent", "created", "refs", "documents"}


def test_verify_finds_damage_and_ends_with_1(tmp_path: Path) -> None:
    report_index(tmp_path, method=None)
    assert parsed("verify", str(tmp_path), "--json") == {"ok": True, "problems": []}
    victim = next((tmp_path / "segments").rglob("texts.parquet"))
    victim.write_bytes(victim.read_bytes()[:-1] + b"!")
    found = parsed("verify", str(tmp_path), "--json", code=1)
    assert isinstance(found, dict)
    assert found["ok"] is False
    assert any("texts.parquet" in problem for problem in found["problems"])


def test_status(index: str) -> None:
    status = parsed("status", index, "--json")
    assert isinstance(status, dict)
    assert (status["snapshot"], status["documents"], status["running"], status["run"]) == (2, 5, False, None)


def test_methods() -> None:
    found = parsed("methods", "--json")
    assert isinstance(found, dict)
    assert {m["name"]: m["modes"] for m in found["methods"]}["flexstructrag"] == ["hypergraph", "graph", "hybrid"]


def test_config_show_tells_origins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORPUSMILL__RAY__BUILDERS", "4")
    shown = parsed("config", "show", "--set", "spark.partitions=17", "--json")
    assert isinstance(shown, dict)
    assert shown["settings"]["spark"]["partitions"] == 17
    assert shown["origins"]["spark.partitions"] == "flag"
    assert shown["origins"]["ray.builders"] == "environment CORPUSMILL__RAY__BUILDERS"
    several = 'models.default={"backend": "openai", "model": "m", "endpoints": [{"base_url": "http://a/v1"}]}'
    assert "http://a/v1" in run("config", "show", "--changed", "--set", several).stdout
    lines = run("config", "show", "--changed", "--set", "spark.partitions=17").stdout.splitlines()
    assert [line.split("  #")[0].strip() for line in lines] == ["spark.partitions = 17", "ray.builders = 4"]


@pytest.mark.parametrize("command", ["query", "documents", "show", "snapshots", "verify", "status"])
def test_an_index_that_is_not_there(tmp_path: Path, command: str) -> None:
    more = {"query": ["why?"], "show": ["x"]}.get(command, [])
    place = str(tmp_path / "nowhere")
    done = run(command, place, *more)
    assert done.exit_code == 2
    assert f"no index at {place}" in done.stderr and done.stdout == ""
    assert "refs/" not in done.stderr
    assert not (tmp_path / "nowhere").exists()
    told = parsed(command, place, *more, "--json", code=2)
    assert isinstance(told, dict)
    assert (told["error"]["type"], told["error"]["exit_code"]) == ("IndexNotFoundError", 2)
    assert f"no index at {place}" in told["error"]["message"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["config", "show", "--set", "ray.builder=3"], ["ray.builder", "flag", "ray.builders"]),
        (["config", "show", "--config", "nowhere.yaml"], ["nowhere.yaml", "local"]),
        (["config", "show", "--set", "ray.builders"], ["section.key=value"]),
        (["documents", "gs://bucket/index"], ["gs://bucket/index", "s3://"]),
        (["documents", "x", "--outcome", "lost"], ["lost", "quarantined"]),
        (["index", "somewhere"], ["--to"]),
        (["nonsense"], ["nonsense"]),
    ],
)
def test_usage_errors_name_the_value_and_the_choices(arguments: list[str], words: list[str]) -> None:
    done = run(*arguments)
    assert done.exit_code == 2
    for word in words:
        assert word in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    told = parsed(*arguments, "--json", code=2)
    assert isinstance(told, dict) and set(told) == {"error"}
    assert set(told["error"]) == {"type", "message", "exit_code"} and told["error"]["exit_code"] == 2
    for word in words:
        assert word in told["error"]["message"]


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (BudgetReachedError("spent 3 of 3"), 4, "error: spent 3 of 3"),
        (RunFailedError("stage merge failed"), 3, "error: stage merge failed"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ZeroDivisionError("division by zero"), 3, "unexpected ZeroDivisionError: division by zero"),
    ],
)
def test_every_way_to_end_has_its_code(
    monkeypatch: pytest.MonkeyPatch, raised: BaseException, code: int, said: str
) -> None:
    def fail() -> None:
        raise raised

    monkeypatch.setattr("corpusmill.methods.registry.method_names", fail)
    done = run("methods")
    assert (done.exit_code, done.stdout) == (code, "")
    assert said in done.stderr and "Traceback (most recent" not in done.stderr
    if isinstance(raised, ZeroDivisionError):
        path = Path(done.stderr.split("(traceback: ")[1].split(")")[0])
        assert "ZeroDivisionError" in path.read_text("utf-8") and methods.__name__.split(".")[-1] in path.read_text()
        path.unlink()
    assert "Traceback (most recent" in run("--debug", "methods").stderr or code == 130
    told = parsed("--debug", "methods", "--json", code=code)
    kind = "Interrupted" if code == 130 else type(raised).__name__
    assert isinstance(told, dict)
    assert (told["error"]["type"], told["error"]["exit_code"]) == (kind, code)
    assert said.removeprefix("error: ") in told["error"]["message"]


def test_json_stays_one_value_whatever_the_command_line_looks_like() -> None:
    """A word after `--` is an argument; an option that the program itself lacks is told as any misuse."""
    done = run("show", "/nowhere", "--", "--json")
    assert (done.exit_code, done.stdout) == (2, "")
    told = parsed("--nonsense", "methods", "--json", code=2)
    assert isinstance(told, dict)
    assert told["error"]["type"] == "UsageError" and "--nonsense" in told["error"]["message"]


def test_an_array_is_not_begun_before_an_error(monkeypatch: pytest.MonkeyPatch, index: str) -> None:
    def fail(*_: object) -> None:
        raise RunFailedError("the disk is on fire")

    monkeypatch.setattr("corpusmill.store.view.SnapshotView.partial_texts", fail)
    told = parsed("documents", index, "--json", code=3)
    assert isinstance(told, dict)
    assert told["error"] == {"type": "RunFailedError", "message": "the disk is on fire", "exit_code": 3}


def test_an_empty_array(index: str) -> None:
    assert parsed("documents", index, "--outcome", "empty", "--json") == []


def test_a_closed_pipe_is_no_error(index: str) -> None:
    command = f"{sys.executable} -m corpusmill_jobs.cli documents {index} --json | head -c 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 141)
    assert "Traceback" not in done.stderr and "Broken" not in done.stderr
    program = (
        f"import sys; sys.stdin.read(); from corpusmill_jobs.cli import main; sys.argv[1:] = {['show', index, '?']!r}"
    )
    failing = f"""echo | ({sys.executable} -c "{program} + ['--json']; main()"; echo $? >&2) | true"""
    done = subprocess.run(["bash", "-c", failing], capture_output=True, text=True, timeout=60)
    assert "no document '?'" in done.stderr and done.stderr.split()[-1] == "2", done.stderr
    assert "Traceback" not in done.stderr and "Broken" not in done.stderr


def test_reading_commands_import_no_engine(index: str) -> None:
    code = f"""
import sys
from corpusmill_jobs import cli
from typer.testing import CliRunner
for arguments in (["documents", {index!r}], ["show", {index!r}, "/corpus/a.md"], ["snapshots", {index!r}],
                  ["status", {index!r}], ["methods"], ["config", "show"], ["query", {index!r}, "Who?", "--mode", "x"]):
    done = CliRunner().invoke(cli.app, arguments)
    assert done.exit_code == (2 if arguments[0] == "query" else 0), (arguments, done.output)
    assert [name for name in {ENGINES!r} if name in sys.modules] == [], arguments
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_help_starts_fast() -> None:
    """The best of three by processor time, since the machine may be busy."""
    best = math.inf
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "corpusmill_jobs.cli", "--help"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert done.returncode == 0
        for name in ("index", "query", "documents", "show", "estimate", "status", "snapshots", "verify", "doctor"):
            assert name in done.stdout
        if best < 1.0:
            return
    pytest.fail(f"corpusmill --help takes {best:.2f} s of processor time")
