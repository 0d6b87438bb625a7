"""What `doctor` finds, and that it never ends in an exception of its own."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from corpusmill_jobs import cli, health
from typer.testing import CliRunner

from corpusmill.settings import ModelSettings, Settings


class _Models(BaseHTTPRequestHandler):
    """The list of models of an OpenAI-compatible server that knows one key."""

    def do_GET(self) -> None:
        right = self.headers.get("Authorization") == "Bearer right"
        body = json.dumps({"data": [{"id": "small-model"}]} if right else {"error": "no"}).encode()
        self.send_response(200 if right else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Keep the test's output quiet."""


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Models)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()


@pytest.mark.parametrize(
    ("key", "model", "status", "said"),
    [
        ("right", "small-model", "ok", "small-model"),
        ("right", "other-model", "warn", "it lists small-model"),
        ("wrong", "small-model", "fail", "401"),
        (None, "small-model", "fail", "MY_KEY is not set"),
    ],
)
def test_a_model_endpoint(
    endpoint: str, monkeypatch: pytest.MonkeyPatch, key: str | None, model: str, status: str, said: str
) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    if key:
        monkeypatch.setenv("MY_KEY", key)
    settings = ModelSettings(backend="openai", model=model, base_url=endpoint, api_key_env="MY_KEY")
    check = health.check_endpoint(settings)
    assert (check.status, said in check.detail) == (status, True), check


def test_an_endpoint_that_is_not_there() -> None:
    check = health.check_endpoint(ModelSettings(backend="openai", model="m", base_url="http://127.0.0.1:9/v1"))
    assert check.status == "fail" and "http://127.0.0.1:9/v1" in check.detail


def test_a_store(tmp_path: Path) -> None:
    assert health.check_store(Settings(), str(tmp_path / "index")).status == "ok"
    assert not (tmp_path / "index").exists()  # it was not there before
    assert not [path for path in (tmp_path / "index").rglob("*") if path.is_file() and path.name == "probe"]
    (tmp_path / "file").write_text("in the way")
    refused = health.check_store(Settings(), str(tmp_path / "file" / "index"))
    assert refused.status == "fail" and "file" in refused.detail


def test_a_java_that_does_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    check = health.check_java()
    assert check.status == "fail" and "JAVA_HOME: not runnable" in check.detail and "17" in check.detail


@pytest.mark.parametrize(("printed", "version"), [('openjdk version "17.0.15"', 17), ('java version "1.8.0_5"', 8)])
def test_java_versions(tmp_path: Path, printed: str, version: int) -> None:
    program = tmp_path / "java"
    program.write_text(f"#!/bin/sh\necho '{printed}' >&2\n")
    program.chmod(0o755)
    assert health.java_version(str(program)) == version


def test_a_check_that_breaks_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> health.Check:
        raise OSError("no such counter")

    monkeypatch.setattr(health, "check_memory", broken)
    found = {check.name: check for check in health.examine(Settings())}
    assert (found["memory"].status, found["memory"].detail) == ("fail", "OSError: no such counter")
    assert found["embedder"].status == "ok", found["embedder"]


def test_the_command_ends_with_1_on_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    checks = [health.Check("java", "fail", "no java found"), health.Check("disk", "ok", "9 GB")]
    monkeypatch.setattr(health, "examine", lambda settings, index: iter(checks))
    done = CliRunner().invoke(cli.app, ["doctor", "--json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["ok"] is False
    done = CliRunner().invoke(cli.app, ["doctor"])
    assert (done.exit_code, "FAIL  java: no java found" in done.stdout) == (1, True)


def test_every_endpoint_of_a_model_is_looked_at() -> None:
    shares = ({"base_url": "http://127.0.0.1:9/v1"}, {"base_url": "http://127.0.0.1:10/v1", "weight": 2})
    model = ModelSettings.model_validate({"backend": "openai", "model": "m", "endpoints": shares, "timeout_s": 1})
    settings = Settings.model_validate({"models": {"default": model}})
    told = [check.detail for check in health.examine(settings) if check.name == "model"]
    assert len(told) == 2 and "127.0.0.1:9/" in told[0] and "127.0.0.1:10/" in told[1]
