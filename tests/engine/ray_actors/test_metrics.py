"""What a real Ray node exports of a stage: the names, and the figures."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.engine

# A Ray of its own, whose processes report every second; the tests' shared one does so every ten.
PROGRAM = """
import re, time, urllib.request
import ray
from corpusmill.models.contracts import Usage
from corpusmill.models.metered import Meter
from corpusmill.settings import Settings
from corpusmill.store.manifest import Costs, Counts
from ray_actors.ledger import start_ledger
from ray_actors.metrics import exported_names, tell_documents
from ray_actors.progress import live_progress

ray.init(address="local", num_cpus=1, object_store_memory=90 << 20, include_dashboard=False, log_to_driver=False,
         _system_config={"metrics_report_interval_ms": 1000})
port = ray.nodes()[0]["MetricsExportPort"]

def page():
    return urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()

meter = Meter()
meter.record("extract", Usage(calls=2, prompt_tokens=300, completion_tokens=20, cost=0.25), seconds=0.3)
meter.record("extract", Usage(), 3.0, "ModelOutputError")
meter.record_embedding(7, 0.1)
ledger = start_ledger(Settings(), Costs())
ray.get(ledger.report.remote("w", meter.snapshot(), {"batch": 5}))
tell_documents(Counts(documents=9, indexed=8, quarantined=1))
wanted = exported_names() - {"ray_corpusmill_model_repairs_total", "ray_corpusmill_model_cached_total"}  # none here
with live_progress(ledger, lambda event: None, "build", 9, "documents"):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        text = page()
        missing = {name for name in wanted if not re.search(rf"^{name}[{{ ]", text, re.M)}
        if not missing:
            break
        time.sleep(1)
for line in text.splitlines():
    if line.startswith("ray_corpusmill"):
        print(line)
print("missing", sorted(missing))
"""


def test_a_node_exports_a_stage() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    assert "missing []" in done.stdout, done.stdout
    lines = done.stdout.splitlines()

    def value(name: str, *labels: str) -> float:
        (line,) = [line for line in lines if line.startswith(name + "{") and all(label in line for label in labels)]
        return float(line.rsplit(" ", 1)[1])

    assert value("ray_corpusmill_stage_done", 'stage="build"', 'unit="documents"') == 5
    assert value("ray_corpusmill_stage_units") == 9
    assert value("ray_corpusmill_stage_running") == 1
    assert value("ray_corpusmill_model_calls_total", 'role="extract"') == 2
    assert value("ray_corpusmill_model_cost_total", 'role="extract"') == 0.25
    assert value("ray_corpusmill_model_failures_total", 'error="ModelOutputError"') == 1
    assert value("ray_corpusmill_embedded_texts_total") == 7
    assert value("ray_corpusmill_documents", 'outcome="quarantined"') == 1
    assert value("ray_corpusmill_model_wait_seconds_bucket", 'role="extract"', 'le="0.5"') == 1
    assert value("ray_corpusmill_model_wait_seconds_count", 'role="extract"') == 2
