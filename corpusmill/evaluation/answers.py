"""Answers against gold answers: exact match, token F1, containment and ROUGE-L, the best over the gold answers.

Words are compared as SQuAD does: folded, without punctuation and the English articles. A run of a script that is
written without spaces counts by the shortest n-grams that the lexical index has for it: characters (Han, Kana), pairs
of syllables (Hangul) or of clusters (Thai and its like).
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import regex

from corpusmill.retrieval.tokenizer import tokens

_MARKS = re.compile(r" (?:\[\d+\])+(?=\s|$)")
_ASCII_SYMBOLS = frozenset("$+<=>^`|~")
_ARTICLES = frozenset({"a", "an", "the"})
_UNSPACED = regex.compile(
    r"[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}"
    r"\p{Script=Thai}\p{Script=Lao}\p{Script=Khmer}\p{Script=Myanmar}々〆ー]"
)
_HAN = regex.compile(r"[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}々〆ー]")


@dataclass(frozen=True)
class AnswerScores:
    """Each in [0, 1]. `contains`: some gold answer's tokens stand in the answer, in a row."""

    exact_match: float
    f1: float
    rouge_l: float
    contains: float


def score_answer(answer: str, gold: Sequence[str]) -> AnswerScores:
    """The best score over the gold answers, for each measure by itself. Raises ValueError without a gold answer."""
    if not gold:
        raise ValueError("an answer can only be scored against gold answers, got none")
    own = answer_tokens(answer)
    theirs = [answer_tokens(one) for one in gold]
    return AnswerScores(
        exact_match=float(any(own == one for one in theirs)),
        f1=max(token_f1(own, one) for one in theirs),
        rouge_l=_rouge_l(own, theirs),
        contains=float(any(_contains(own, one) for one in theirs)),
    )


def plain_answer(answer: str) -> str:
    """An answer without its citation marks, as `[1][2]` after a sentence."""
    return _MARKS.sub("", answer).strip()


def answer_tokens(text: str) -> tuple[str, ...]:
    """The tokens by which two answers are compared, in order; of a text of articles or signs alone, the text."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    words = "".join(ch for ch in folded if not _is_punctuation(ch)).split()
    out: list[str] = []
    for word in words:
        if _UNSPACED.search(word):
            out.extend(token for token in tokens(word) if _is_shortest(token))
        elif word not in _ARTICLES:
            out.append(word)
    return tuple(out or folded.split())


def token_f1(answer: Sequence[str], gold: Sequence[str]) -> float:
    """Harmonic mean of precision and recall over tokens, repeats counted; two empty sides agree."""
    if not answer or not gold:
        return float(not answer and not gold)
    common = sum((Counter(answer) & Counter(gold)).values())
    return 2 * common / (len(answer) + len(gold))


def _is_punctuation(ch: str) -> bool:
    return ch in _ASCII_SYMBOLS or unicodedata.category(ch).startswith("P")


def _is_shortest(token: str) -> bool:
    """False for the n-grams of an unspaced run that repeat what its shorter ones say."""
    if not _UNSPACED.search(token):
        return True
    clusters = regex.findall(r"\X", token)
    return len(clusters) == 1 if _HAN.search(token) else len(clusters) <= 2


def _contains(answer: Sequence[str], gold: Sequence[str]) -> bool:
    width = len(gold)
    return bool(width) and any(answer[at : at + width] == gold for at in range(len(answer) - width + 1))


def _rouge_l(answer: Sequence[str], gold: Sequence[Sequence[str]]) -> float:
    scores = _scorer().score_multi([" ".join(one) for one in gold], " ".join(answer))
    return float(scores["rougeL"].fmeasure)


class _Spaced:
    """The tokenizer of tokens that are joined by spaces."""

    def tokenize(self, text: str) -> list[str]:
        return text.split()


@cache
def _scorer() -> Any:
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rougeL"], tokenizer=_Spaced())
