"""Pairwise relations between entities that one statement names."""

from collections.abc import Collection, Sequence

import regex

from corpusmill.models.rules.lexicon import ENGLISH
from corpusmill.models.rules.types import Relation, Statement
from corpusmill.names import normal_form

MAX_ENTITIES = 8  # of one statement: a list of fifty names relates nothing to anything
_MAX_PHRASE_WORDS = 6
_CLAUSE_END = regex.compile(r"[;:.!?()\[\]\n—–。！？；：]")
_WORD = regex.compile(r"[\p{L}\p{M}\p{N}'’-]+")


def relations(statements: Sequence[Statement], entities: Collection[str] | None = None) -> list[Relation]:
    """Each pair of entities of each statement once, in order of mention; equal (source, target, text) once.

    `entities` (any surface forms) restricts the pairs to those with both ends among them. The text is the words
    between the two where they are few and of one clause ("Paris: capital of: France" as one phrase with its ends),
    else the statement.
    """
    allowed = None if entities is None else {normal_form(name) for name in entities}
    out: dict[tuple[str, str, str], Relation] = {}
    for index, statement in enumerate(statements):
        names = [n for n in statement.entities if allowed is None or normal_form(n) in allowed][:MAX_ENTITIES]
        for i, source in enumerate(names):
            for target in names[i + 1 :]:
                if normal_form(source) == normal_form(target):
                    continue
                text = relation_text(statement.text, source, target)
                key = (normal_form(source), normal_form(target), normal_form(text))
                out.setdefault(key, Relation(source, target, text, index))
    return list(out.values())


def relation_text(sentence: str, source: str, target: str) -> str:
    """`source` ... `target` as the sentence says it, if the words between are a short phrase; else the sentence."""
    start = sentence.find(source)
    end = sentence.find(target, start + len(source)) if start >= 0 else -1
    if end < 0:
        return sentence
    between = sentence[start + len(source) : end]
    words = _WORD.findall(between)
    said = any(word.lower() not in ENGLISH for word in words)
    if _CLAUSE_END.search(between) or len(words) > _MAX_PHRASE_WORDS or not said:
        return sentence
    return f"{source}{between}{target}"
