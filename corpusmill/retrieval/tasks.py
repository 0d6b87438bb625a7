"""The model tasks of a query: the names to look up, other wordings to search with, and the cited answer."""

from collections.abc import Sequence

from pydantic import Field

from corpusmill.frozen import Frozen
from corpusmill.models.contracts import Task
from corpusmill.models.prompts import load_prompt, marks
from corpusmill.names import normal_form

_PACKAGE = "corpusmill.retrieval"
as_data = marks("question", "evidence")
VARIANT_CHARS = 400  # of one other wording
QUESTION_CHARS = 8_000  # what of a question reaches a model or a rule: its head and tail


class QueryEntitiesInput(Frozen):
    question: str


class QueryEntities(Frozen):
    """Names in the question, as it writes them, in order; none: an empty list."""

    entities: tuple[str, ...] = Field(max_length=64)


class ExpandInput(Frozen):
    question: str


class Expansion(Frozen):
    """Other search texts for a question, each possibly empty."""

    paraphrase: str = Field(max_length=VARIANT_CHARS)
    sub_question: str = Field(max_length=VARIANT_CHARS)
    entity_focused: str = Field(max_length=VARIANT_CHARS)

    def variants(self, question: str) -> tuple[str, ...]:
        """The search texts that differ from the question and from one another, in order; at most three."""
        kept: dict[str, str] = {}
        for text in (self.paraphrase, self.sub_question, self.entity_focused):
            form = normal_form(text)
            if form and form != normal_form(question):
                kept.setdefault(form, text.strip())
        return tuple(kept.values())


class NumberedEvidence(Frozen):
    """One piece of evidence as the generator sees it; numbers start at 1 and are unique within an input."""

    number: int = Field(ge=1)
    title: str
    text: str


class AnswerInput(Frozen):
    question: str
    evidence: tuple[NumberedEvidence, ...]


class QuotedCitation(Frozen):
    """`quote` is copied verbatim from the evidence of that number."""

    evidence: int = Field(ge=1)
    quote: str


class AnswerSentence(Frozen):
    text: str
    citations: tuple[QuotedCitation, ...]


class AnswerOutput(Frozen):
    """`answerable` false: the evidence does not hold the answer, and there are no sentences."""

    answerable: bool
    sentences: tuple[AnswerSentence, ...]


def shorten(question: str, limit: int = QUESTION_CHARS) -> str:
    """A question of at most `limit` characters: of a longer one the head and the tail, where questions are put."""
    if len(question) <= limit:
        return question
    half = (limit - 5) // 2
    return f"{question[:half]}\n...\n{question[-half:]}"


def _render_entities(inputs: QueryEntitiesInput) -> dict[str, str]:
    return {"question": as_data(inputs.question)}


def _rule_entities(inputs: QueryEntitiesInput) -> QueryEntities:
    from corpusmill.models.rules import query_entities

    return QueryEntities(entities=_distinct(query_entities(inputs.question))[:64])


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """Names with a normal form, each form once, in order."""
    kept: dict[str, str] = {}
    for name in names:
        if form := normal_form(name):
            kept.setdefault(form, name)
    return tuple(kept.values())


def _render_expand(inputs: ExpandInput) -> dict[str, str]:
    return {"question": as_data(inputs.question)}


def _rule_expand(inputs: ExpandInput) -> Expansion:
    from corpusmill.models.rules import rewordings

    found = rewordings(inputs.question)
    return Expansion(
        paraphrase=found.content[:VARIANT_CHARS],
        sub_question=found.clause[:VARIANT_CHARS],
        entity_focused=found.names[:VARIANT_CHARS],
    )


def _render_answer(inputs: AnswerInput) -> dict[str, str]:
    pieces = "\n\n".join(_piece(piece) for piece in inputs.evidence)
    return {"question": as_data(inputs.question), "evidence": pieces or "(none was found)"}


def _piece(piece: NumberedEvidence) -> str:
    head = f'<evidence number="{piece.number}" document="{as_data(_attribute(piece.title))}">'
    return f"{head}\n{as_data(piece.text)}\n</evidence>"


def _attribute(text: str) -> str:
    return " ".join(text.replace('"', "'").split())[:200]


def _rule_answer(inputs: AnswerInput) -> AnswerOutput:
    from corpusmill.models.rules import answer

    found = answer(inputs.question, [piece.text for piece in inputs.evidence])
    sentences = tuple(
        AnswerSentence(
            text=sentence.text,
            citations=(
                QuotedCitation(
                    evidence=inputs.evidence[sentence.evidence].number,
                    quote=sentence.span.of(inputs.evidence[sentence.evidence].text),
                ),
            ),
        )
        for sentence in found.sentences
    )
    return AnswerOutput(answerable=bool(sentences), sentences=sentences)


def _check_answer(inputs: AnswerInput, output: AnswerOutput) -> str | None:
    if output.answerable != bool(output.sentences):
        return '"answerable" is true exactly when there are sentences'
    known = {piece.number for piece in inputs.evidence}
    for sentence in output.sentences:
        if not sentence.text.strip():
            return "a sentence is empty"
        if not sentence.citations:
            return f"the sentence {sentence.text[:80]!r} has no citation"
        if wrong := [c.evidence for c in sentence.citations if c.evidence not in known]:
            return f"there is no evidence number {wrong[0]}; numbers: 1 to {len(known)}"
    return None


QUERY_ENTITIES: Task[QueryEntitiesInput, QueryEntities] = Task(
    name="query_entities",
    role="plan",
    prompt=load_prompt(_PACKAGE, "query_entities"),
    input_type=QueryEntitiesInput,
    output_type=QueryEntities,
    render=_render_entities,
    rule=_rule_entities,
    max_output_tokens=512,
)

EXPAND: Task[ExpandInput, Expansion] = Task(
    name="expand",
    role="plan",
    prompt=load_prompt(_PACKAGE, "expand"),
    input_type=ExpandInput,
    output_type=Expansion,
    render=_render_expand,
    rule=_rule_expand,
    max_output_tokens=1024,
)

ANSWER: Task[AnswerInput, AnswerOutput] = Task(
    name="answer",
    role="answer",
    prompt=load_prompt(_PACKAGE, "answer"),
    input_type=AnswerInput,
    output_type=AnswerOutput,
    render=_render_answer,
    rule=_rule_answer,
    check=_check_answer,
    max_output_tokens=1024,
)
