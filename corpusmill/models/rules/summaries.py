"""Extractive summaries: the sentences nearest to the centre of what all the texts say."""

import math
from collections import Counter
from collections.abc import Sequence

from corpusmill.models.rules.lexicon import STOP_WORDS
from corpusmill.retrieval.tokenizer import tokens
from corpusmill.segmentation.sentences import sentences
from corpusmill.segmentation.tokens import get_tokenizer

MAX_SENTENCES = 2_000  # considered; further ones cannot change what a few hundred tokens say
_REDUNDANT = 0.6  # share of a sentence's content words that one chosen sentence already has


def summary(texts: Sequence[str], limit_tokens: int) -> str:
    """Sentences of `texts` in their order, together at most `limit_tokens` words (the first word of a text that is
    longer than all of it may be cut). An empty string where there is nothing to say.

    A sentence's score is the mean weight of its distinct content words, where a word weighs by the sentences that hold
    it (SumBasic, Nenkova and Vanderwende 2005, with the logarithm); sentences that repeat a chosen one are passed over.
    """
    if limit_tokens < 1:
        raise ValueError(f"limit_tokens must be at least 1, got {limit_tokens}")
    counter = get_tokenizer("words")
    pool = _distinct_sentences(texts)
    if not pool:
        return ""
    words = [frozenset(t for t in tokens(sentence) if t not in STOP_WORDS) for sentence in pool]
    seen = Counter(word for own in words for word in own)
    order = sorted(range(len(pool)), key=lambda i: (-_score(words[i], seen, i, len(pool)), i))
    chosen: list[int] = []
    room = limit_tokens
    for i in order:
        cost = counter.count(pool[i])
        if cost <= room and not any(_repeats(words[i], words[j]) for j in chosen):
            chosen.append(i)
            room -= cost
        if room < 4:
            break
    if not chosen:
        return _cut(pool[order[0]], limit_tokens)
    return " ".join(pool[i] for i in sorted(chosen))


def _distinct_sentences(texts: Sequence[str]) -> list[str]:
    kept: dict[str, None] = {}
    for text in texts:
        for span in sentences(text):
            kept.setdefault(" ".join(span.of(text).split()))
            if len(kept) >= MAX_SENTENCES:
                return list(kept)
    return list(kept)


def _score(own: frozenset[str], seen: Counter[str], place: int, total: int) -> float:
    """Mean weight of the words; early sentences a little before late ones, short fragments after whole sentences."""
    if not own:
        return -1.0
    mean = sum(math.log1p(seen[word]) for word in sorted(own)) / len(own)
    return mean * (1.0 + 0.1 * (1 - place / total)) * min(1.0, len(own) / 4)


def _repeats(own: frozenset[str], other: frozenset[str]) -> bool:
    return bool(own) and len(own & other) >= _REDUNDANT * len(own)


def _cut(sentence: str, limit_tokens: int) -> str:
    starts = get_tokenizer("words").starts(sentence)
    return sentence if len(starts) <= limit_tokens else sentence[: starts[limit_tokens]].rstrip()
