"""Embedders by name. Dimension and identity are known without loading a model."""

from corpusmill.errors import ConfigError
from corpusmill.hashing import fingerprint
from corpusmill.models.contracts import Embedder
from corpusmill.settings import EmbedderSettings

HASH_DIM = 256
MINILM_DIM = 384
_OPENAI_DIMS = {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072, "text-embedding-ada-002": 1536}


def known_dim(settings: EmbedderSettings) -> int:
    """Dimension of the vectors. Raises ConfigError where `embedder.dim` must say it, or says what cannot be."""
    if settings.backend == "minilm":
        if settings.dim not in (None, MINILM_DIM):
            raise ConfigError(f"embedder.dim is {settings.dim}, but minilm makes {MINILM_DIM} dimensions")
        return MINILM_DIM
    if settings.backend == "hash":
        return settings.dim or HASH_DIM
    if settings.dim is not None:
        return settings.dim
    if settings.backend == "openai" and settings.model in _OPENAI_DIMS:
        return _OPENAI_DIMS[settings.model]
    raise ConfigError(f"embedder.dim must be given for the {settings.backend} embedder {settings.model!r}")


def embedder_fingerprint(settings: EmbedderSettings) -> str:
    """Identity of the embedder: model file or name, dimension, windows, prefixes, type of the weights where one is set.
    The endpoint is left out."""
    identity = {
        "backend": settings.backend,
        "model": _model_identity(settings),
        "dim": known_dim(settings),
        "max_tokens": settings.max_tokens,
        "prefixes": [settings.query_prefix, settings.passage_prefix],
    }
    if settings.dtype is not None:
        identity["dtype"] = settings.dtype
    return fingerprint(identity)


def build_embedder(settings: EmbedderSettings, threads: int | None = None) -> Embedder:
    """The configured embedder; its model is loaded at first use.

    `threads` bounds the CPU cores that it takes (default: all). Raises ConfigError on a package that is not
    installed, UsageError on a key that is not there.
    """
    if settings.backend == "minilm":
        from corpusmill.models.embedders.minilm import MiniLMEmbedder

        return MiniLMEmbedder(settings, threads)
    if settings.backend == "hash":
        from corpusmill.models.embedders.hashed import HashEmbedder

        return HashEmbedder(settings)
    if settings.backend == "openai":
        from corpusmill.models.embedders.remote import OpenAIEmbedder

        return OpenAIEmbedder(settings)
    from corpusmill.models.embedders.torch_local import TorchEmbedder

    return TorchEmbedder(settings)


def _model_identity(settings: EmbedderSettings) -> str | None:
    if settings.backend == "minilm":
        from corpusmill.models.embedders.minilm import model_identity

        return model_identity()
    if settings.backend == "hash":
        from corpusmill.models.embedders.hashed import HASH_VERSION

        return f"hash-{HASH_VERSION}"
    if not settings.model:
        raise ConfigError(f"embedder.backend {settings.backend!r} needs an embedder.model")
    return settings.model
