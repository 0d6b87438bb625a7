"""What `corpusmill doctor` examines. Every check ends in ok, info, warn or fail, never in an exception of its own."""

import asyncio
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from corpusmill.settings import ModelSettings, Settings

Status = Literal["ok", "info", "warn", "fail"]
JAVA_NEEDED = 17
MEMORY_WARN_GB = 6.0  # the demo's peak
DISK_WARN_GB = 5.0
PACKAGES = ("pyspark", "graphframes-py", "ray", "pyarrow", "pandas", "numpy", "faiss-cpu", "kreuzberg", "onnxruntime")
_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)[^"]*"')


@dataclass(frozen=True)
class Check:
    name: str
    status: Status
    detail: str


def examine(settings: Settings, index: str | None = None) -> Iterator[Check]:
    """All checks, cheap ones first. `index`: also write, read and delete a small object there."""
    checks: list[tuple[str, Callable[[], Check]]] = [
        ("python", check_python),
        ("java", check_java),
        ("cores", check_cores),
        ("memory", check_memory),
        ("disk", check_disk),
        ("packages", check_packages),
        ("graphframes", lambda: check_graphframes(settings)),
        ("gpu", check_gpu),
        ("embedder", lambda: check_embedder(settings)),
    ]
    endpoints = {m.model_dump_json(): m for m in _language_models(settings)}.values()
    for model in [one for given in endpoints for one in _each_endpoint(given)]:
        checks.append(("model", lambda model=model: check_endpoint(model)))  # type: ignore[misc]
    if index is not None:
        checks.append(("store", lambda: check_store(settings, index)))
    for name, run in checks:
        try:
            yield run()
        except Exception as error:  # noqa: BLE001 - a check that breaks is a finding
            yield Check(name, "fail", f"{type(error).__name__}: {error}")


def check_python() -> Check:
    version = platform.python_version()
    fit = (3, 11) <= sys.version_info[:2] < (3, 13)
    return Check("python", "ok" if fit else "fail", f"{version} at {sys.executable}; 3.11 or 3.12 is needed")


def check_java() -> Check:
    """The Java that Spark would use: JAVA_HOME, else a project's .jre, else PATH."""
    tried = []
    for place, java in _java_candidates():
        version = java_version(java)
        if version is not None and version >= JAVA_NEEDED:
            return Check("java", "ok", f"Java {version} from {place} ({java})")
        tried.append(f"{place}: {'not runnable' if version is None else f'Java {version}'}")
    said = "; ".join(tried) if tried else "no java found"
    return Check("java", "fail", f"{said}; Spark needs Java {JAVA_NEEDED} or newer: install one or set JAVA_HOME")


def java_version(java: str) -> int | None:
    """The major version of a java program, None if it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    found = _JAVA_VERSION.search(done.stderr + done.stdout)
    return int(found.group(1)) if found else None


def _java_candidates() -> Iterator[tuple[str, str]]:
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", str(Path(home) / "bin" / "java")
    for home_dir in sorted(Path(".jre").glob("**/bin/java")):
        yield ".jre", str(home_dir.resolve())
    if found := shutil.which("java"):
        yield "PATH", found


def check_cores() -> Check:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Check("cores", "ok" if usable >= 2 else "warn", f"{usable} usable; 2 or more keep Spark and Ray apart")


def check_memory() -> Check:
    import psutil

    memory = psutil.virtual_memory()
    free, total = memory.available / 1e9, memory.total / 1e9
    return Check(
        "memory",
        "ok" if free >= MEMORY_WARN_GB else "warn",
        f"{free:.1f} of {total:.1f} GB available; a small run peaks below {MEMORY_WARN_GB:.0f} GB",
    )


def check_disk() -> Check:
    place = tempfile.gettempdir()
    free = shutil.disk_usage(place).free / 1e9
    return Check(
        "disk", "ok" if free >= DISK_WARN_GB else "warn", f"{free:.1f} GB free in {place}, where engines spill"
    )


def check_packages() -> Check:
    found, missing = [], []
    for name in PACKAGES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return Check("packages", "fail", f"missing: {', '.join(missing)}; found: {', '.join(found)}")
    return Check("packages", "ok", ", ".join(found))


def check_graphframes(settings: Settings) -> Check:
    """Whether the GraphFrames JAR lies in a local Maven or Ivy folder; it is needed above `spark.pair_bound` only."""
    group, artifact, version = settings.spark.graphframes.split(":")
    home = Path.home()
    maven = home / ".m2" / "repository" / Path(*group.split(".")) / artifact / version / f"{artifact}-{version}.jar"
    ivy = [home / folder / "jars" / f"{group}_{artifact}-{version}.jar" for folder in (".ivy2.5.2", ".ivy2")]
    for path in (maven, *ivy):
        if path.exists():
            return Check("graphframes", "ok", f"{settings.spark.graphframes} at {path}")
    return Check(
        "graphframes",
        "info",
        f"{settings.spark.graphframes} is not in a local Maven or Ivy folder; Spark fetches it from Maven Central "
        f"when a merge passes spark.pair_bound ({settings.spark.pair_bound:,} pairs)",
    )


def check_gpu() -> Check:
    program = shutil.which("nvidia-smi")
    if program is None:
        return Check("gpu", "info", "no NVIDIA GPU found; nothing needs one")
    query = [program, "--query-gpu=name,memory.total", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, timeout=30, check=False)
    names = "; ".join(done.stdout.split("\n")).strip("; ")
    return Check("gpu", "ok" if names else "info", names or "nvidia-smi found no GPU")


def check_embedder(settings: Settings) -> Check:
    """Load the embedder and embed one text."""
    import numpy as np

    from corpusmill.models.embedders import build_embedder

    async def embed() -> tuple[int, float, float]:
        started = time.monotonic()
        embedder = build_embedder(settings.embedder)
        try:
            vectors = await embedder.embed(["a sentence to embed"], "passage")
        finally:
            await embedder.aclose()
        return vectors.shape[1], float(np.linalg.norm(vectors[0])), time.monotonic() - started

    dim, length, seconds = asyncio.run(embed())
    fit = abs(length - 1) < 1e-3
    said = f"{settings.embedder.backend}, {dim} dimensions, first vector after {seconds:.1f} s"
    return Check("embedder", "ok" if fit else "fail", said if fit else f"{said}, but its length is {length:.3f}, not 1")


def _language_models(settings: Settings) -> list[ModelSettings]:
    models = settings.models
    roles = (models.default, models.extract, models.summarise, models.plan, models.rerank, models.answer)
    return [model for model in roles if model is not None]


def _each_endpoint(model: ModelSettings) -> list[ModelSettings]:
    """The model at each of its endpoints, where it has several."""
    if not model.endpoints:
        return [model]
    shares = [{"base_url": share.base_url, "api_key_env": share.api_key_env} for share in model.endpoints]
    return [model.model_copy(update={**share, "endpoints": ()}) for share in shares]


def check_endpoint(model: ModelSettings) -> Check:
    """Reach the endpoint's list of models with the configured key."""
    if model.backend == "embedded":
        return Check("model", "ok", "embedded rules; no endpoint")
    if model.backend == "vllm":
        return Check("model", "info", f"{model.model} is served by the run's own vLLM pool")
    import httpx

    base = (model.base_url or "https://api.openai.com/v1").rstrip("/")
    key = os.environ.get(model.api_key_env) if model.api_key_env else None
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    said_key = f"key from {model.api_key_env}" if key else f"no key ({model.api_key_env} is not set)"
    try:
        answer = httpx.get(f"{base}/models", headers=headers, timeout=min(model.timeout_s, 15.0))
    except httpx.HTTPError as error:
        return Check("model", "fail", f"{base} cannot be reached: {type(error).__name__}: {error}")
    if answer.status_code in (401, 403):
        return Check("model", "fail", f"{base} answered {answer.status_code}: {said_key}")
    if answer.status_code != 200:
        return Check("model", "warn", f"{base}/models answered {answer.status_code}; {said_key}")
    names = [item.get("id") for item in answer.json().get("data", [])]
    if names and model.model not in names:
        shown = ", ".join(str(name) for name in names[:8])
        return Check("model", "warn", f"{base} does not list {model.model!r}; it lists {shown}")
    return Check("model", "ok", f"{model.model} at {base}; {said_key}")


def _remove_empty(root: Path, key: str) -> None:
    """The folders that a probe has made at a local place, the index's own too where there was none."""
    for folder in [root / parent for parent in Path(key).parents]:  # the last is the root
        if not folder.is_dir():
            continue
        try:
            folder.rmdir()
        except OSError:
            return  # not empty: it was there before


def check_store(settings: Settings, index: str) -> Check:
    """Create, read and delete a small object, and see that a second creation is refused."""
    from corpusmill.errors import CommitConflictError, CorpusmillError
    from corpusmill.store.layout import run_key, unique
    from corpusmill.store.objects import open_store

    key, body = run_key(f"doctor-{unique()}", "probe"), b"probe"
    try:
        store = open_store(index, settings.store)
        store.create(key, body)
        try:
            same = store.get(key) == body
            try:
                store.create(key, b"other")
                refused = False
            except CommitConflictError:
                refused = True
        finally:
            store.delete(key)
            _remove_empty(Path(store.uri), key)
    except CorpusmillError as error:
        return Check("store", "fail", str(error))
    if not same or not refused:
        return Check("store", "fail", f"{store.uri} {'overwrites objects' if same else 'does not read back'}")
    return Check("store", "ok", f"{store.uri} is writable, with conditional writes")
