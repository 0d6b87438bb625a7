"""Rules and dashboard: they may only name what is exported, and say what they mean."""

import ast
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from ray_actors.metrics import exported_names
from tests.shared import REPOSITORY
from tests.unit.infra.manifests import of_kind

MONITORING = REPOSITORY / "infra" / "monitoring"
DASHBOARD: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text("utf-8"))
RULES: dict[str, Any] = yaml.safe_load((MONITORING / "rules.yaml").read_text("utf-8"))
POOL = REPOSITORY / "ray_actors" / "language_metrics.py"

# What Ray's nodes and kube-state-metrics export, of which something here is used; their labels too.
OTHERS = {
    "ray_actors": {"State"},
    "ray_node_cpu_utilization": {"ip"},
    "ray_node_mem_used": {"ip"},
    "ray_node_mem_total": {"ip"},
    "ray_node_disk_utilization_percentage": {"ip"},
    "ray_node_gpus_utilization": {"ip", "GpuIndex"},
    "ray_memory_manager_worker_eviction_total": {"Name"},
    "kube_job_status_failed": {"namespace", "job_name"},
    "kube_cronjob_status_last_successful_time": {"namespace", "cronjob"},
}
EVERYWHERE = {"SessionName"}  # Ray puts it on everything
LABELS = {"stage", "unit", "role", "error", "outcome", "le", "model", "replica"}
_STRING = re.compile(r'"[^"]*"')
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_WORDS = {"and", "unless", "or", "on", "ignoring", "by", "without", "group_left", "group_right", "time", "m", "s", "h"} | {
    "sum", "max", "min", "avg", "count", "rate", "increase", "delta", "deriv", "clamp_min", "histogram_quantile",
}  # fmt: skip


def pool_names() -> set[str]:
    """Names that the replicas of the language-model pool register, read from their source: it imports Ray."""
    found = set()
    for node in ast.walk(ast.parse(POOL.read_text("utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            first = node.args[0]
            if node.func.id == "counter" and isinstance(first, ast.Constant):
                found.add(f"ray_corpusmill_llm_{first.value}_total")
            if node.func.id == "Gauge" and isinstance(first, ast.Constant):
                found.add(f"ray_{first.value}")
    return found


def expressions() -> Iterator[tuple[str, str]]:
    """(where, PromQL) of every rule and panel."""
    for group in RULES["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], rule["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def names_in(expression: str) -> set[str]:
    """Names of metrics and labels in an expression."""
    bare = re.sub(r"\[[0-9a-z]+\]", "", _STRING.sub("", expression))
    return set(_NAME.findall(bare)) - _WORDS


def test_the_pool_registers_what_is_looked_for_here() -> None:
    assert {"ray_corpusmill_llm_requests_total", "ray_corpusmill_llm_in_engine"} <= pool_names()


@pytest.mark.parametrize(
    ("where", "expression"), [pytest.param(w, e, id=f"{w}-{n}") for n, (w, e) in enumerate(expressions())]
)
def test_only_exported_names_are_used(where: str, expression: str) -> None:
    metrics = exported_names() | pool_names() | set(OTHERS)
    labels = LABELS | EVERYWHERE | set().union(*OTHERS.values())
    unknown = names_in(expression) - metrics - labels
    assert not unknown, f"{where}: {sorted(unknown)}"
    assert names_in(expression) & metrics


def test_a_name_that_nobody_exports_would_be_found() -> None:
    assert names_in('sum by (role) (rate(ray_corpusmill_model_call_total{SessionName=~"x"}[5m]))') == {
        "role",
        "ray_corpusmill_model_call_total",
        "SessionName",
    }
    assert "ray_corpusmill_model_call_total" not in exported_names()


def test_every_name_of_ours_is_shown_or_watched() -> None:
    used = set().union(*(names_in(expression) for _, expression in expressions()))
    own = exported_names() | pool_names()
    parts = {"ray_corpusmill_model_wait_seconds_sum", "ray_corpusmill_model_wait_seconds_count"}
    assert own - used == parts


def test_counters_are_never_read_bare() -> None:
    """A counter begins anew with each process: only its growth, or the sum spent so far, says something."""
    for where, expression in expressions():
        for name in names_in(expression):
            if name.endswith("_total") and name != "ray_corpusmill_model_cost_total" and "mem_total" not in name:
                assert re.search(rf"(rate|increase)\({name}", expression), where


def test_alerts_say_what_to_do() -> None:
    names = []
    for group in RULES["groups"]:
        for rule in group["rules"]:
            names.append(rule["alert"])
            assert rule["labels"]["severity"] in ("info", "warning", "critical")
            assert rule["annotations"]["summary"]
    assert len(names) == len(set(names)) and all(name.startswith("Corpusmill") for name in names)


def test_every_alert_has_a_case_in_which_it_fires() -> None:
    """promtool runs the cases; here, that none is missing and that they speak of series that are exported."""
    cases = yaml.safe_load((MONITORING / "rules-test.yaml").read_text("utf-8"))
    assert cases["rule_files"] == ["rules.yaml"]
    fires = set()
    series = set()
    for case in cases["tests"]:
        series |= {re.match(r"[a-z_]+", item["series"])[0] for item in case["input_series"]}  # type: ignore[index]
        for asked in case["alert_rule_test"]:
            if asked["exp_alerts"]:
                fires.add(asked["alertname"])
    assert fires == {rule["alert"] for group in RULES["groups"] for rule in group["rules"]}
    assert series <= exported_names() | pool_names() | set(OTHERS)


def test_alerts_on_the_night_name_the_night() -> None:
    (night,) = of_kind("overlays/production", "CronJob")
    text = (MONITORING / "rules.yaml").read_text("utf-8")
    assert f'cronjob="{night["metadata"]["name"]}"' in text
    assert f'job_name=~"{night["metadata"]["name"]}-.*"' in text


def test_panels_lie_beside_one_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


def test_the_dashboard_asks_for_its_datasource_and_session() -> None:
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD["panels"])))
    assert used == variables == {"datasource", "session"}


def test_what_is_scraped_is_what_the_pods_offer() -> None:
    config = yaml.safe_load((MONITORING / "prometheus.yaml").read_text("utf-8"))
    ray = next(job for job in config["scrape_configs"] if job["job_name"] == "corpusmill-ray")
    (kept,) = [
        r["regex"]
        for r in ray["relabel_configs"]
        if r["source_labels"] == ["__meta_kubernetes_pod_container_port_name"]
    ]
    (cluster,) = of_kind("overlays/production", "RayCluster")
    groups = [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]
    for group in groups:
        ports = group["template"]["spec"]["containers"][0]["ports"]
        assert kept in {port["name"] for port in ports}
    assert ray["kubernetes_sd_configs"][0]["namespaces"]["names"] == [cluster["metadata"]["namespace"]]
    assert config["rule_files"] == ["rules.yaml"]
    (scrape,) = [m for m in of_kind("overlays/production", "NetworkPolicy") if m["metadata"]["name"] == "metrics"]
    assert scrape["spec"]["ingress"][0]["ports"] == [{"protocol": "TCP", "port": 8080}]
