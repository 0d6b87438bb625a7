"""The graph of a document (section 5): pairwise relations around its anchors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from corpusmill.errors import ModelOutputError
from corpusmill.hashing import content_id
from corpusmill.methods.common.ordered import ordered_map
from corpusmill.methods.flexstructrag.hypergraph import LocalEntity, Row, local_entities, mentions_of, read_statements
from corpusmill.methods.flexstructrag.tables import EDGE_STATS, EDGES
from corpusmill.methods.flexstructrag.tasks import RELATE, FoundRelation, RelateInput, RelateStatement
from corpusmill.names import normal_form
from corpusmill.steps import StepContext, StepOutput, Text

STATEMENTS_PER_CALL = 32  # of an anchor; a hub takes several calls


class AnchorSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    tau_e: int


@dataclass(frozen=True)
class AnchorCall:
    """One model call: an anchor with some of its statements, by row."""

    anchor: LocalEntity
    rows: tuple[int, ...]


@dataclass
class EdgeCounts:
    """What became of the relations that the model gave; a row of `edge_stats`."""

    anchors: int = 0
    relations: int = 0
    dropped_ends: int = 0
    dropped_support: int = 0
    repeated_relations: int = 0


@dataclass
class EdgeKeeper:
    """Keeps relations between two distinct entities of the document, each (source, target, normal text) once."""

    text_hash: str
    names: Mapping[str, str]  # normal form -> displayed name
    statements: Sequence[Row]
    counts: EdgeCounts = field(default_factory=EdgeCounts)
    rows: dict[tuple[str, str, str], dict[str, object]] = field(default_factory=dict)

    def add(self, call: AnchorCall, relations: Sequence[FoundRelation]) -> None:
        for relation in relations:
            self.counts.relations += 1
            source, target = normal_form(relation.source), normal_form(relation.target)
            text = " ".join(relation.text.split())
            key = (source, target, normal_form(text))
            if source == target or source not in self.names or target not in self.names:
                self.counts.dropped_ends += 1
            elif not key[2] or not 1 <= relation.support <= len(call.rows):
                self.counts.dropped_support += 1
            elif key in self.rows:
                self.counts.repeated_relations += 1
            else:
                self.rows[key] = self._row(key, text, self.statements[call.rows[relation.support - 1]])

    def _row(self, key: tuple[str, str, str], text: str, support: Row) -> dict[str, object]:
        source, target, normal_text = key
        return {
            "text_hash": self.text_hash,
            "edge_id": content_id("edge", self.text_hash, source, target, normal_text),
            "ordinal": len(self.rows),
            "source": source,
            "target": target,
            "source_name": self.names[source],
            "target_name": self.names[target],
            "text": text,
            "start": support["start"],
            "end": support["end"],
            "hyperedge_id": support["hyperedge_id"],
        }


def anchor_calls(entities: Sequence[LocalEntity], tau_e: int) -> list[AnchorCall]:
    """The calls for entities with a hyperdegree above `tau_e`, in the order of `entities`."""
    return [
        AnchorCall(entity, entity.incident[at : at + STATEMENTS_PER_CALL])
        for entity in entities
        if entity.degree > tau_e
        for at in range(0, entity.degree, STATEMENTS_PER_CALL)
    ]


async def relate_anchors(text: Text, tables: Mapping[str, pa.Table], ctx: StepContext) -> StepOutput:
    """`edges` and `edge_stats` of one text. A call whose output stays invalid makes the text partial."""
    assert isinstance(ctx.settings, AnchorSettings)
    statements = read_statements(tables["statements"])
    mentions = mentions_of(statements)
    entities = local_entities(mentions)
    names = {entity.normal: entity.name for entity in entities}
    calls = anchor_calls(entities, ctx.settings.tau_e)
    model = ctx.models.language_model(RELATE.role)

    async def relate(call: AnchorCall) -> tuple[FoundRelation, ...] | ModelOutputError:
        near = dict.fromkeys(normal for row in call.rows for _, normal in mentions[row])
        inputs = RelateInput(
            anchor=call.anchor.name,
            statements=tuple(_statement(text, statements[row], mentions[row], names) for row in call.rows),
            names=tuple(names[normal] for normal in near),
        )
        try:
            return (await model.generate(RELATE, inputs, affinity=text.text_hash)).value.relations
        except ModelOutputError as error:
            return error

    keeper = EdgeKeeper(text.text_hash, names, statements)
    keeper.counts.anchors = len({call.anchor.normal for call in calls})
    failures = []
    for call, result in zip(calls, await ordered_map(relate, calls), strict=True):
        if isinstance(result, ModelOutputError):
            failures.append(f"relations of anchor {call.anchor.name!r}: {result}")
        else:
            keeper.add(call, result)
    stats = [] if calls and len(failures) == len(calls) else [{"text_hash": text.text_hash, **vars(keeper.counts)}]
    made = {EDGES.name: EDGES.table(list(keeper.rows.values())), EDGE_STATS.name: EDGE_STATS.table(stats)}
    return StepOutput(made, tuple(failures))


def _statement(text: Text, row: Row, pairs: Sequence[tuple[str, str]], names: Mapping[str, str]) -> RelateStatement:
    quote = text.text[row["start"] : row["end"]]
    return RelateStatement(text=row["text"], quote=quote, entities=tuple(names[normal] for _, normal in pairs))
