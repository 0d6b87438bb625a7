"""Fixed windows with overlap: the chunks of methods that read no structure (ContextRAG, section 4.1)."""

from bisect import bisect_left

from corpusmill.segmentation.partition import Piece
from corpusmill.segmentation.sentences import trimmed
from corpusmill.segmentation.tokens import Tokenizer

SLIDING_VERSION = 1


def windows(text: str, tokenizer: Tokenizer, size: int, overlap: int) -> list[Piece]:
    """Windows of `size` tokens, each beginning `size - overlap` tokens after the one before, trimmed, in order.

    Every token is in one of them at least. The last may be shorter, and is there only if it holds a token of its own.
    Raises ValueError unless 0 <= overlap < size.
    """
    if not 0 <= overlap < size:
        raise ValueError(f"windows need 0 <= overlap < size, got {overlap} and {size}")
    starts = tokenizer.starts(text)
    found: list[Piece] = []
    for first in range(0, len(starts), size - overlap):
        last = min(first + size, len(starts))
        span = trimmed(text, starts[first], starts[last] if last < len(starts) else len(text))
        if span is not None:
            found.append(Piece(span, bisect_left(starts, span.end) - bisect_left(starts, span.start)))
        if last == len(starts):
            break
    return found
