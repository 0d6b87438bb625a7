"""Rerankers by name. Identity is known without loading a model."""

from collections.abc import Callable

from corpusmill.models.contracts import LanguageModel, Reranker
from corpusmill.settings import RerankSettings


def rerank_calls(settings: RerankSettings, passages: int) -> int:
    """How many language-model or endpoint calls reranking so many passages takes; 0 where it runs in this process."""
    return -(-passages // settings.batch_size) if settings.backend in ("endpoint", "llm") else 0


def build_reranker(settings: RerankSettings, model: Callable[[], LanguageModel]) -> Reranker:
    """The configured reranker; a local model is loaded at first use. `model` makes that of the role `rerank`.

    Raises ConfigError on a package that is not installed or a model that cannot rerank, UsageError on a bad URL.
    """
    if settings.backend == "embedded":
        from corpusmill.models.rerank.embedded import EmbeddedReranker

        return EmbeddedReranker()
    if settings.backend == "torch":
        from corpusmill.models.rerank.torch_local import TorchReranker

        return TorchReranker(settings)
    if settings.backend == "endpoint":
        from corpusmill.models.rerank.remote import EndpointReranker

        return EndpointReranker(settings)
    from corpusmill.models.rerank.graded import GradingReranker

    return GradingReranker(settings, model())
