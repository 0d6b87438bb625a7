"""The pool of a language model: a Ray Serve application of its own, and the client that builders and servers use.

Ray Serve starts, places, checks, replaces and scales the replicas, holds requests back while all are busy, and sends
the requests of one document to one replica while that has room (its consistent-hash router).
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import ray

from corpusmill.errors import ConfigError, ModelRejectedError, ModelUnavailableError, RunFailedError
from corpusmill.models.contracts import Role
from corpusmill.models.identity import application_name
from corpusmill.models.structured import Completion, CompletionBackend, CompletionRequest
from corpusmill.models.vllm_calls import PoolCall, read_answer
from corpusmill.settings import ModelSettings, Settings, VllmSettings
from ray_actors.cluster import kept_actors
from ray_actors.language_engine import FAILED, LanguageReplica
from ray_actors.language_keeper import NAMESPACE, Found, Lease, PoolKeeper, keeper_options, look

if TYPE_CHECKING:
    from ray.serve import Application

ROUTER = "ray.serve.experimental.consistent_hash_router.ConsistentHashRouter"
QUEUE_AHEAD = 2  # times max_num_seqs: as many wait inside the engine as are in work, so that no slot stays empty
START_ATTEMPTS = 2  # of a replica's constructor, before its application counts as failed
HEALTH_PERIOD_S = 5.0
HEALTH_TIMEOUT_S = 30.0
ROUTER_MAX_BACKOFF_S = 0.1  # while all replicas of a document are full
SCALE_UP_AFTER_S = 10.0
SCALE_DOWN_AFTER_S = 300.0
GRACE_S = 20.0  # for what a replica that is to end has in work


def application(args: ModelSettings) -> "Application":
    """The Serve application of one model; `import_path: ray_actors.language_pool:application` in a Serve config, whose
    `args` are the same keys as under `models.default`. `corpusmill` finds it by `vllm.application`."""
    return _application(args, args.vllm.cpus)


def _application(settings: ModelSettings, cpus: float) -> "Application":
    from ray import serve
    from ray.serve.config import RequestRouterConfig
    from ray.serve.schema import LoggingConfig

    own = settings.vllm
    routing: dict[str, Any] = {
        "request_router_class": ROUTER,
        "initial_backoff_s": 0.005,
        "max_backoff_s": ROUTER_MAX_BACKOFF_S,
    }
    deployment = serve.deployment(
        name="LanguageReplica",
        ray_actor_options={"num_cpus": cpus, "num_gpus": own.gpus_per_replica},
        max_ongoing_requests=own.max_num_seqs * QUEUE_AHEAD,
        max_queued_requests=own.max_queued_requests,
        request_router_config=RequestRouterConfig(**routing),
        health_check_period_s=HEALTH_PERIOD_S,
        health_check_timeout_s=HEALTH_TIMEOUT_S,
        graceful_shutdown_timeout_s=GRACE_S,
        max_constructor_retry_count=START_ATTEMPTS,
        logging_config=LoggingConfig(enable_access_log=False, log_level="WARNING"),  # else a line for each call
        **_replicas(own),
    )(LanguageReplica)
    return deployment.bind(settings)


def _replicas(own: VllmSettings) -> dict[str, Any]:
    if own.most_replicas == own.min_replicas:
        return {"num_replicas": own.min_replicas}
    from ray.serve.config import AutoscalingConfig

    scaling = AutoscalingConfig(
        min_replicas=own.min_replicas,
        initial_replicas=max(1, own.min_replicas),  # so that a model which does not load is told at once
        max_replicas=own.most_replicas,
        target_ongoing_requests=own.max_num_seqs,
        upscale_delay_s=SCALE_UP_AFTER_S,
        downscale_delay_s=SCALE_DOWN_AFTER_S,
    )
    return {"autoscaling_config": scaling}


def language_pools(settings: Settings, roles: Iterable[Role]) -> dict[str, Any]:
    """Handles by application name of the pools that `roles` need; those that do not run are started, and end some time
    after the last session that uses them.

    Raises ConfigError (Ray Serve is not installed, no GPU in a Ray of this machine, an application that is not there),
    RunFailedError naming the model and what its engine said.
    """
    models = {}
    for role in roles:
        own = settings.models.of(role)
        if own.backend == "vllm":
            models[application_name(own)] = own
    return {name: _pool(settings, own, name) for name, own in models.items()}


def _pool(settings: Settings, own: ModelSettings, name: str) -> Any:
    try:
        import ray.serve  # noqa: F401 - handles are made of it
    except ImportError as error:
        raise ConfigError(f"backend 'vllm' needs Ray Serve: pip install 'ray[serve]' ({error})") from error

    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    local = settings.ray.address is None
    found = _look(name)
    kept = own.vllm.application is None and (found.status != "RUNNING" or _is_kept(name))
    if kept:
        if local:
            _refuse_without_gpus(own)
        kept_actors(f"language-{name}", lambda: [_leased(own, name, local)])
        found = _look(name)
    if found.handle is None or not (kept or found.status == "RUNNING"):
        raise ConfigError(
            f"models: no Ray Serve application {name!r} runs for model {own.model!r} (status {found.status}); "
            f"applications: {found.applications or 'none'}"
        )
    return found.handle


def _look(name: str) -> Found:
    """By a task: Serve's client in a process stays with the first Ray that the process was connected to."""
    task: Any = ray.remote(look).options(num_cpus=0)
    found: Found = ray.get(task.remote(name))
    return found


def _is_kept(name: str) -> bool:
    """Whether a run started it; what someone else deployed has no keeper."""
    try:
        ray.get_actor(name, namespace=NAMESPACE)
    except ValueError:
        return False
    return True


def _refuse_without_gpus(own: ModelSettings) -> None:
    needed, there = own.vllm.gpus_per_replica, int(ray.cluster_resources().get("GPU", 0))
    if needed > there:
        raise ConfigError(
            f"a replica of model {own.model!r} needs {needed} GPU{'s' * (needed > 1)} and Ray sees {there} here; "
            "choices: a cluster (ray.address), vllm.gpus 0 with vLLM's CPU build, backend openai"
        )


def _leased(own: ModelSettings, name: str, local: bool) -> Any:
    """A lease on the application, which is started where it does not run."""
    lease: Any = ray.remote(Lease).options(num_cpus=0, max_concurrency=2).remote()
    # On one machine nothing else is placed by CPUs, and a claim could take the last one from the stages' own tasks.
    cpus = 0.0 if local else own.vllm.cpus
    keeper: Any = ray.remote(PoolKeeper).options(**keeper_options(name))
    deadline = time.monotonic() + own.vllm.start_timeout_s
    while True:
        try:
            reason = ray.get(keeper.remote(name, own.vllm.keep_s, FAILED).hold.remote(lease, own, cpus, local))
            break
        except ray.exceptions.ActorDiedError as error:  # it was about to end when it was found
            if time.monotonic() > deadline:
                raise RunFailedError(f"the keeper of {name!r} keeps dying: {error}") from error
            time.sleep(0.5)
    if reason:
        ray.kill(lease)
        raise RunFailedError(f"model {own.model!r} cannot be served: {reason}")
    return lease


class PoolClients:
    """Makes the completion back-end of a model from the handle of its pool."""

    def __init__(self, handles: Mapping[str, Any]) -> None:
        self._handles = handles

    def __call__(self, settings: ModelSettings) -> CompletionBackend:
        return PooledCompletions(settings, self._handles.get(application_name(settings)))


class PooledCompletions:
    """A client of one pool (satisfies models.structured.CompletionBackend). Works in any event loop.

    A call that was in work when its replica was lost, that no replica took in time or that found the queue full is
    ModelUnavailableError: the middlewares send it again, and only its last answer is counted.
    """

    def __init__(self, settings: ModelSettings, handle: Any) -> None:
        """`handle` None: no step of the run uses this model, and a call is refused."""
        self._settings = settings
        self._handle = handle

    async def complete(self, request: CompletionRequest) -> Completion:
        model, timeout = self._settings.model, self._settings.timeout_s
        if self._handle is None:
            raise ModelRejectedError(f"no pool of model {model!r} runs, since no step of this run names its role")
        from ray.serve.exceptions import DeploymentUnavailableError, RayServeException

        handle = self._handle.options(method_name="complete", session_id=request.affinity or "")
        response = handle.remote(PoolCall.of(request))
        try:
            answer = await asyncio.wait_for(_answer(response), timeout)
        except TimeoutError as error:
            raise ModelUnavailableError(f"the pool of model {model!r} gave no answer within {timeout:g} s") from error
        except DeploymentUnavailableError as error:
            raise ModelRejectedError(f"the pool of model {model!r} has failed: {error}") from error
        except (ray.exceptions.RayError, RayServeException) as error:
            raise ModelUnavailableError(f"a replica of model {model!r} was lost: {_first_line(error)}") from error
        return read_answer(answer)

    async def aclose(self) -> None:
        """Nothing to close: the handle belongs to the process."""


async def _answer(response: Any) -> Any:
    """The response; a caller who no longer waits frees its place in the engine."""
    try:
        return await response
    except asyncio.CancelledError:
        response.cancel()
        raise


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
