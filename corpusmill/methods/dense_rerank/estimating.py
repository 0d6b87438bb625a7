"""What dense-rerank will ask of models while indexing: a vector for each chunk, and no calls."""

from collections.abc import Sequence

from corpusmill.estimate import MethodEstimate
from corpusmill.methods.dense_rerank.settings import DenseRerankSettings
from corpusmill.models.rerank import rerank_calls
from corpusmill.settings import Settings


def estimate_calls(settings: DenseRerankSettings, chunk_tokens: Sequence[Sequence[int]]) -> MethodEstimate:
    """One text to embed for each chunk; the reranker is asked by queries alone."""
    return MethodEstimate((), sum(len(chunks) for chunks in chunk_tokens))


def query_calls(settings: Settings) -> int:
    """Calls of the reranker for one question; an embedded or local one takes none."""
    own = settings.method("dense-rerank")
    assert isinstance(own, DenseRerankSettings)
    return rerank_calls(settings.rerank, own.candidates)
