"""The model tasks of building: extraction, entity summaries, anchor relations, joined summaries.

Text of the document stands between marks that it cannot forge. In `extract` all passages carry the same marks and the
instruction precedes them, so that the passages of one call are the token prefix of the next call of the same window.
"""

import re

from pydantic import BaseModel, Field

from corpusmill.frozen import Frozen
from corpusmill.models.contracts import Task
from corpusmill.models.prompts import load_prompt, marks
from corpusmill.names import normal_form
from corpusmill.spans import Span, align_quote

RULE_SUMMARY_TOKENS = 120
_PACKAGE = "corpusmill.methods.flexstructrag"
as_data = marks("passage", "statement", "statements", "source", "name", "entities", "anchor", "description")


class ExtractInput(Frozen):
    """A chunk C_i and PreC_i, the chunks before it in its window."""

    prefix: tuple[str, ...]
    chunk: str


class ExtractedItem(Frozen):
    """One relational statement, the words of the chunk that prove it, and its participants in order of mention."""

    statement: str
    quote: str
    entities: tuple[str, ...]


class Extraction(Frozen):
    items: tuple[ExtractedItem, ...]


class SummariseInput(Frozen):
    """An entity's display name and the statements it takes part in, in extraction order."""

    name: str
    statements: tuple[str, ...] = Field(min_length=1)


class EntitySummary(Frozen):
    summary: str
    aliases: tuple[str, ...]


class RelateStatement(Frozen):
    """A statement with the source text that supports it and its entities' names; numbered from 1 by its place."""

    text: str
    quote: str
    entities: tuple[str, ...]


class RelateInput(Frozen):
    """`names`: the entities that a relation may join, the anchor among them."""

    anchor: str
    statements: tuple[RelateStatement, ...]
    names: tuple[str, ...]


class FoundRelation(Frozen):
    """`support` is the number of the supporting statement, from 1."""

    source: str
    target: str
    text: str
    support: int


class Relations(Frozen):
    relations: tuple[FoundRelation, ...]


class MergeSummaryInput(Frozen):
    """Descriptions of one thing, from several places."""

    name: str
    parts: tuple[str, ...] = Field(min_length=1)


class MergedSummary(Frozen):
    summary: str


def _block(mark: str, text: str) -> str:
    return f"<{mark}>\n{as_data(text)}\n</{mark}>"


def _render_extract(inputs: ExtractInput) -> dict[str, str]:
    return {"passages": "\n\n".join(_block("passage", part) for part in (*inputs.prefix, inputs.chunk))}


def _render_summarise(inputs: SummariseInput) -> dict[str, str]:
    return {"name": as_data(inputs.name), "statements": "\n".join(f"- {as_data(s)}" for s in inputs.statements)}


def _render_relate(inputs: RelateInput) -> dict[str, str]:
    numbered = (
        f'<statement number="{number}">\n{as_data(s.text)}\n{_block("source", s.quote)}\n</statement>'
        for number, s in enumerate(inputs.statements, 1)
    )
    names = "\n".join(f"- {as_data(name)}" for name in inputs.names)
    return {"statements": "\n".join(numbered), "names": names, "anchor": as_data(inputs.anchor)}


def _render_merge(inputs: MergeSummaryInput) -> dict[str, str]:
    return {"name": as_data(inputs.name), "parts": "\n".join(_block("description", part) for part in inputs.parts)}


def _check_extract(inputs: ExtractInput, output: Extraction) -> str | None:
    """Single quotes that do not stand in the chunk are dropped later; if none does, the output is nonsense."""
    if output.items and not any(align_quote(item.quote, inputs.chunk) for item in output.items):
        example = output.items[0].quote[:120]
        return f"no quote stands in the last passage, for example {example!r}; copy the quotes from it"
    return None


def _check_summary(inputs: BaseModel, output: EntitySummary | MergedSummary) -> str | None:
    return None if output.summary.strip() else "the summary is empty"


def _rule_extract(inputs: ExtractInput) -> Extraction:
    from corpusmill.models.rules import statements

    return Extraction(
        items=tuple(
            ExtractedItem(statement=found.text, quote=found.span.of(inputs.chunk), entities=found.entities)
            for found in statements(inputs.chunk)
        )
    )


def _rule_summarise(inputs: SummariseInput) -> EntitySummary:
    from corpusmill.models.rules import summary

    text = summary(inputs.statements, RULE_SUMMARY_TOKENS) or inputs.statements[0]
    return EntitySummary(summary=text, aliases=abbreviations(inputs.name, inputs.statements))


def _rule_relate(inputs: RelateInput) -> Relations:
    """Pairs that the anchor is an end of: names that merely share a sentence with it are too often unrelated."""
    from corpusmill.models.rules import Statement, relations

    given = [Statement(s.text, Span(0, len(s.text)), s.entities) for s in inputs.statements]
    anchor = normal_form(inputs.anchor)
    return Relations(
        relations=tuple(
            FoundRelation(source=r.source, target=r.target, text=r.text, support=r.statement + 1)
            for r in relations(given, inputs.names)
            if anchor in (normal_form(r.source), normal_form(r.target))
        )
    )


def _rule_merge(inputs: MergeSummaryInput) -> MergedSummary:
    from corpusmill.models.rules import summary

    return MergedSummary(summary=summary(inputs.parts, RULE_SUMMARY_TOKENS) or inputs.parts[0])


def abbreviations(name: str, texts: tuple[str, ...]) -> tuple[str, ...]:
    """Names that stand in brackets after `name`, or before it when it stands in them, with matching initials.

    "World Health Organization (WHO)" makes each an alias of the other. First found first.
    """
    found: dict[str, None] = {}
    texts = tuple(text for text in texts if "(" in text or "(" in text)
    if not texts:
        return ()
    after = re.compile(re.escape(name) + r"\s*[((]\s*([^\s()()]{2,12})\s*[))]")
    before = re.compile(r"((?:[^\W_][\w’'&.-]*\s+){1,7}[^\W_][\w’'&.-]*)\s*[((]\s*" + re.escape(name) + r"\s*[))]")
    for text in texts:
        for match in after.finditer(text):
            if _is_short_for(match[1], name.split()):
                found.setdefault(match[1])
        for match in before.finditer(text):
            words = match[1].split()
            for count in range(2, len(words) + 1):
                if _is_short_for(name, words[-count:]):
                    found.setdefault(" ".join(words[-count:]))
                    break
    return tuple(alias for alias in found if alias != name)


def _is_short_for(short: str, words: list[str]) -> bool:
    """Whether the letters of `short` are the initials of `words`, small words left out or not."""
    letters = [ch for ch in short.casefold() if ch.isalnum()]
    if len(letters) < 2 or short.casefold() == short:
        return False
    every = [word[0].casefold() for word in words]
    large = [word[0].casefold() for word in words if word[0].isupper()]
    return letters in (every, large) and (words[0][0].isupper() or letters == every)


EXTRACT: Task[ExtractInput, Extraction] = Task(
    name="extract",
    role="extract",
    prompt=load_prompt(_PACKAGE, "extract"),
    input_type=ExtractInput,
    output_type=Extraction,
    render=_render_extract,
    rule=_rule_extract,
    check=_check_extract,
    max_output_tokens=6144,
)

SUMMARISE_ENTITY: Task[SummariseInput, EntitySummary] = Task(
    name="summarise_entity",
    role="summarise",
    prompt=load_prompt(_PACKAGE, "summarise_entity"),
    input_type=SummariseInput,
    output_type=EntitySummary,
    render=_render_summarise,
    rule=_rule_summarise,
    check=_check_summary,
    max_output_tokens=768,
)

RELATE: Task[RelateInput, Relations] = Task(
    name="relate",
    role="extract",
    prompt=load_prompt(_PACKAGE, "relate"),
    input_type=RelateInput,
    output_type=Relations,
    render=_render_relate,
    rule=_rule_relate,
    max_output_tokens=4096,
)

MERGE_SUMMARY: Task[MergeSummaryInput, MergedSummary] = Task(
    name="merge_summary",
    role="summarise",
    prompt=load_prompt(_PACKAGE, "merge_summary"),
    input_type=MergeSummaryInput,
    output_type=MergedSummary,
    render=_render_merge,
    rule=_rule_merge,
    check=_check_summary,
    max_output_tokens=768,
)
