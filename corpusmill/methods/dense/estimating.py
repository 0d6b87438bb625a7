"""What dense will ask of models: a vector for each chunk, and no calls."""

from collections.abc import Sequence

from corpusmill.estimate import MethodEstimate
from corpusmill.methods.dense.settings import DenseSettings
from corpusmill.settings import Settings


def estimate_calls(settings: DenseSettings, chunk_tokens: Sequence[Sequence[int]]) -> MethodEstimate:
    """One text to embed for each chunk."""
    return MethodEstimate((), sum(len(chunks) for chunks in chunk_tokens))


def query_calls(settings: Settings) -> int:
    """Model calls of one question, the answer aside: none."""
    return 0
