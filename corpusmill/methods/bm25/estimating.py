"""What bm25 will ask of models: nothing."""

from collections.abc import Sequence

from corpusmill.estimate import MethodEstimate
from corpusmill.methods.bm25.settings import Bm25Settings
from corpusmill.settings import Settings


def estimate_calls(settings: Bm25Settings, chunk_tokens: Sequence[Sequence[int]]) -> MethodEstimate:
    """No calls and no texts to embed, whatever the corpus."""
    return MethodEstimate(())


def query_calls(settings: Settings) -> int:
    """Model calls of one question, the answer aside: none."""
    return 0
