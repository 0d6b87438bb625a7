"""Question sets in the BEIR layout: corpus.jsonl, queries.jsonl, and qrels.tsv or qrels/test.tsv.

A corpus line has `_id`, a query line `_id`, `text` and perhaps `answers`; a line of the judgements is query id,
document id and grade, separated by tabs, under a heading or not. A grade above 0 makes a document gold.
"""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from corpusmill.errors import UsageError
from corpusmill.sources.encodings import normalised

QRELS = ("qrels.tsv", "qrels/test.tsv")
_NAMED = 5  # ids that a message names


@dataclass(frozen=True)
class Question:
    """`grades`: document id -> grade. `answers` are all right; none: the set has no answer for it."""

    id: str
    text: str
    grades: Mapping[str, int]
    answers: tuple[str, ...] = ()

    @cached_property
    def gold(self) -> frozenset[str]:
        return frozenset(document for document, grade in self.grades.items() if grade > 0)


@dataclass(frozen=True)
class QuestionSet:
    """Questions with gold documents, in the order of their file; `warnings` say what of the files was left out."""

    folder: Path
    questions: tuple[Question, ...]
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def corpus(self) -> Path:
        return self.folder / "corpus.jsonl"

    @property
    def answered(self) -> int:
        """How many questions have an answer."""
        return sum(bool(question.answers) for question in self.questions)

    def drawn(self, count: int, seed: int) -> "QuestionSet":
        """At most `count` of the questions, drawn with `seed`, in the order of their file."""
        if count >= len(self.questions):
            return self
        kept = sorted(random.Random(seed).sample(range(len(self.questions)), count))
        return replace(self, questions=tuple(self.questions[i] for i in kept))


def load_questions(folder: Path) -> QuestionSet:
    """Read a set. Raises UsageError naming the file, and the line where one is at fault.

    Judgements that name an unknown question or document are left out and counted, as are questions without gold.
    """
    qrels = _qrels_file(folder)
    asked = _queries(folder / "queries.jsonl")
    grades = _grades(qrels)
    named = {document for own in grades.values() for document in own}
    known = {document for document, _ in corpus_rows(folder / "corpus.jsonl") if document in named}
    warnings = []
    if strange := [query for query in grades if query not in asked]:
        warnings.append(
            f"{qrels} judges {counted(len(strange), 'question')} that queries.jsonl does not have ({listed(strange)}): "
            "left out"
        )
    if lost := sorted(named - known):
        warnings.append(
            f"{qrels} names {counted(len(lost), 'document')} that corpus.jsonl does not have ({listed(lost)}): left "
            "out; what belongs to the set needs a line there, and a place in the index"
        )
    questions, without = [], []
    for query, (text, answers) in asked.items():
        own = {document: grade for document, grade in grades.get(query, {}).items() if document in known}
        question = Question(query, text, own, answers)
        if question.gold:
            questions.append(question)
        else:
            without.append(query)
    if without and questions:
        warnings.append(f"{counted(len(without), 'question')} without a gold document ({listed(without)}): not asked")
    if not questions:
        why = f": {'; '.join(warnings)}" if warnings else ""
        raise UsageError(f"no question of {folder / 'queries.jsonl'} has a gold document in {qrels}{why}")
    return QuestionSet(folder, tuple(questions), tuple(warnings))


def corpus_rows(corpus: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(id, line) of a corpus file, one line in memory at a time. Raises UsageError naming file and line."""
    for place, row in _json_lines(corpus):
        yield _id(row, place), row


def listed(ids: Sequence[str]) -> str:
    """The first ids, and how many more there are."""
    more = f" and {len(ids) - _NAMED:,} more" if len(ids) > _NAMED else ""
    return ", ".join(one if len(one) <= 60 else one[:60] + "…" for one in ids[:_NAMED]) + more


def counted(number: int, thing: str) -> str:
    """`1 document`, `1,890 documents`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def _qrels_file(folder: Path) -> Path:
    if not folder.is_dir():
        raise UsageError(
            f"{folder} is not a folder; a question set is one with corpus.jsonl, queries.jsonl and {' or '.join(QRELS)}"
        )
    for name in ("corpus.jsonl", "queries.jsonl"):
        if not (folder / name).is_file():
            raise UsageError(f"{folder} has no {name}; it needs corpus.jsonl, queries.jsonl and {' or '.join(QRELS)}")
    for name in QRELS:
        if (folder / name).is_file():
            return folder / name
    others = sorted(str(path.relative_to(folder)) for path in folder.glob("qrels/*.tsv"))
    have = f"; it has {', '.join(others)}: copy the one to evaluate on to qrels.tsv" if others else ""
    raise UsageError(f"{folder} has neither {' nor '.join(QRELS)}{have}")


def _queries(path: Path) -> dict[str, tuple[str, tuple[str, ...]]]:
    """id -> (text, answers)."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for place, row in _json_lines(path):
        query = _id(row, place)
        text = row.get("text")
        if not isinstance(text, str) or not text.strip():
            raise UsageError(f"{place}: question {query} has no text in `text`")
        if query in found:
            raise UsageError(f"{place}: a second question has the id {query!r}")
        found[query] = (normalised(text)[0], _answers(row, place))
    if not found:
        raise UsageError(f"{path} holds no question")
    return found


def _answers(row: Mapping[str, Any], place: str) -> tuple[str, ...]:
    given = row.get("answers")
    if given is None:
        return ()
    answers = [given] if isinstance(given, str) else given
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        raise UsageError(f"{place}: `answers` must be a list of strings, got {json.dumps(given)[:80]}")
    return tuple(dict.fromkeys(answer.strip() for answer in answers if answer.strip()))


def _grades(path: Path) -> dict[str, dict[str, int]]:
    """Query id -> document id -> grade."""
    found: dict[str, dict[str, int]] = {}
    for number, line in _lines(path):
        place = f"{path}:{number}"
        cells = [cell.strip() for cell in line.split("\t")]
        if len(cells) != 3:
            raise UsageError(f"{place}: expected query id, document id and grade between tabs, got {line[:80]!r}")
        query, document, grade = cells
        try:
            value = int(grade)
        except ValueError:
            if number == 1:
                continue  # the heading
            raise UsageError(f"{place}: the grade {grade[:80]!r} is not a whole number") from None
        own = found.setdefault(query, {})
        if own.setdefault(document, value) != value:
            raise UsageError(f"{place}: {query} and {document} are judged {own[document]} before and {value} here")
    return found


def _id(row: Mapping[str, Any], place: str) -> str:
    """As the id column of a record source is read, so that both name a document alike."""
    value = row.get("_id")
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value).strip():
        raise UsageError(f"{place}: no id in `_id`; columns: {', '.join(map(str, row))[:200]}")
    return normalised(str(value))[0].strip()


def _json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file:line, object) of each line that is not blank."""
    for number, line in _lines(path):
        place = f"{path}:{number}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{place}: not a line of JSON: {error}") from None
        if not isinstance(row, dict):
            raise UsageError(f"{place}: not a JSON object: {line[:80]!r}")
        yield place, row


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """(number from 1, text) of each line that is not blank."""
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                try:
                    line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                except UnicodeDecodeError as error:
                    raise UsageError(f"{path}:{number}: not UTF-8: {error}") from None
                if line.strip():
                    yield number, line
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error}") from error
