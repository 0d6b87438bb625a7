"""How much of a question a passage says, by words alone, in any script."""

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
    wanted = {word for word in wanted if word not in STOP_WORDS and word not in ASKING} or wanted
    seen = Counter(word for own in held for word in own & wanted)
    weight = {word: math.log1p((len(held) - seen[word] + 0.5) / (seen[word] + 0.5)) for word in wanted}
    total = math.fsum(weight.values())
    if not total:
        return np.zeros(len(passages), np.float32)
    return np.array([math.fsum(weight[word] for word in own & wanted) / total for own in held], np.float32)
