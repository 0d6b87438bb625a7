"""What words alone tell of passages, in any script: how much of a question each says, and which share their subject."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from corpusmill.models.rules.lexicon import ASKING, STOP_WORDS
from corpusmill.retrieval.tokenizer import tokens


def coverage(question: str, passages: Sequence[str]) -> np.ndarray:
    """float32 [len(passages)] in [0, 1]: the share of the question's words that a passage holds.

    Function words do not count. A word weighs by its rarity among the passages at hand, so that what all of them say
    tells nothing apart.
    """
    held = [frozenset(tokens(passage)) for passage in passages]
    wanted = set(tokens(question))
    wanted = {word for word in wanted if not is_function_word(word)} or wanted
    seen = Counter(word for own in held for word in own & wanted)
    weight = {word: rarity(seen[word], len(held)) for word in sorted(wanted)}
    total = math.fsum(weight.values())
    if not total:
        return np.zeros(len(passages), np.float32)
    return np.array([math.fsum(weight[word] for word in own & wanted) / total for own in held], np.float32)


def kinship(question: str, passages: Sequence[str], lead: int) -> np.ndarray:
    """float32 [len(passages)] in [0, 1]: how much a passage shares with passage `lead` beyond the question's words.

    The weight of the shared words over the geometric mean of the weights of both; `lead` itself has 0. A passage that
    the second step of a question needs is often about a thing that the first names and the question does not.
    """
    asked = frozenset(tokens(question))
    own = [frozenset(word for word in tokens(text) if not is_function_word(word)) - asked for text in passages]
    seen = Counter(word for words in own for word in words)
    weight = {word: rarity(count, len(own)) for word, count in seen.items()}
    totals = [math.fsum(weight[word] for word in words) for words in own]
    out = np.zeros(len(passages), np.float32)
    for place, words in enumerate(own):
        if place != lead and totals[place] and totals[lead]:
            shared = math.fsum(weight[word] for word in words & own[lead])
            out[place] = shared / math.sqrt(totals[place] * totals[lead])
    return out


def is_function_word(token: str) -> bool:
    return token in STOP_WORDS or token in ASKING


def rarity(count: int, total: int) -> float:
    """Lucene's inverse document frequency of what stands in `count` of `total` passages."""
    return math.log1p((total - count + 0.5) / (count + 0.5))
