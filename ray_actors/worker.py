"""What a builder and a map worker have in common: models over the shared pools, budget, cache and reports."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import ray

from corpusmill.models.budget import BudgetLike
from corpusmill.models.cached import ResponseCacheLike
from corpusmill.models.contracts import ROLES, Embedder
from corpusmill.models.factory import ClusterPool, CompletionsFactory, RunModels
from corpusmill.models.metered import Meter
from corpusmill.planning import resolved_plan
from corpusmill.settings import ModelSettings, Settings
from corpusmill.store.objects import ObjectStore
from corpusmill.store.response_cache import ResponseCache
from corpusmill.store.view import default_cache_dir
from ray_actors.clustering_pool import PooledClustering, clustering_replicas
from ray_actors.embedding_pool import PooledEmbedder, embedding_replicas
from ray_actors.ledger import LedgerClient

REPORT_S = 0.5


class ModelsFactory(Protocol):
    """How a worker gets its models; `models.factory.build_models` by default. Must be picklable.

    `completions`, given where a pool serves a model, makes its back-end. A model made for a measurement comes in here.
    """

    def __call__(
        self,
        settings: Settings,
        *,
        meter: Meter,
        cache: ResponseCacheLike | None,
        cluster_pool: ClusterPool | None,
        embedder: Embedder | None,
        budget: BudgetLike | None,
        calls_in_flight: int | None,
        completions: CompletionsFactory | None = None,
    ) -> RunModels: ...


@dataclass(frozen=True)
class Pools:
    """Handles that every worker of a stage gets."""

    ledger: Any
    embedding: list[Any]
    clustering: list[Any]
    workers: int
    language: dict[str, Any] = field(default_factory=dict)  # Serve handles by application name


def start_pools(settings: Settings, ledger: Any) -> Pools:
    """Start what workers share. More workers than calls in flight would have nothing to do."""
    workers = min(settings.ray.builders, settings.ray.calls_in_flight)
    language = _language_pools(settings)
    return Pools(ledger, embedding_replicas(settings), clustering_replicas(settings), workers, language)


def _language_pools(settings: Settings) -> dict[str, Any]:
    """Pools of the models of those roles that the run's steps name; Ray Serve is loaded only where there are such."""
    if not any(settings.models.of(role).backend == "vllm" for role in ROLES):
        return {}
    from ray_actors.language_pool import language_pools

    return language_pools(settings, {role for step in resolved_plan(settings).steps for role in step.roles})


class Worker:
    """One process's models and reports. Made in an actor's constructor; `start` is called on its event loop."""

    def __init__(self, settings: Settings, store: ObjectStore, pools: Pools, factory: ModelsFactory) -> None:
        self.meter = Meter()
        self.client = LedgerClient(pools.ledger)
        self._store = store
        self._pools = pools
        self._factory = factory
        actor = ray.get_runtime_context().get_actor_id() or self.client.worker
        place = ray.get(pools.ledger.place.remote(actor))
        self.settings = share_of(settings, pools.workers, place)
        self.cache = open_cache(settings, store)
        self._reporter: asyncio.Task[None] | None = None

    def models(self) -> RunModels:
        """The models of this worker, with its share of the calls."""
        limited = self.settings.run.budget is not None or self.settings.run.max_calls is not None
        return self._factory(
            self.settings,
            meter=self.meter,
            cache=self.cache,
            cluster_pool=PooledClustering(self._pools.clustering),
            embedder=PooledEmbedder(self._pools.embedding, self.settings.embedder) if self._pools.embedding else None,
            budget=self.client if limited else None,
            calls_in_flight=self.settings.ray.calls_in_flight,
            **self._completions(),
        )

    def _completions(self) -> dict[str, CompletionsFactory]:
        if not self._pools.language:
            return {}
        from ray_actors.language_pool import PoolClients

        return {"completions": PoolClients(self._pools.language)}

    def start(self, done: Callable[[], dict[str, int]], stopped: Callable[[str], None]) -> None:
        """Report every half second until the process ends; `stopped` is told once why the stage must stop."""
        self._done = done
        self._stopped = stopped
        self._reporter = asyncio.get_running_loop().create_task(self._report_forever())

    async def report(self) -> None:
        """Tell the ledger what is done by now."""
        reason = await self.client.report(self.meter.snapshot(), self._done())
        if reason is not None:
            self._stopped(reason)

    async def flush(self) -> None:
        """Put the responses of this process where other hosts find them."""
        if self.cache is not None:
            await asyncio.to_thread(self.cache.flush)

    async def _report_forever(self) -> None:
        while True:
            await self.report()
            await asyncio.sleep(REPORT_S)


def open_cache(settings: Settings, store: ObjectStore) -> ResponseCache | None:
    """The response cache of this machine and the index; None where it is switched off."""
    if not settings.cache.enabled:
        return None
    folder = Path(settings.cache.dir) if settings.cache.dir else default_cache_dir()
    return ResponseCache(folder, store, settings.cache.flush_s)


def share_of(settings: Settings, workers: int, place: int) -> Settings:
    """The settings of worker `place` of `workers`: its share of calls in flight and of each model's rates.

    The remainder of the calls goes to the first workers; a worker beyond the planned ones has one call.
    """
    calls, rest = divmod(settings.ray.calls_in_flight, workers)
    own = max(1, calls + (place < rest)) if place < workers else 1
    roles = {name: getattr(settings.models, name) for name in type(settings.models).model_fields}
    models = {name: _rates(model, workers) for name, model in roles.items() if model is not None}
    return settings.model_copy(
        update={
            "ray": settings.ray.model_copy(update={"calls_in_flight": own}),
            "models": settings.models.model_copy(update=models),
        }
    )


def _rates(model: ModelSettings, workers: int) -> ModelSettings:
    limits = {name: getattr(model, name) for name in ("requests_per_minute", "tokens_per_minute")}
    return model.model_copy(update={name: value / workers for name, value in limits.items() if value is not None})
