"""Dockerfiles: what they copy is there, versions are the project's, nothing runs as root; and the entry point's own words."""

import fnmatch
import json
import os
import re
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from corpusmill import __version__
from tests.shared import REPOSITORY

IMAGES = REPOSITORY / "infra" / "images"
DOCKERFILES = sorted(IMAGES.glob("Dockerfile.*"))
PYPROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))


@dataclass(frozen=True)
class Instruction:
    name: str
    text: str
    stage: int  # from 0, by FROM


def instructions(path: Path) -> list[Instruction]:
    """Instructions of a Dockerfile, with their continued lines joined and comments left out."""
    joined = ""
    found: list[Instruction] = []
    stage = -1
    for line in path.read_text("utf-8").splitlines():
        if line.lstrip().startswith("#") or not (line.strip() or joined):
            continue
        joined += line.strip().removesuffix("\\")
        if line.rstrip().endswith("\\"):
            continue
        name, _, text = joined.partition(" ")
        stage += name == "FROM"
        found.append(Instruction(name, " ".join(text.split()), stage))
        joined = ""
    return found


def copies(path: Path) -> list[str]:
    """Paths below the repository that are copied into the image."""
    found: list[str] = []
    for instruction in instructions(path):
        if instruction.name == "COPY" and "--from=" not in instruction.text:
            words = [word for word in instruction.text.split() if not word.startswith("--")]
            found += words[:-1]
    return found


def ignored(path: str) -> bool:
    """Whether the build context lacks a path; the last pattern that fits it or a folder above it decides."""
    out = False
    for line in (REPOSITORY / ".dockerignore").read_text("utf-8").splitlines():
        pattern = line.strip()
        if not pattern or pattern.startswith("#"):
            continue
        kept = pattern.startswith("!")
        pattern = pattern.lstrip("!").removeprefix("**/")
        parts = Path(path).parts
        heads = ["/".join(parts[: n + 1]) for n in range(len(parts))]
        if any(fnmatch.fnmatch(head, pattern) for head in heads) or (
            line.startswith("**/") and fnmatch.fnmatch(parts[-1], pattern)
        ):
            out = not kept
    return out


def pinned(lock: Path) -> dict[str, str]:
    return dict(re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", lock.read_text("utf-8"), re.MULTILINE))


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda p: p.name)
def test_what_is_copied_is_there_and_in_the_context(path: Path) -> None:
    found = copies(path)
    assert found
    for source in found:
        assert (REPOSITORY / source).exists(), source
        assert not ignored(source), source
    packages = {name.split("/")[0] for name in PYPROJECT["tool"]["setuptools"]["package-dir"].values()}
    assert packages <= set(found)  # or the wheel would lack one


@pytest.mark.parametrize(
    "path", [".venv/bin/python", ".git/config", "tests/conftest.py", ".env", "infra/base/network.yaml"]
)
def test_the_context_holds_nothing_else(path: str) -> None:
    assert ignored(path)


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda p: p.name)
def test_an_image_runs_as_nobody_special_and_says_what_it_is(path: Path) -> None:
    last = [i for i in instructions(path) if i.stage == max(j.stage for j in instructions(path))]
    users = [i.text for i in last if i.name == "USER"]
    assert users == ["10001:10001"]
    names = [i.name for i in last]
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert "HEALTHCHECK" in names
    (labels,) = [i.text for i in last if i.name == "LABEL"]
    assert f'org.opencontainers.image.version="{__version__}"' in labels
    assert not [
        i
        for i in instructions(path)
        if i.name in ("ARG", "ENV") and re.search("(?i)token|password|secret|key=", i.text)
    ]
    assert not [i for i in instructions(path) if i.name == "ADD"]
    for start in (i.text for i in instructions(path) if i.name == "FROM"):
        image, _, tag = start.split()[0].partition(":")
        assert image and tag and tag != "latest"


def test_both_images_have_one_python_that_the_project_takes() -> None:
    bases = {i.text.split()[0] for path in DOCKERFILES for i in instructions(path) if i.name == "FROM"}
    assert bases == {"python:3.11-slim-bookworm"}
    assert PYPROJECT["project"]["requires-python"] == ">=3.11,<3.13"


def test_the_engines_versions_are_the_project_s() -> None:
    """Ray and Spark must be equal on every node; vLLM is the version that Ray's own extra pins."""
    exact = {}
    for text in PYPROJECT["project"]["dependencies"]:
        if match := re.match(r"([A-Za-z0-9-]+)(?:\[.*\])?==(.+)", text):
            exact[match[1]] = match[2]
    assert {"ray", "pyspark", "graphframes-py"} <= set(exact)
    cpu, gpu = pinned(REPOSITORY / "requirements.lock"), pinned(IMAGES / "requirements-gpu.lock")
    for name, version in exact.items():
        assert cpu[name] == gpu[name] == version
    assert gpu["vllm"] == "0.29.0"
    assert {"torch", "faiss-gpu-cu12", "sentence-transformers", "boto3"} <= set(gpu)
    assert cpu["pyarrow"] == gpu["pyarrow"]  # tables travel between the nodes


def test_the_gpu_lock_has_what_the_project_asks_for() -> None:
    gpu = pinned(IMAGES / "requirements-gpu.lock")
    asked = [
        *PYPROJECT["project"]["dependencies"],
        *(d for e in ("gpu", "s3", "serve") for d in PYPROJECT["project"]["optional-dependencies"][e]),
    ]
    names = {re.split(r"[\[<>=~! ]", text)[0].lower() for text in asked}
    assert not names - set(gpu)


# --- the entry point -------------------------------------------------------------------------------------------------


def _entry(tmp_path: Path, *arguments: str, **environment: str) -> list[str]:
    """What the entry point would start."""
    shown = tmp_path / "show"
    shown.write_text("#!/usr/bin/env python3\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    shown.chmod(0o755)
    done = subprocess.run(
        ["bash", str(IMAGES / "spark-entrypoint.sh"), *arguments],
        env={
            "PATH": os.environ["PATH"],
            "TINI": str(shown),
            "JAVA_HOME": "/java",
            "SPARK_HOME": "/spark",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 0, done.stderr
    words = json.loads(done.stdout)
    assert words[:2] == ["-s", "--"]
    return words[2:]


EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@10.1.2.3:7078",
    "SPARK_EXECUTOR_ID": "4",
    "SPARK_EXECUTOR_CORES": "2",
    "SPARK_EXECUTOR_MEMORY": "8g",
    "SPARK_APPLICATION_ID": "spark-abc",
    "SPARK_EXECUTOR_POD_IP": "10.1.2.4",
    "SPARK_EXECUTOR_POD_NAME": "run-exec-4",
    "SPARK_RESOURCE_PROFILE_ID": "0",
}


def test_an_executor(tmp_path: Path) -> None:
    options = {f"SPARK_JAVA_OPT_{n}": text for n, text in enumerate(["-Dspark.driver.port=7078", "-Dname=two words"])}
    words = _entry(tmp_path, "executor", **EXECUTOR, **options)
    assert words[:5] == ["/java/bin/java", "-Dspark.driver.port=7078", "-Dname=two words", "-Xms8g", "-Xmx8g"]
    assert words[words.index("-cp") + 1] == "/spark/conf:/spark/jars/*"
    pairs = dict(zip(words[8::2], words[9::2], strict=True))
    assert words[7] == "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
    assert pairs == {
        "--driver-url": EXECUTOR["SPARK_DRIVER_URL"],
        "--executor-id": "4",
        "--cores": "2",
        "--app-id": "spark-abc",
        "--hostname": "10.1.2.4",
        "--resourceProfileId": "0",
        "--podName": "run-exec-4",
    }


def test_an_executor_without_its_variables_says_which(tmp_path: Path) -> None:
    done = subprocess.run(
        ["bash", str(IMAGES / "spark-entrypoint.sh"), "executor"],
        env={"PATH": os.environ["PATH"], "JAVA_HOME": "/java", "SPARK_HOME": "/spark"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode != 0
    assert "SPARK_EXECUTOR_MEMORY" in done.stderr


def test_a_driver(tmp_path: Path) -> None:
    words = _entry(tmp_path, "driver", "--class", "X", "local:///a.py", "one two", SPARK_DRIVER_BIND_ADDRESS="10.1.2.3")
    assert words == [
        "/spark/bin/spark-submit", "--deploy-mode", "client", "--conf", "spark.driver.bindAddress=10.1.2.3",
        "--class", "X", "local:///a.py", "one two",
    ]  # fmt: skip


def test_any_other_command_is_run_as_it_is(tmp_path: Path) -> None:
    assert _entry(tmp_path, "corpusmill", "doctor", "s3://a b/c") == ["corpusmill", "doctor", "s3://a b/c"]
