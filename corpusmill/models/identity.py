"""The identity of a configured language model; nothing is loaded."""

from corpusmill.hashing import fingerprint
from corpusmill.models.embedded import EmbeddedModel
from corpusmill.settings import ModelSettings


def language_model_fingerprint(settings: ModelSettings) -> str:
    """Covers the model and its sampling.

    The endpoint is left out: replicas move between hosts and ports. Two endpoints that serve different weights must
    give them different names.
    """
    if settings.backend == "embedded":
        return EmbeddedModel().fingerprint
    return fingerprint(
        {
            "backend": settings.backend,
            "model": settings.model,
            "temperature": settings.temperature,
            "seed": settings.seed,
            "structured": settings.structured,
            "max_output_tokens": settings.max_output_tokens,
        }
    )
