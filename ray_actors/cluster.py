"""A Ray session for the length of a `with` block: a local one that is started and stopped, or a cluster's."""

import logging
import os
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray

from corpusmill.errors import RunFailedError, UsageError
from corpusmill.settings import Settings
from corpusmill.temporary import owned_folder

_START_ATTEMPTS = 3
_MIN_CPU_SHARE = 0.01
# What the processes of a local Ray see. A busy machine needs more than Ray's 15 s for its agents; the back-end's own
# log lines would otherwise land between ours on stderr (they stay in the session's log folder).
_LOCAL = {
    "RAY_agent_register_timeout_ms": "120000",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_grpc_client_keepalive_time_ms": "5000",
    "RAY_grpc_client_keepalive_timeout_ms": "5000",
}
# A cluster's nodes say how often they may be pinged, and cut off who does it more often: a job on one has the node's
# own environment, and that is left alone.
_EVERYWHERE = {"RAY_USAGE_STATS_ENABLED": "0"}
# Ray puts Unix sockets below it, whose paths may have 107 bytes: of these 64 are Ray's own, 16 the folder's name.
_MAX_TEMP_PATH = 27


@contextmanager
def ray_session(settings: Settings) -> Iterator[None]:
    """Connect to `ray.address`, or start a local Ray and stop it at the end; a session that is there is used as it is.

    Raises UsageError where the address does not answer, RunFailedError where a local Ray does not start.
    """
    if ray.is_initialized():
        try:
            yield
        finally:
            _let_go()
        return
    handler = signal.getsignal(signal.SIGTERM)
    own = _EVERYWHERE | (_LOCAL if settings.ray.address is None else {})
    with _temporary_folder(settings) as folder, _environment(own):
        _connect(settings, folder)
        _restore_sigterm(handler)
        try:
            yield
        finally:
            _let_go()
            ray.shutdown()
            _restore_sigterm(handler)


def _restore_sigterm(handler: object) -> None:
    """Ray takes the signal for itself when it starts; when it ends, its C++ part drops whatever handler there is, which
    Python does not notice. A caller's own handler is put back."""
    if callable(handler) and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


_kept: dict[str, list[Any]] = {}  # actors by name, for the length of the session


def kept_actors(name: str, make: Callable[[], list[Any]]) -> list[Any]:
    """The actors of that name; made once in a session, so that the stages of a run share loaded models."""
    if name not in _kept:
        _kept[name] = make()
    return _kept[name]


def _let_go() -> None:
    for handles in _kept.values():
        for handle in handles:
            ray.kill(handle)
    _kept.clear()


def cpu_share(actors: int) -> float:
    """CPUs that each of `actors` long-lived actors may claim, so that all fit and half is left for tasks."""
    total = float(ray.cluster_resources().get("CPU", 1.0))
    return max(_MIN_CPU_SHARE, min(1.0, int(50 * total / max(actors, 1)) / 100))


def _connect(settings: Settings, folder: Path | None) -> None:
    quiet: dict[str, Any] = {"log_to_driver": settings.run.log_level == "debug", "logging_level": logging.ERROR}
    if settings.ray.address is not None:
        try:
            ray.init(address=settings.ray.address, **quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise UsageError(f"no Ray answers at ray.address {settings.ray.address!r}: {error}") from error
        return
    for attempt in range(_START_ATTEMPTS):
        try:
            with _muted_stderr():
                ray.init(
                    address="local",
                    num_cpus=settings.ray.num_cpus or os.cpu_count() or 1,
                    object_store_memory=settings.ray.object_store_mb * 1024 * 1024,
                    include_dashboard=False,
                    _temp_dir=str(folder),
                    **quiet,
                )
            return
        except Exception as error:  # Ray raises a bare Exception when a node is slow to start
            ray.shutdown()
            if attempt + 1 == _START_ATTEMPTS:
                raise RunFailedError(f"a local Ray did not start in {_START_ATTEMPTS} attempts: {error}") from error
            time.sleep(1.0 + attempt)


@contextmanager
def _temporary_folder(settings: Settings) -> Iterator[Path | None]:
    """A session folder of its own: sessions that share one read one another's half-written files."""
    if settings.ray.address is not None:
        yield None
        return
    base = tempfile.gettempdir()
    with owned_folder("cm-ray-", Path(base if len(base) <= _MAX_TEMP_PATH else "/tmp")) as folder:
        yield folder


@contextmanager
def _muted_stderr() -> Iterator[None]:
    """Ray's C++ part writes to file descriptor 2 whatever the log level; its Python part raises what matters."""
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


@contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables that the user has not set, for the block and the processes started in it."""
    added = {key: value for key, value in values.items() if key not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for key in added:
            os.environ.pop(key, None)


@contextmanager
def quiet_data(settings: Settings) -> Iterator[None]:
    """Progress is ours: Ray Data's bars and execution notes are off within the block.

    So is its warning that remote arguments will get names: until then they are the only way to bound retries.
    """
    from ray.data import DataContext
    from ray.util.annotations import RayDeprecationWarning

    context = DataContext.get_current()
    bars, context.enable_progress_bars = context.enable_progress_bars, False
    logger = logging.getLogger("ray.data")
    level = logger.level
    if settings.run.log_level != "debug":
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*ray_remote_args", category=RayDeprecationWarning)
            yield
    finally:
        logger.setLevel(level)
        context.enable_progress_bars = bars
