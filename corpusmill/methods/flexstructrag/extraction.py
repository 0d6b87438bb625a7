"""Statements of a document (section 3): windows in order, quotes grounded in their chunk, entities cleaned."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from corpusmill.errors import ModelOutputError
from corpusmill.hashing import content_id
from corpusmill.methods.common.ordered import ordered_map
from corpusmill.methods.flexstructrag.tables import EXTRACTION_STATS, STATEMENTS
from corpusmill.methods.flexstructrag.tasks import EXTRACT, ExtractedItem, ExtractInput
from corpusmill.methods.flexstructrag.windows import prefix
from corpusmill.names import normal_form
from corpusmill.spans import Span, align_quote
from corpusmill.steps import StepContext, StepOutput, Text

MAX_NAME_CHARS = 200  # a longer "name" is a clause, and would be a useless key


class WindowSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    g_max: int
    g_overlap: int


@dataclass(frozen=True)
class Chunk:
    chunk_id: str
    span: Span


@dataclass
class Counts:
    """What became of the items that the model gave; a row of `extraction_stats`."""

    windows: int = 0
    failed_windows: int = 0
    items: int = 0
    dropped_quotes: int = 0
    dropped_entities: int = 0
    dropped_items: int = 0
    repeated_items: int = 0


@dataclass(frozen=True)
class Statement:
    """A grounded item; `entities` are (name, normal form), at least one, each normal form once, in order of mention."""

    chunk_id: str
    text: str
    ref: Span
    entities: tuple[tuple[str, str], ...]


@dataclass
class Grounder:
    """Turns a document's items into statements, counting what it drops."""

    text: str
    counts: Counts = field(default_factory=Counts)
    statements: dict[tuple[Span, str], Statement] = field(default_factory=dict)

    def add(self, chunk: Chunk, items: Iterable[ExtractedItem]) -> None:
        for item in items:
            self.counts.items += 1
            statement = " ".join(item.statement.split())
            ref = align_quote(item.quote, self.text, chunk.span)
            if ref is None or ref.start == ref.end:
                self.counts.dropped_quotes += 1
                continue
            entities, dropped = clean_entities(item.entities, statement)
            self.counts.dropped_entities += dropped
            if not normal_form(statement) or not entities:
                self.counts.dropped_items += 1
            elif (ref, statement) in self.statements:
                self.counts.repeated_items += 1
            else:
                self.statements[ref, statement] = Statement(chunk.chunk_id, statement, ref, entities)


def clean_entities(names: Iterable[str], statement: str) -> tuple[tuple[tuple[str, str], ...], int]:
    """(name, normal form) of usable names, each normal form once, in order of mention in `statement`; and how many
    were not usable (no letter or digit, or too long). Names that the statement writes otherwise come last."""
    kept: dict[str, str] = {}
    dropped = 0
    for raw in names:
        name = " ".join(raw.split())
        normal = normal_form(name)
        if not normal or max(len(name), len(normal)) > MAX_NAME_CHARS:
            dropped += 1
        else:
            kept.setdefault(normal, name)
    said = statement.casefold()
    where = {normal: said.find(name.casefold()) for normal, name in kept.items()}
    order = sorted(kept, key=lambda normal: where[normal] if where[normal] >= 0 else len(said))
    return tuple((kept[normal], normal) for normal in order), dropped


async def extract(text: Text, tables: Mapping[str, pa.Table], ctx: StepContext) -> StepOutput:
    """`statements` and `extraction_stats` of one text. A window whose output stays invalid makes the text partial."""
    assert isinstance(ctx.settings, WindowSettings)
    settings = ctx.settings
    chunks = read_chunks(tables["chunks"])
    model = ctx.models.language_model(EXTRACT.role)

    async def window(number: int) -> tuple[ExtractedItem, ...] | ModelOutputError:
        before = prefix(number, settings.g_max, settings.g_overlap)
        inputs = ExtractInput(
            prefix=tuple(chunks[at - 1].span.of(text.text) for at in before),
            chunk=chunks[number - 1].span.of(text.text),
        )
        try:
            return (await model.generate(EXTRACT, inputs, affinity=text.text_hash)).value.items
        except ModelOutputError as error:
            return error

    results = await ordered_map(window, range(1, len(chunks) + 1))
    grounder = Grounder(text.text)
    failures = []
    for number, (chunk, result) in enumerate(zip(chunks, results, strict=True), 1):
        grounder.counts.windows += 1
        if isinstance(result, ModelOutputError):
            grounder.counts.failed_windows += 1
            failures.append(f"extraction of chunk {number} of {len(chunks)} ({chunk.chunk_id}): {result}")
        else:
            grounder.add(chunk, result)
    return StepOutput(_tables(text.text_hash, grounder), tuple(failures))


def read_chunks(table: pa.Table) -> list[Chunk]:
    """The chunks of one text, in order."""
    rows = sorted(table.to_pylist(), key=lambda row: row["ordinal"])
    return [Chunk(row["chunk_id"], Span(row["start"], row["end"])) for row in rows]


def _tables(text_hash: str, grounder: Grounder) -> dict[str, pa.Table]:
    rows: list[dict[str, object]] = [
        {
            "text_hash": text_hash,
            "hyperedge_id": content_id("hyperedge", text_hash, s.ref.start, s.ref.end, s.text),
            "ordinal": ordinal,
            "chunk_id": s.chunk_id,
            "text": s.text,
            "start": s.ref.start,
            "end": s.ref.end,
            "entities": [{"name": name, "normal": normal} for name, normal in s.entities],
        }
        for ordinal, s in enumerate(grounder.statements.values())
    ]
    counts = grounder.counts
    # A text of which every window failed leaves nothing at all, so that it counts as failed and not as partial.
    lost = counts.windows > 0 and counts.windows == counts.failed_windows
    stats: list[dict[str, object]] = [] if lost else [{"text_hash": text_hash, **vars(counts)}]
    return {STATEMENTS.name: STATEMENTS.table(rows), EXTRACTION_STATS.name: EXTRACTION_STATS.table(stats)}
