"""From settings to models: their fingerprints and dimension (nothing is loaded), and the models of a run."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import numpy as np

from corpusmill.errors import ConfigError
from corpusmill.hashing import fingerprint
from corpusmill.models.budget import Budget, BudgetedModel, BudgetLike
from corpusmill.models.cached import CachedModel, ResponseCacheLike
from corpusmill.models.contracts import ROLES, Embedder, LanguageModel, Reranker, Role
from corpusmill.models.embedded import EmbeddedModel
from corpusmill.models.embedders import build_embedder, known_dim
from corpusmill.models.embedders import embedder_fingerprint as _embedder_fingerprint
from corpusmill.models.embedders.cached import CachedEmbedder
from corpusmill.models.identity import language_model_fingerprint
from corpusmill.models.limits import Gate, GatedModel, RateLimitedModel
from corpusmill.models.metered import Meter, MeteredEmbedder, MeteredModel
from corpusmill.models.rerank import build_reranker
from corpusmill.models.retrying import RetryingModel
from corpusmill.models.structured import CompletionBackend, StructuredModel
from corpusmill.settings import ModelSettings, Settings
from corpusmill.steps import ModelFingerprints


class ClusterPool(Protocol):
    """Where array functions run; a thread where there is no pool."""

    def __call__(self, call: Callable[..., np.ndarray], *args: object) -> Awaitable[np.ndarray]: ...


class CompletionsFactory(Protocol):
    """Makes the client of the pool that serves a model."""

    def __call__(self, settings: ModelSettings) -> CompletionBackend: ...


def embedder_dim(settings: Settings) -> int:
    """Dimension of the configured embedder's vectors. Raises ConfigError where it can be neither known nor read."""
    return known_dim(settings.embedder)


def embedder_fingerprint(settings: Settings) -> str:
    """Identity of the configured embedder, without loading it."""
    return _embedder_fingerprint(settings.embedder)


def model_fingerprints(settings: Settings) -> ModelFingerprints:
    """Fingerprints of the models of every role and of the embedder; cheap."""
    roles = {role: language_model_fingerprint(settings.models.of(role)) for role in ROLES}
    return ModelFingerprints(roles=roles, embedder=embedder_fingerprint(settings))


class RunModels:
    """The models of a run in one process and one event loop (satisfies corpusmill.steps.Models).

    A role's model, the embedder and the reranker are made at first use.
    """

    def __init__(
        self,
        make_model: Callable[[Role], LanguageModel],
        make_embedder: Callable[[], Embedder],
        cluster_pool: ClusterPool | None = None,
        make_reranker: Callable[[Callable[[], LanguageModel]], Reranker] | None = None,
    ) -> None:
        """`make_reranker` is given what makes the model of the role `rerank`; None: there is no reranker."""
        self._make_model = make_model
        self._make_embedder = make_embedder
        self._pool = cluster_pool
        self._models: dict[Role, LanguageModel] = {}
        self._embedder: Embedder | None = None
        self._make_reranker = make_reranker
        self._reranker: Reranker | None = None

    def language_model(self, role: Role) -> LanguageModel:
        if role not in self._models:
            self._models[role] = self._make_model(role)
        return self._models[role]

    @property
    def embedder(self) -> Embedder:
        if self._embedder is None:
            self._embedder = self._make_embedder()
        return self._embedder

    @property
    def reranker(self) -> Reranker:
        if self._reranker is None:
            if self._make_reranker is None:
                raise ConfigError("these models have no reranker; only queries rerank")
            self._reranker = self._make_reranker(lambda: self.language_model("rerank"))
        return self._reranker

    async def cluster(self, call: Callable[..., np.ndarray], *args: object) -> np.ndarray:
        if self._pool is not None:
            return await self._pool(call, *args)
        return await asyncio.to_thread(call, *args)

    async def aclose(self) -> None:
        """Close connections and threads; the models of a run cannot be used afterwards."""
        for model in self._models.values():
            await model.aclose()
        if self._embedder is not None:
            await self._embedder.aclose()
        if self._reranker is not None:
            await self._reranker.aclose()


def build_models(
    settings: Settings,
    *,
    meter: Meter,
    cache: ResponseCacheLike | None = None,
    cluster_pool: ClusterPool | None = None,
    embedder: Embedder | None = None,
    language_model: LanguageModel | None = None,
    reranker: Reranker | None = None,
    budget: BudgetLike | None = None,
    calls_in_flight: int | None = None,
    completions: CompletionsFactory | None = None,
) -> RunModels:
    """The models of a run, each wrapped in its middlewares.

    `language_model` and `embedder` replace the configured back-ends (a pool's client, a stub) and are not closed;
    `completions` serves the roles whose back-end is `vllm`, each by the pool of its model.
    `budget` may be shared by several processes; by default it is this process's own, of the run's settings.
    `calls_in_flight` bounds the calls of all roles together (default: `ray.calls_in_flight`).
    Raises UsageError on a key that is not there, ConfigError on a back-end that cannot be had.
    """
    gate = Gate(calls_in_flight or settings.ray.calls_in_flight)
    if budget is None and (settings.run.budget is not None or settings.run.max_calls is not None):
        budget = Budget(max_cost=settings.run.budget, max_calls=settings.run.max_calls)
    made: dict[str, LanguageModel] = {}

    def make_model(role: Role) -> LanguageModel:
        own = settings.models.of(role)
        key = fingerprint(own)
        if key not in made:
            base = language_model or build_language_model(own, gate.size, completions)
            free = own.backend == "embedded" and language_model is None
            gated = GatedModel(base, gate, owned=language_model is None)
            made[key] = base if free else _wrap(gated, own, budget, cache)
        return MeteredModel(made[key], role, meter)

    def make_embedder() -> Embedder:
        own = MeteredEmbedder(embedder or build_embedder(settings.embedder), meter, owned=embedder is None)
        return own if cache is None or settings.embedder.backend == "hash" else CachedEmbedder(own, cache)

    def make_reranker(model: Callable[[], LanguageModel]) -> Reranker:
        return reranker or build_reranker(settings.rerank, model)

    models = RunModels(make_model, make_embedder, cluster_pool, make_reranker)
    for role in ROLES:  # a missing key is told before any work is done
        models.language_model(role)
    return models


def build_language_model(
    settings: ModelSettings, calls_in_flight: int = 16, completions: CompletionsFactory | None = None
) -> LanguageModel:
    """The bare back-end, with no middleware."""
    if settings.backend == "embedded":
        return EmbeddedModel()
    if settings.backend == "openai":
        return StructuredModel(_endpoints(settings, calls_in_flight), settings)
    if completions is not None:
        return StructuredModel(completions(settings), settings)
    raise ConfigError(
        f"backend {settings.backend!r} is served by a pool of Ray, which this process has not; start "
        f"`vllm serve {settings.model}` and set backend 'openai' with its base_url; choices here: embedded, openai"
    )


def _endpoints(settings: ModelSettings, calls_in_flight: int) -> CompletionBackend:
    from corpusmill.models.endpoints import Place, SpreadCompletions
    from corpusmill.models.openai import OpenAICompletions

    if not settings.endpoints:
        return OpenAICompletions(settings, calls_in_flight)
    places = []
    for share in settings.endpoints:
        own = {"base_url": share.base_url, "api_key_env": share.api_key_env, "endpoints": ()}
        backend = OpenAICompletions(settings.model_copy(update=own), calls_in_flight)
        places.append(Place(share.base_url.rstrip("/"), share.weight, backend))
    return SpreadCompletions(places)


def _wrap(
    model: LanguageModel,
    settings: ModelSettings,
    budget: BudgetLike | None,
    cache: ResponseCacheLike | None,
) -> LanguageModel:
    """Outermost first: cache, retry, budget, rate limit, then the gated model.

    A cached answer takes no slot, no money and no wait; an attempt that failed is paid for again.
    """
    if settings.requests_per_minute or settings.tokens_per_minute:
        model = RateLimitedModel(model, settings.requests_per_minute, settings.tokens_per_minute)
    if budget is not None:
        model = BudgetedModel(model, budget, price_in=settings.price_in, price_out=settings.price_out)
    model = RetryingModel(model, settings.retries)
    return CachedModel(model, cache) if cache is not None else model
