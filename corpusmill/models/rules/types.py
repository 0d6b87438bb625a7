"""What the rules return. Offsets are code points of the text that the rule was given."""

from dataclasses import dataclass
from typing import NamedTuple

from corpusmill.spans import Span

RULES_VERSION = 1  # part of the embedded model's fingerprint


class Mention(NamedTuple):
    """An entity's name where it stands; `name` is the text of the span without surrounding marks."""

    span: Span
    name: str


@dataclass(frozen=True)
class Statement:
    """A sentence taken as one relational statement: `text` is `span` of the source with white space collapsed.

    `entities` are the names mentioned in it, distinct by normal form, in order of mention.
    """

    text: str
    span: Span
    entities: tuple[str, ...]


@dataclass(frozen=True)
class Relation:
    """Two entities of one statement; `text` says how they are related, `statement` is the index of the statement."""

    source: str
    target: str
    text: str
    statement: int


@dataclass(frozen=True)
class AnswerSentence:
    """A sentence of the answer: `span` of the evidence at index `evidence`, verbatim."""

    text: str
    evidence: int
    span: Span
    score: float


@dataclass(frozen=True)
class Answer:
    """An extractive answer; no sentences: the evidence does not speak of what was asked."""

    sentences: tuple[AnswerSentence, ...]

    @property
    def answered(self) -> bool:
        return bool(self.sentences)
