"""One local Ray for all tests of this folder; `ray_session` inside them finds it and uses it."""

from collections.abc import Iterator

import pytest

from corpusmill.settings import RaySettings, Settings
from ray_actors.cluster import ray_session


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    with ray_session(Settings(ray=RaySettings(num_cpus=2, object_store_mb=100))):
        yield
