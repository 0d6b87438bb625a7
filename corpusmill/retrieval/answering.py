"""From chosen evidence to a cited answer; what cannot be cited from a stored text is not said."""

from collections.abc import Sequence
from dataclasses import dataclass

from corpusmill.methods.protocol import Evidence, Snapshot
from corpusmill.retrieval.citations import Citation, cite
from corpusmill.retrieval.tasks import ANSWER, AnswerInput, AnswerOutput, NumberedEvidence, shorten
from corpusmill.steps import Models

UNANSWERABLE = "The indexed documents do not answer this question."


@dataclass(frozen=True)
class Answered:
    """`text` carries [n] marks: the n-th citation, counted from 1. `tokens` as the model reported them (0: none)."""

    text: str
    citations: tuple[Citation, ...]
    answerable: bool
    tokens: int
    notes: tuple[str, ...]


async def answer_from(question: str, evidence: Sequence[Evidence], snapshot: Snapshot, models: Models) -> Answered:
    """Ask the answering model, check every quote against the stored text. Raises ModelError.

    Without evidence, or with an answer of which no quote stands in a document, the question is said to be unanswered.
    """
    if not evidence:
        return Answered(UNANSWERABLE, (), False, 0, ("no evidence was found",))
    numbered = tuple(
        NumberedEvidence(number=i, title=_title(piece, snapshot), text=piece.text)
        for i, piece in enumerate(evidence, start=1)
    )
    inputs = AnswerInput(question=shorten(question), evidence=numbered)
    generation = await models.language_model("answer").generate(ANSWER, inputs)
    tokens = generation.usage.prompt_tokens + generation.usage.completion_tokens
    return checked(generation.value, evidence, snapshot, tokens)


def checked(output: AnswerOutput, evidence: Sequence[Evidence], snapshot: Snapshot, tokens: int = 0) -> Answered:
    """The answer with only those quotes, and only those sentences, that a stored text supports."""
    if not output.answerable:
        return Answered(UNANSWERABLE, (), False, tokens, ())
    citations: list[Citation] = []
    parts: list[str] = []
    removed = dropped = 0
    for sentence in output.sentences:
        marks: list[int] = []
        for quoted in sentence.citations:
            piece = evidence[quoted.evidence - 1] if quoted.evidence <= len(evidence) else None
            found = cite(quoted.quote, piece, snapshot) if piece is not None else ()
            removed += not found
            marks.extend(_number(citation, citations) for citation in found)
        if marks:
            parts.append(f"{sentence.text.strip()} {''.join(f'[{n}]' for n in dict.fromkeys(marks))}")
        else:
            dropped += 1
    notes = []
    if removed:
        notes.append(f"{removed} quotes were removed: they are not in the documents")
    if dropped:
        notes.append(f"{dropped} sentences without a valid citation were left out")
    if not parts:
        return Answered(UNANSWERABLE, (), False, tokens, tuple(notes))
    return Answered(" ".join(parts), tuple(citations), True, tokens, tuple(notes))


def _number(citation: Citation, known: list[Citation]) -> int:
    """The citation's number, from 1; an equal quote of the same place keeps its first."""
    for i, other in enumerate(known, start=1):
        if (other.doc_id, other.start, other.end) == (citation.doc_id, citation.start, citation.end):
            return i
    known.append(citation)
    return len(known)


def _title(piece: Evidence, snapshot: Snapshot) -> str:
    """The title of the first document of the piece's first source."""
    for source in piece.sources[:1]:
        for row in snapshot.documents_of(source.text_hash):
            return str(row.get("title") or row["uri"])
    return ""
