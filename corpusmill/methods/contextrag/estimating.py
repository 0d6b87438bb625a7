"""What ContextRAG will ask of its models: at most `summaries` calls, whatever the corpus."""

from collections.abc import Sequence

from corpusmill.estimate import CallEstimate, MethodEstimate
from corpusmill.methods.contextrag.settings import ContextSettings
from corpusmill.models.rerank import rerank_calls
from corpusmill.settings import Settings

INSTRUCTION_TOKENS = 250  # instruction and schema of one prompt
SUMMARY_OUTPUT_TOKENS = 200


def estimate_calls(settings: ContextSettings, chunk_tokens: Sequence[Sequence[int]]) -> MethodEstimate:
    """One summary for each of the most populated clusters of level 0."""
    chunks = sum(len(own) for own in chunk_tokens)
    calls = chunks / settings.points_per_centroid  # a cluster for so many chunks, up to the bound
    most = float(min(settings.summaries, settings.levels[0]))
    tokens = calls * (INSTRUCTION_TOKENS + settings.summary_tokens)
    summaries = CallEstimate("cluster summaries", "summarise", calls, tokens, calls * SUMMARY_OUTPUT_TOKENS, most)
    note = "the topology takes no model call; summaries are of the whole corpus and made anew when it changes"
    return MethodEstimate((summaries,), chunks + calls + min(chunks, settings.probes), (note,))


def query_calls(settings: Settings) -> int:
    """Model calls of one question in the mode `hybrid`, the answer aside: the wordings in one call, and those of the
    reranker where it is no local model."""
    own = settings.method("contextrag")
    assert isinstance(own, ContextSettings)
    model = settings.models.of("plan").backend != "embedded"
    wordings = own.reformulations == "always" or (own.reformulations == "auto" and model)
    return int(wordings) + (rerank_calls(settings.rerank, own.pool) if own.rerank else 0)
