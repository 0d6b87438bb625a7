"""Manifests: valid to Kubernetes and the operators, and true of the code that they run."""

import functools
import json
import re
import shlex
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from corpusmill import __version__
from corpusmill.settings import ModelSettings, Settings
from corpusmill.settings_sources import load_settings
from ray_actors.language_pool import QUEUE_AHEAD
from tests.shared import REPOSITORY, shared_root
from tests.unit.infra.manifests import (
    BUILT,
    INFRA,
    Manifest,
    all_manifests,
    built,
    config_file,
    of_kind,
    pod_specs,
    ray_clusters,
)

KUBERNETES = "1.37"
OPERATORS = ("ray.io", "sparkoperator.k8s.io", "spark.apache.org")
IMAGES = {f"registry.example.com/corpusmill/{kind}:{__version__}" for kind in ("cpu", "gpu")}
KEEPALIVE = {"RAY_grpc_client_keepalive_time_ms": "5000", "RAY_grpc_client_keepalive_timeout_ms": "5000"}
OVERLAYS = ("overlays/dev", "overlays/production")
PYPROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))


def _named(manifests: list[tuple[str, Manifest]]) -> list[Any]:
    return [pytest.param(m, id=f"{where}-{m['kind']}-{m['metadata']['name']}") for where, m in manifests]


def _core() -> list[tuple[str, Manifest]]:
    return [(where, m) for where, m in all_manifests() if m["apiVersion"].split("/")[0] not in OPERATORS]


def _custom() -> list[tuple[str, Manifest]]:
    return [(where, m) for where, m in all_manifests() if m["apiVersion"].split("/")[0] in OPERATORS]


def _pinned(package: str) -> str:
    (version,) = [
        d.split("==")[1] for d in PYPROJECT["project"]["dependencies"] if re.match(rf"{package}(\[.*\])?==", d)
    ]
    return version


# --- schemas ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("manifest", _named(_core()))
def test_objects_of_kubernetes_itself(manifest: Manifest) -> None:
    kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


def test_the_template_of_spark_executors_is_a_pod() -> None:
    for folder in OVERLAYS:
        template = yaml.safe_load(config_file(folder, "spark-executor", "executor.yaml"))
        kubernetes_validate.validate(template | {"metadata": {"name": "executor"}}, KUBERNETES, strict=True)


@functools.cache
def _schemas(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """OpenAPI schemas of custom resources as strict JSON schemas, by (apiVersion, kind)."""
    found = {}
    for path in sorted(folder.glob("*.yaml")):
        for crd in yaml.load_all(path.read_text("utf-8"), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if crd and crd["kind"] == "CustomResourceDefinition":
                for version in crd["spec"]["versions"]:
                    schema = _strict(version["schema"]["openAPIV3Schema"])
                    schema["properties"] |= {name: {} for name in ("apiVersion", "kind", "metadata")}
                    name = f"{crd['spec']['group']}/{version['name']}"
                    found[name, crd["spec"]["names"]["kind"]] = schema
    return found


def _strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    out = {
        k: _strict(v) for k, v in schema.items() if k not in ("description", "default", "format", "nullable", "example")
    }
    open_ended = "additionalProperties" in schema or schema.get("x-kubernetes-preserve-unknown-fields")
    if schema.get("type") == "object" and "properties" in schema and not open_ended:
        out["additionalProperties"] = False
    if schema.get("nullable") and isinstance(out.get("type"), str):
        out["type"] = [out["type"], "null"]
    return out


@pytest.mark.parametrize("manifest", _named(_custom()))
def test_objects_of_the_operators(manifest: Manifest) -> None:
    folder = shared_root().parent / "crds"
    if not folder.is_dir():
        pytest.skip(f"no definitions of the operators' kinds at {folder}")
    schema = _schemas(folder)[manifest["apiVersion"], manifest["kind"]]
    problems = [
        f"{'/'.join(map(str, e.absolute_path))}: {e.message[:200]}"
        for e in jsonschema.Draft7Validator(schema).iter_errors(manifest)
    ]
    assert not problems


# --- pods ------------------------------------------------------------------------------------------------------------


def _pods() -> list[Any]:
    found = [
        (where, m, spec)
        for where, m in all_manifests()
        for spec in pod_specs(m)
        if m["apiVersion"] != "spark.apache.org/v1"
    ]
    for folder in OVERLAYS:
        template = yaml.safe_load(config_file(folder, "spark-executor", "executor.yaml"))
        found.append((folder, {"kind": "executor", "metadata": {"name": "template"}}, template["spec"]))
    return [pytest.param(s, id=f"{w}-{m['kind']}-{m['metadata']['name']}-{n}") for n, (w, m, s) in enumerate(found)]


@pytest.mark.parametrize("spec", _pods())
def test_pods_claim_what_they_need_and_no_more_rights(spec: Manifest) -> None:
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["serviceAccountName"].startswith("corpusmill-")
    assert isinstance(spec["automountServiceAccountToken"], bool)  # said, not left to a default
    mounted = {mount["name"] for container in spec["containers"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in spec["volumes"]}
    for container in spec["containers"]:
        assert {"cpu", "memory"} <= set(container["resources"]["requests"])
        assert container["resources"]["limits"]["memory"] == container["resources"]["requests"]["memory"]
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False
        assert security["capabilities"] == {"drop": ["ALL"]}
        assert security["readOnlyRootFilesystem"] is True
        writable = {m["mountPath"] for m in container["volumeMounts"] if not m.get("readOnly")}
        assert {"/tmp", "/home/corpusmill"} <= writable


def test_images_are_those_of_this_version() -> None:
    text = "\n".join(json.dumps(manifest) for _, manifest in all_manifests())
    used = set(re.findall(r"registry\.example\.com/corpusmill/[a-z]+:[\w.]+", text))
    assert used == IMAGES
    assert not re.search(r'"image": "(?!registry\.example\.com/corpusmill/)', text)


def test_no_secret_is_shipped() -> None:
    assert not [m for _, m in all_manifests() if m["kind"] == "Secret"]
    text = "\n".join(path.read_text("utf-8") for path in INFRA.rglob("*") if path.is_file())
    assert not re.search(r"AKIA[0-9A-Z]{16}|-----BEGIN|\bsk-[A-Za-z0-9]{20}", text)


def test_every_account_and_settings_map_that_is_named_is_there() -> None:
    for folder in OVERLAYS:
        there = {(m["kind"], m["metadata"]["name"]) for m in built(folder)}
        for manifest in built(folder):
            for spec in pod_specs(manifest):
                assert ("ServiceAccount", spec["serviceAccountName"]) in there
                for volume in spec.get("volumes", ()):
                    if "configMap" in volume:
                        assert ("ConfigMap", volume["configMap"]["name"]) in there
                    if "persistentVolumeClaim" in volume:
                        assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in there


def test_all_but_the_namespace_are_in_it() -> None:
    for _, manifest in all_manifests():
        if manifest["kind"] != "Namespace":
            assert manifest["metadata"]["namespace"] == "corpusmill"


def test_disruption_budgets_name_pods_of_which_one_may_go() -> None:
    """`maxUnavailable` is not for pods without a built-in controller; each budget leaves room to drain, the head's not."""
    (cluster,) = of_kind("overlays/production", "RayCluster")
    groups = {group["groupName"]: group["replicas"] for group in cluster["spec"]["workerGroupSpecs"]}
    least = {}
    for budget in of_kind("overlays/production", "PodDisruptionBudget"):
        assert "maxUnavailable" not in budget["spec"]
        least[budget["metadata"]["name"]] = budget["spec"]["minAvailable"]
    assert least.pop("ray-head") == 1
    (service,) = of_kind("overlays/production", "RayService")
    (pool,) = [g for g in service["spec"]["rayClusterConfig"]["workerGroupSpecs"] if g["groupName"] == "gpu"]
    assert least == {"ray-cpu": groups["cpu"] - 1, "ray-gpu": groups["gpu"] - 1, "models": pool["minReplicas"] - 1}


# --- Ray -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "spec"), ray_clusters())
def test_ray_clusters(kind: str, spec: Manifest) -> None:
    assert spec["rayVersion"] == _pinned("ray")
    assert spec["authOptions"] == {"mode": "token", "secretName": "corpusmill-ray-token"}
    head = spec["headGroupSpec"]
    assert head["rayStartParams"]["num-cpus"] == head["rayStartParams"]["num-gpus"] == "0"  # no work on the head
    for group in (head, *spec["workerGroupSpecs"]):
        (container,) = group["template"]["spec"]["containers"]
        port = group["rayStartParams"]["metrics-export-port"]
        assert {"name": "metrics", "containerPort": int(port)} in container["ports"]
        assert group["template"]["metadata"]["labels"]["corpusmill/engine"] == "ray"  # what the network rules go by
        env = {variable["name"]: variable.get("value") for variable in container["env"]}
        # A driver pings so often; a node that was not told so drops its calls: "too many pings".
        assert {name: env[name] for name in KEEPALIVE} == KEEPALIVE
        gpu = "nvidia.com/gpu" in container["resources"]["limits"]
        assert container["image"].rpartition(":")[0].endswith("gpu" if gpu else "cpu")
        scaled = kind == "RayService" and gpu
        if group is not head and not scaled:  # a run divides the CPUs that it finds: their number must not change
            assert group["replicas"] == group["minReplicas"] == group["maxReplicas"]


def test_a_driver_runs_where_java_and_the_settings_are() -> None:
    """The resource `driver` that jobs claim is given by groups of the CPU image, with a token to start executors."""
    for _, spec in ray_clusters():
        for group in spec["workerGroupSpecs"]:
            if "resources" not in group["rayStartParams"]:
                continue
            assert json.loads(json.loads(group["rayStartParams"]["resources"].strip("'"))) == {"driver": 1}
            pod = group["template"]["spec"]
            assert pod["automountServiceAccountToken"] is True
            assert "/cpu:" in pod["containers"][0]["image"]
    (job,) = of_kind("jobs/index", "RayJob")
    assert json.loads(job["spec"]["entrypointResources"]) == {"driver": 1}
    (group,) = [g for g in job["spec"]["rayClusterSpec"]["workerGroupSpecs"] if "resources" in g["rayStartParams"]]
    mounts = {m["mountPath"] for m in group["template"]["spec"]["containers"][0]["volumeMounts"]}
    assert {"/etc/corpusmill", "/etc/spark"} <= mounts


def test_the_pool_is_an_application_of_the_code() -> None:
    (service,) = of_kind("overlays/production", "RayService")
    config = yaml.safe_load(service["spec"]["serveConfigV2"])
    (application,) = config["applications"]
    module, _, name = application["import_path"].partition(":")
    assert callable(getattr(import_module(module), name))
    assert application["route_prefix"] is None  # it is asked through Ray alone
    args = ModelSettings.model_validate(application["args"])
    (group,) = [g for g in service["spec"]["rayClusterConfig"]["workerGroupSpecs"] if g["groupName"] == "gpu"]
    gpus = int(group["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"])
    assert args.vllm.gpus_per_replica == gpus
    assert (args.vllm.min_replicas, args.vllm.max_replicas) == (group["minReplicas"], group["maxReplicas"])


# --- commands and settings -------------------------------------------------------------------------------------------


def _settings(folder: str) -> Settings:
    text = config_file(folder, "corpusmill-settings", "corpusmill.yaml")
    path = INFRA / folder / "corpusmill.yaml"
    assert path.read_text("utf-8") == text
    return load_settings(path).settings


def test_settings_of_the_overlays_are_valid() -> None:
    for folder in OVERLAYS:
        assert _settings(folder).ray.address == "auto"


def test_settings_fit_the_cluster() -> None:
    settings = _settings("overlays/production")
    (cluster,) = of_kind("overlays/production", "RayCluster")
    gpus = sum(
        group["replicas"]
        * int(group["template"]["spec"]["containers"][0]["resources"]["limits"].get("nvidia.com/gpu", 0))
        for group in cluster["spec"]["workerGroupSpecs"]
    )
    pool = settings.models.default.vllm
    assert pool.min_replicas * pool.gpus_per_replica == gpus
    assert settings.ray.calls_in_flight == pool.min_replicas * pool.max_num_seqs * QUEUE_AHEAD
    conf = settings.spark.conf
    assert conf["spark.kubernetes.container.image"] in IMAGES
    assert conf["spark.kubernetes.namespace"] == "corpusmill"
    pod = cluster["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    mounts = {m["mountPath"]: m["name"] for m in pod["containers"][0]["volumeMounts"]}
    assert conf["spark.kubernetes.executor.podTemplateFile"] == "/etc/spark/executor.yaml"
    assert mounts["/etc/spark"] == "spark-executor"
    assert conf["spark.authenticate"] == "true"
    (group,) = [g for g in cluster["spec"]["workerGroupSpecs"] if g["groupName"] == "cpu"]
    assert settings.ray.builders <= 4 * group["replicas"]


def test_dev_has_no_gpu_and_needs_none() -> None:
    (cluster,) = of_kind("overlays/dev", "RayCluster")
    assert [group["groupName"] for group in cluster["spec"]["workerGroupSpecs"]] == ["cpu"]
    assert _settings("overlays/dev").models.default.backend == "embedded"
    (night,) = of_kind("overlays/dev", "CronJob")
    assert night["spec"]["suspend"] is True


def _options(words: list[str]) -> set[str]:
    """The options of a corpusmill command line that typer knows; fails on one that it does not."""
    from typer.main import get_command

    from jobs.cli import app

    command: Any = get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    context = command.make_context("corpusmill", list(words))
    return {name for name, value in context.params.items() if value}


def _command(line: str) -> list[str]:
    words = shlex.split(line.split("||")[0])
    assert words.pop(0) == "corpusmill"
    return words


def test_the_nightly_command_is_one_of_ours() -> None:
    (night,) = of_kind("overlays/production", "CronJob")
    assert night["spec"]["concurrencyPolicy"] == "Forbid"
    (container,) = night["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    (line,) = container["args"]
    assert {"source", "to", "config", "ray_address", "attempts", "resource", "json"} <= _options(_command(line))
    mounts = {m["mountPath"] for m in container["volumeMounts"]}
    assert "/etc/corpusmill" in mounts
    assert "http://corpusmill-head-svc:8265" in line  # KubeRay names a head's service after its cluster
    token = next(e for e in container["env"] if e["name"] == "RAY_AUTH_TOKEN")
    assert token["valueFrom"]["secretKeyRef"] == {"name": "corpusmill-ray-token", "key": "auth_token"}


def test_the_command_of_the_job_is_one_of_ours() -> None:
    (job,) = of_kind("jobs/index", "RayJob")
    shell, flag, line = shlex.split(job["spec"]["entrypoint"])
    assert (shell, flag) == ("bash", "-c")
    assert {"source", "to", "config", "json"} <= _options(_command(line))
    assert job["spec"]["shutdownAfterJobFinishes"] is True


@pytest.mark.parametrize(("code", "ends"), [(0, 0), (5, 0), (3, 3), (4, 4)])
def test_only_published_runs_succeed(code: int, ends: int, tmp_path: Path) -> None:
    """The lines' own shell, with a command in corpusmill's place that ends so."""
    import subprocess

    (tmp_path / "corpusmill").write_text(f"#!/bin/sh\nexit {code}\n")
    (tmp_path / "corpusmill").chmod(0o755)
    (night,) = of_kind("overlays/production", "CronJob")
    (container,) = night["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    (job,) = of_kind("jobs/index", "RayJob")
    for line in (container["args"][0].replace("$(", "${").replace(")", "}"), shlex.split(job["spec"]["entrypoint"])[2]):
        done = subprocess.run(["bash", "-c", line], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, timeout=20)
        assert done.returncode == ends


def test_stages_run_the_program_of_the_image() -> None:
    """Where the wheel puts it, in the Python of the image."""
    spark = {m["apiVersion"]: m["spec"] for _, m in _custom() if m["kind"] == "SparkApplication"}
    program = "local:///opt/corpusmill/lib/python3.11/site-packages/corpusmill_jobs/stage.py"
    of_kubeflow, of_apache = spark["sparkoperator.k8s.io/v1beta2"], spark["spark.apache.org/v1"]
    assert of_kubeflow["mainApplicationFile"] == of_apache["pyFiles"] == program
    assert of_kubeflow["sparkVersion"] == of_apache["runtimeVersions"]["sparkVersion"] == _pinned(r"pyspark")
    packages = PYPROJECT["tool"]["setuptools"]["package-dir"]
    assert packages["corpusmill_jobs"] == "jobs" and (REPOSITORY / "jobs" / "stage.py").is_file()
    assert of_kubeflow["arguments"] == of_apache["driverArgs"]
    stage, *options = of_kubeflow["arguments"]
    source = (REPOSITORY / "jobs" / "stage.py").read_text("utf-8")
    assert f'"{stage}"' in source and all(f'"{o}"' in source for o in options if o.startswith("--"))


# --- network ---------------------------------------------------------------------------------------------------------


def _allowed(folder: str, labels: dict[str, str]) -> list[tuple[dict[str, Any], list[int] | None]]:
    """(from, ports) of the rules that let something into a pod with these labels."""
    found = []
    for policy in of_kind(folder, "NetworkPolicy"):
        selector = policy["spec"]["podSelector"]
        matches = all(labels.get(k) == v for k, v in selector.get("matchLabels", {}).items()) and all(
            labels.get(e["key"]) in e["values"] for e in selector.get("matchExpressions", ())
        )
        for rule in policy["spec"].get("ingress", ()) if matches else ():
            ports = [p["port"] for p in rule["ports"]] if "ports" in rule else None
            found += [(peer, ports) for peer in rule["from"]]
    return found


def test_ports_that_carry_code_are_open_to_the_engines_alone() -> None:
    (closed,) = [m for m in of_kind("overlays/production", "NetworkPolicy") if m["metadata"]["name"] == "closed"]
    assert closed["spec"]["podSelector"] == {} and "Ingress" in closed["spec"]["policyTypes"]
    assert "ingress" not in closed["spec"]
    head = {"corpusmill/engine": "ray", "ray.io/node-type": "head"}
    for peer, ports in _allowed("overlays/production", head):
        if ports is None:
            (expression,) = peer["podSelector"]["matchExpressions"]
            assert expression["key"] == "corpusmill/engine"
        elif 8265 in ports:
            assert ports == [8265] and peer["podSelector"]["matchLabels"]
        else:
            assert ports == [8080]


@pytest.mark.parametrize("engine", ["ray", "spark"])
def test_engines_reach_one_another_at_every_port(engine: str) -> None:
    (peer,) = [p for p, ports in _allowed("overlays/production", {"corpusmill/engine": engine}) if ports is None]
    assert peer["podSelector"]["matchExpressions"][0]["values"] == ["ray", "spark"]


def test_who_submits_may_reach_the_job_server() -> None:
    (night,) = of_kind("overlays/production", "CronJob")
    labels = night["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["labels"]
    (job,) = of_kind("jobs/index", "RayJob")
    for own in (labels, job["spec"]["submitterPodTemplate"]["metadata"]["labels"]):
        peers = [
            peer["podSelector"]["matchLabels"]
            for peer, ports in _allowed("overlays/production", {"ray.io/node-type": "head"})
            if ports == [8265]
        ]
        assert any(peer.items() <= own.items() for peer in peers)


def test_overlays_differ_in_nothing_that_is_only_the_base_s() -> None:
    kinds = {folder: {(m["kind"], m["metadata"]["name"]) for m in built(folder)} for folder in BUILT}
    assert kinds["overlays/dev"] < kinds["overlays/production"]
