"""The rules of the embedded back-end: pure and deterministic functions that do a task's work without a model.

English well, any script sensibly. Tasks call them from their `rule`; a change of behaviour raises `RULES_VERSION`.
"""

from corpusmill.models.rules.answering import answer, query_entities
from corpusmill.models.rules.entities import entity_spans
from corpusmill.models.rules.expansion import Rewordings, rewordings
from corpusmill.models.rules.relations import relations
from corpusmill.models.rules.statements import statements
from corpusmill.models.rules.summaries import summary
from corpusmill.models.rules.types import RULES_VERSION, Answer, AnswerSentence, Mention, Relation, Statement

__all__ = [
    "RULES_VERSION",
    "Answer",
    "AnswerSentence",
    "Mention",
    "Relation",
    "Rewordings",
    "Statement",
    "answer",
    "entity_spans",
    "query_entities",
    "relations",
    "rewordings",
    "statements",
    "summary",
]
