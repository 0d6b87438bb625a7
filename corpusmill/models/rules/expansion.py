"""Other wordings of a question without a model: parts of it that a search may do better with."""

from typing import NamedTuple

import regex

from corpusmill.models.rules.answering import query_entities
from corpusmill.models.rules.lexicon import ASKING, STOP_WORDS
from corpusmill.names import normal_form

_WORD = regex.compile(r"[\p{L}\p{M}\p{N}][\p{L}\p{M}\p{N}'’._-]*")
_EDGES = " \t\n,;:.?!，；：。？！、،؛؟।"
# What opens a further clause: a mark, a conjunction, a relative. Chinese and Japanese clauses end with a mark.
_CLAUSE = regex.compile(
    r"[;,，；、،؛](?=\s*\S)|(?<=\s)(?:and|but|or|that|while)(?=\s)|(?<=\s)(?=(?:which|whom?|whose|where|when)\s)",
    regex.IGNORECASE | regex.V1,
)
_MIN_CLAUSE = 2  # content words that a clause needs to be searched for by itself
_UNSPACED = regex.compile(r"[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}\p{Script=Khmer}]")


class Rewordings(NamedTuple):
    """Each may be empty, where the question gives no such part or it is the whole question."""

    content: str  # the words that carry meaning, in order
    clause: str  # the last clause of several
    names: str  # the things named, in order


def rewordings(question: str) -> Rewordings:
    """Parts of a question, in its own words. Deterministic."""
    return Rewordings(_content(question), _last_clause(question), " ".join(query_entities(question)))


def _content(question: str) -> str:
    """The words of the question that are no function words; empty where none or all are."""
    words = _WORD.findall(question)
    kept = [word for word in words if _carries(word)]
    return " ".join(kept) if 0 < len(kept) < len(words) else ""


def _carries(word: str) -> bool:
    form = normal_form(word)
    return bool(form) and form not in STOP_WORDS and form not in ASKING


def _last_clause(question: str) -> str:
    """The last clause with enough to search for; empty in a question of one clause."""
    parts = [part.strip(_EDGES) for part in _CLAUSE.split(question.strip(_EDGES))]
    for part in reversed(parts[1:]):
        words = [word for word in _WORD.findall(part) if _carries(word)]
        if len(words) >= _MIN_CLAUSE or (words and _UNSPACED.search(part) and len(part) >= 4):
            return part
    return ""
