"""The identity of a configured language model; nothing is loaded."""

import re

from corpusmill.hashing import fingerprint
from corpusmill.models.embedded import EmbeddedModel
from corpusmill.settings import ModelSettings


def language_model_fingerprint(settings: ModelSettings) -> str:
    """Covers the model and its sampling; of a vLLM engine also what changes its arithmetic.

    The endpoint is left out: replicas move between hosts and ports. Two endpoints that serve different weights must
    give them different names.
    """
    if settings.backend == "embedded":
        return EmbeddedModel().fingerprint
    identity = {
        "backend": settings.backend,
        "model": settings.model,
        "temperature": settings.temperature,
        "seed": settings.seed,
        "structured": settings.structured,
        "max_output_tokens": settings.max_output_tokens,
    }
    if settings.backend == "vllm":
        del identity["structured"]  # the engine's own guided decoding, whatever endpoints are asked for
        identity |= {name: getattr(settings.vllm, name) for name in ("revision", "quantization", "dtype")}
    return fingerprint(identity)


def application_name(settings: ModelSettings) -> str:
    """The Ray Serve application of a `vllm` back-end: one for each engine, whatever a role samples with.

    `vllm.application` where it is given; else made from the model and its engine's settings, those that say how many
    replicas run and how long left out.
    """
    own = settings.vllm
    if own.application:
        return own.application
    engine = own.model_dump(
        exclude={"application", "cpus", "min_replicas", "max_replicas", "max_queued_requests"}
        | {"start_timeout_s", "keep_s"}
    )
    slug = re.sub(r"[^a-z0-9]+", "-", str(settings.model).lower()).strip("-")[-40:]
    return f"corpusmill-{slug}-{fingerprint({'model': settings.model, 'engine': engine})[:8]}"
