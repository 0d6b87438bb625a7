"""The hypergraph of a document (section 4): its statements are the hyperedges; here its entities get their texts."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from corpusmill.errors import ModelOutputError
from corpusmill.hashing import content_id
from corpusmill.methods.common.ordered import ordered_map
from corpusmill.methods.flexstructrag.extraction import clean_entities
from corpusmill.methods.flexstructrag.tables import LOCAL_ENTITIES
from corpusmill.methods.flexstructrag.tasks import (
    MERGE_SUMMARY,
    SUMMARISE_ENTITY,
    EntitySummary,
    MergeSummaryInput,
    SummariseInput,
)
from corpusmill.models.contracts import LanguageModel
from corpusmill.names import display_name
from corpusmill.steps import StepContext, StepOutput, Text

Row = Mapping[str, Any]  # of an Arrow table

STATEMENTS_PER_CALL = 64  # of a hub; more are summarised part by part, then joined
PARTS_PER_CALL = 16


class SummarySettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    tau_s: int


@dataclass(frozen=True)
class LocalEntity:
    """An entity of one document: mentions of one normal form. `incident` are rows of its statements, in order."""

    normal: str
    name: str
    incident: tuple[int, ...]

    @property
    def degree(self) -> int:
        """The hyperdegree: how many statements it takes part in."""
        return len(self.incident)


@dataclass(frozen=True)
class EntityText:
    text: str
    summarised: bool
    aliases: tuple[str, ...] = ()
    failure: str | None = None


def read_statements(table: pa.Table) -> list[Row]:
    """The statements of one text in extraction order."""
    return sorted(table.to_pylist(), key=lambda row: row["ordinal"])


def local_entities(mentions: Sequence[Sequence[tuple[str, str]]]) -> list[LocalEntity]:
    """Entities of `mentions`, the (name, normal form) pairs of each statement in order; sorted by normal form."""
    forms: dict[str, Counter[str]] = {}
    incident: dict[str, dict[int, None]] = {}
    for at, pairs in enumerate(mentions):
        for name, normal in pairs:
            forms.setdefault(normal, Counter())[name] += 1
            incident.setdefault(normal, {})[at] = None
    return [LocalEntity(normal, display_name(forms[normal]), tuple(incident[normal])) for normal in sorted(forms)]


def mentions_of(statements: Sequence[Row]) -> list[list[tuple[str, str]]]:
    """The (name, normal form) pairs of each row of `statements`."""
    return [[(e["name"], e["normal"]) for e in row["entities"]] for row in statements]


async def entity_texts(text: Text, tables: Mapping[str, pa.Table], ctx: StepContext) -> StepOutput:
    """`local_entities` of one text. An entity whose summary stays invalid keeps joined texts: the text is partial."""
    assert isinstance(ctx.settings, SummarySettings)
    tau_s = ctx.settings.tau_s
    statements = read_statements(tables["statements"])
    model = ctx.models.language_model(SUMMARISE_ENTITY.role)

    async def describe(entity: LocalEntity) -> EntityText:
        texts = tuple(dict.fromkeys(statements[at]["text"] for at in entity.incident))
        if entity.degree <= tau_s:
            return EntityText("\n".join(texts), summarised=False)
        try:
            summary = await summarise(model, entity.name, texts, text.text_hash)
        except ModelOutputError as error:
            return EntityText("\n".join(texts), False, failure=f"summary of entity {entity.name!r}: {error}")
        return EntityText(" ".join(summary.summary.split()), True, clean_aliases(summary.aliases, entity.normal))

    entities = local_entities(mentions_of(statements))
    described = await ordered_map(describe, entities)
    rows: list[dict[str, object]] = [
        {
            "text_hash": text.text_hash,
            "local_id": content_id("local_entity", text.text_hash, entity.normal),
            "normal": entity.normal,
            "name": entity.name,
            "degree": entity.degree,
            "text": made.text,
            "summarised": made.summarised,
            "aliases": list(made.aliases),
        }
        for entity, made in zip(entities, described, strict=True)
    ]
    failures = tuple(made.failure for made in described if made.failure)
    return StepOutput({LOCAL_ENTITIES.name: LOCAL_ENTITIES.table(rows)}, failures)


async def summarise(model: LanguageModel, name: str, texts: tuple[str, ...], affinity: str) -> EntitySummary:
    """A summary of `texts`; of more than one call takes, summaries of parts are joined, level by level.

    Raises ModelOutputError if any of the calls stays invalid.
    """

    async def part(batch: tuple[str, ...]) -> EntitySummary:
        inputs = SummariseInput(name=name, statements=batch)
        return (await model.generate(SUMMARISE_ENTITY, inputs, affinity=affinity)).value

    async def join(batch: tuple[str, ...]) -> str:
        if len(batch) == 1:
            return batch[0]
        inputs = MergeSummaryInput(name=name, parts=batch)
        return (await model.generate(MERGE_SUMMARY, inputs, affinity=affinity)).value.summary

    parts = await ordered_map(part, _batches(texts, STATEMENTS_PER_CALL))
    summaries = tuple(made.summary for made in parts)
    while len(summaries) > 1:
        summaries = tuple(await ordered_map(join, _batches(summaries, PARTS_PER_CALL)))
    return EntitySummary(summary=summaries[0], aliases=tuple(alias for made in parts for alias in made.aliases))


def clean_aliases(aliases: Sequence[str], normal: str) -> tuple[str, ...]:
    """Usable aliases in order, each normal form once and not the entity's own."""
    pairs, _ = clean_entities(aliases, "")
    return tuple(name for name, form in pairs if form != normal)


def _batches(items: tuple[str, ...], size: int) -> list[tuple[str, ...]]:
    return [items[at : at + size] for at in range(0, len(items), size)]
