"""What dense-rerank will ask of models while indexing: a vector for each chunk, and no calls."""

from collections.abc import Sequence

from corpusmill.estimate import MethodEstimate
from corpusmill.methods.dense_rerank.settings import DenseRerankSettings


def estimate_calls(settings: DenseRerankSettings, chunk_tokens: Sequence[Sequence[int]]) -> MethodEstimate:
    """One text to embed for each chunk; the reranker is asked by queries alone."""
    return MethodEstimate((), sum(len(chunks) for chunks in chunk_tokens))
