"""What FlexStructRAG's document steps will ask of their models, from chunk sizes alone."""

from collections.abc import Sequence

from corpusmill.estimate import CallEstimate, MethodEstimate
from corpusmill.methods.flexstructrag.settings import FlexSettings
from corpusmill.methods.flexstructrag.windows import prefix
from corpusmill.settings import Settings

# Means over encyclopedic and technical English; every one is an assumption that the run report checks afterwards.
INSTRUCTION_TOKENS = 350  # instruction and schema of one prompt
TOKENS_PER_STATEMENT = 22  # of source text for each extracted statement
STATEMENT_OUTPUT_TOKENS = 75  # JSON of one statement: text, quote, entity names
ENTITIES_PER_STATEMENT = 1.4  # new local entities for each statement
DEGREE_TAIL = 1.8  # share of a text's entities with hyperdegree > t falls as (t + 1) ** -DEGREE_TAIL
STATEMENT_TOKENS = 22  # of one statement in the prompt of a summary or an anchor call
SUMMARY_OUTPUT_TOKENS = 110
EDGES_PER_ANCHOR = 6.0
EDGE_OUTPUT_TOKENS = 45


def estimate_calls(settings: FlexSettings, chunk_tokens: Sequence[Sequence[int]]) -> MethodEstimate:
    """One extraction call a chunk; a summary for each entity over tau_s; a relation call for each over tau_e."""
    windows = sum(len(chunks) for chunks in chunk_tokens)
    statements = sum(sum(chunks) for chunks in chunk_tokens) / TOKENS_PER_STATEMENT
    entities = statements * ENTITIES_PER_STATEMENT
    summaries = sum(_over(settings.tau_s, chunks) for chunks in chunk_tokens)
    anchors = sum(_over(settings.tau_e, chunks) for chunks in chunk_tokens)
    seen = sum(window_tokens(settings, chunks) for chunks in chunk_tokens)
    summary_in = INSTRUCTION_TOKENS + STATEMENT_TOKENS * (settings.tau_s + 1) * 2
    anchor_in = INSTRUCTION_TOKENS + STATEMENT_TOKENS * (settings.tau_e + 1) * 4
    calls = (
        CallEstimate(
            "extract", "extract", windows, seen + windows * INSTRUCTION_TOKENS, statements * STATEMENT_OUTPUT_TOKENS
        ),
        CallEstimate("summaries", "summarise", summaries, summaries * summary_in, summaries * SUMMARY_OUTPUT_TOKENS),
        CallEstimate(
            "relations", "extract", anchors, anchors * anchor_in, anchors * EDGES_PER_ANCHOR * EDGE_OUTPUT_TOKENS
        ),
    )
    texts = windows + statements + entities + anchors * EDGES_PER_ANCHOR
    note = (
        f"assumed: a statement for every {TOKENS_PER_STATEMENT} tokens, {ENTITIES_PER_STATEMENT:g} new entities for "
        "each; the summaries of merged entities come on top"
    )
    return MethodEstimate(calls, texts, (note,))


def query_calls(settings: Settings) -> int:
    """Model calls of one question, the answer aside: one names what to look up."""
    return 1


def window_tokens(settings: FlexSettings, chunks: Sequence[int]) -> int:
    """Tokens of document text in all of a document's prompts: each chunk with the chunks before it in its window."""
    total = 0
    for i, size in enumerate(chunks, start=1):
        total += size + sum(chunks[j - 1] for j in prefix(i, settings.g_max, settings.g_overlap))
    return total


def _over(threshold: int, chunks: Sequence[int]) -> float:
    """Entities of one text in more than `threshold` statements; none if it has too few statements."""
    statements = sum(chunks) / TOKENS_PER_STATEMENT
    if statements <= threshold:
        return 0.0
    return statements * ENTITIES_PER_STATEMENT * float(threshold + 1) ** -DEGREE_TAIL
