"""A whole run from the command line with the pool: it starts, serves every stage, and is counted."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.vllm.conftest import model_settings

pytestmark = pytest.mark.timeout(240)

DOCUMENTS = {
    "press.md": "Mira Castell founded Brightwater Press in 1931. It printed the sea charts of Captain Oto Lind.",
    "lind.md": "Captain Oto Lind mapped the coast of Varnholm. His charts were sold in Port Amsel until 1950.",
    "amsel.md": "Port Amsel is a harbour town. Its library keeps the archive of Brightwater Press.",
    "varnholm.md": "Varnholm has two lighthouses. Both were drawn by the architect Ines Quade in 1902.",
}


def test_a_corpus_is_indexed_by_a_pool(writer: Path, tmp_path: Path) -> None:
    source, index = tmp_path / "source", tmp_path / "index"
    source.mkdir()
    for name, text in DOCUMENTS.items():
        (source / name).write_text(text, "utf-8")
    own = model_settings(writer)
    config = {
        "models": {"default": own.model_dump(mode="json", exclude_defaults=True)},
        "embedder": {"backend": "hash"},
        "ray": {"calls_in_flight": 8},
        "cache": {"dir": str(tmp_path / "cache")},
    }
    (tmp_path / "vllm.yaml").write_text(yaml.safe_dump(config), "utf-8")
    program = [str(Path(sys.executable).parent / "corpusmill"), "index", str(source), "--to", str(index)]
    done = subprocess.run(
        [*program, "--config", str(tmp_path / "vllm.yaml"), "--json"],
        capture_output=True,
        text=True,
        timeout=220,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    # Random words are seldom quotes of the text: windows without items pass, others leave their document partial.
    assert done.returncode in (0, 5), done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert result["documents"]["new"] == len(DOCUMENTS)
    assert result["calls"] >= len(DOCUMENTS) and result["tokens"] > 200 * len(DOCUMENTS)
