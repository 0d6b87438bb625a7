"""Each ends with one clear message that names the value and the place, the right exit code, and the index as it was."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from benchmarks.mutations import measure, way_of
from tests.integration.conftest import Indexed, Ran, corpusmill, write_corpus
from tests.shared import shared_data

pytestmark = pytest.mark.integration


def assert_clear(ran: Ran, code: int, *words: str) -> None:
    assert ran.code == code, (ran.code, ran.out, ran.err)
    assert "Traceback" not in ran.err + ran.out
    for word in words:
        assert word in " ".join(ran.err.split()), (word, ran.err)


def assert_unchanged(indexed: Indexed) -> None:
    snapshots = corpusmill("snapshots", indexed.index, "--json", cache=indexed.cache).json
    assert [s["digest"] for s in snapshots] == [indexed.result["digest"]]
    assert corpusmill("verify", indexed.index, "--json", cache=indexed.cache).json["ok"] is True


def test_an_unknown_key_names_the_nearest(indexed: Indexed, tmp_path: Path) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text("ray:\n  builder: 3\n")
    ran = corpusmill("index", str(indexed.source), "--to", indexed.index, "--config", str(config), cache=indexed.cache)
    assert_clear(ran, 2, "ray.builder", "mine.yaml", "ray.builders")


def test_a_missing_source(indexed: Indexed, tmp_path: Path) -> None:
    ran = corpusmill("index", str(tmp_path / "nowhere"), "--to", indexed.index, cache=indexed.cache)
    assert_clear(ran, 2, "nowhere")
    assert_unchanged(indexed)


def test_an_unknown_method(indexed: Indexed) -> None:
    ran = corpusmill("index", str(indexed.source), "--to", indexed.index, "--method", "flexrag", cache=indexed.cache)
    assert_clear(ran, 2, "flexrag", "flexstructrag")


def test_an_index_that_is_not_there(tmp_path: Path) -> None:
    ran = corpusmill("query", str(tmp_path / "none"), "anything?", cache=tmp_path / "cache")
    assert_clear(ran, 2, "none")


def test_an_unknown_mode(indexed: Indexed) -> None:
    ran = corpusmill("query", indexed.index, "Who?", "--mode", "deep", cache=indexed.cache)
    assert_clear(ran, 2, "deep", "hybrid")


def test_a_store_that_does_not_answer(indexed: Indexed, tmp_path: Path) -> None:
    ran = corpusmill(
        "index",
        str(indexed.source),
        "--to",
        "s3://bucket/index",
        cache=tmp_path / "cache",
        CORPUSMILL__STORE__ENDPOINT_URL="http://127.0.0.1:9",
        CORPUSMILL__STORE__RETRIES="0",
        AWS_ACCESS_KEY_ID="key",
        AWS_SECRET_ACCESS_KEY="secret",
    )
    assert_clear(ran, 3, "s3://bucket")


def test_a_disk_that_is_full(indexed: Indexed, tmp_path: Path) -> None:
    import subprocess

    mount = tmp_path / "small"
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", str(mount)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"a small file system needs root: {done.stderr.strip()}")
    try:
        ran = corpusmill("index", str(indexed.source), "--to", str(mount / "index"), cache=tmp_path / "cache")
        assert_clear(ran, 3, "No space left", "small")
        assert not (mount / "index" / "refs" / "main.json").exists()
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_mostly_unreadable_documents_publish_nothing(tmp_path: Path) -> None:
    source = write_corpus(tmp_path / "docs", {"good.md": "Marie Curie was born in Warsaw."})
    for i in range(3):
        (source / f"bad{i}.pdf").write_bytes(b"%PDF-1.7\nbroken" + bytes(range(256)))
    ran = corpusmill("index", str(source), "--to", str(tmp_path / "index"), cache=tmp_path / "cache")
    assert_clear(ran, 3, "max_failed_fraction", "bad", "nothing was published")
    allowed = corpusmill(
        "index",
        str(source),
        "--to",
        str(tmp_path / "index"),
        "--json",
        cache=tmp_path / "cache",
        CORPUSMILL__RUN__MAX_FAILED_FRACTION="1",
    )
    assert allowed.code == 5, allowed.err
    assert allowed.json["documents"]["quarantined"] == 3


def test_broken_files_and_misbehaving_converters_each_end_in_an_outcome(tmp_path: Path) -> None:
    """benchmarks/mutations.py runs the same with 200 files: none stops the run, whatever the limit publishes."""
    shared_data("documents")
    report = measure(tmp_path, count=24, seed=7, settings=("--set", "embedder.backend=hash"))
    assert report["problems"] == []
    reasons = {row["path"]: (row["outcome"], row["reason"]) for row in report["documents"]}
    for mark, reason in (
        ("hang", "longer than 15 s; 2 attempts"),
        ("crash", "signal 11"),
        ("exit", "exit code 3"),
        ("memory", "700 MiB"),
    ):
        outcome, said = reasons[f"hostile-{mark}.html"]
        assert outcome == "quarantined", mark
        assert reason in said
    assert reasons["hostile-noise.html"] == ("indexed", None)
    outcomes = {(way_of(path), outcome) for path, (outcome, _) in reasons.items()}
    assert {("random", "quarantined"), ("truncated", "quarantined"), ("renamed", "indexed")} <= outcomes


class _Nonsense(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        message = {"role": "assistant", "content": "Certainly! ((( here is <|COMPLETE|> nothing of use"}
        body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}], "usage": {}}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Keep the test's output quiet."""


def test_a_model_that_returns_nonsense_for_every_call(indexed: Indexed, tmp_path: Path) -> None:
    """Nothing comes of any text: the run fails, names what the model gave, and publishes nothing."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Nonsense)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    model = {
        "CORPUSMILL__MODELS__EXTRACT__BACKEND": "openai",
        "CORPUSMILL__MODELS__EXTRACT__MODEL": "nonsense",
        "CORPUSMILL__MODELS__EXTRACT__BASE_URL": f"http://127.0.0.1:{server.server_port}/v1",
    }
    try:
        ran = corpusmill(
            "index", str(indexed.source), "--to", str(tmp_path / "index"), cache=tmp_path / "cache", **model
        )
    finally:
        server.shutdown()
    assert_clear(ran, 3, "nonsense")
    assert not (tmp_path / "index" / "refs" / "main.json").exists()


def test_a_wrong_key_and_an_unknown_model(indexed: Indexed, tmp_path: Path) -> None:
    class Refuses(_Nonsense):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            body = b'{"error": {"message": "Incorrect API key provided"}}'
            self.send_response(401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refuses)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    model = {
        "CORPUSMILL__MODELS__EXTRACT__BACKEND": "openai",
        "CORPUSMILL__MODELS__EXTRACT__MODEL": "small-model",
        "CORPUSMILL__MODELS__EXTRACT__BASE_URL": f"http://127.0.0.1:{server.server_port}/v1",
    }
    try:
        ran = corpusmill(
            "index", str(indexed.source), "--to", str(tmp_path / "index"), cache=tmp_path / "cache", **model
        )
    finally:
        server.shutdown()
    assert_clear(ran, 3, "small-model", "401")
    assert not (tmp_path / "index" / "refs" / "main.json").exists()
