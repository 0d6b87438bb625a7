"""Texts of merged entities: the distinct texts of their members joined, summarised by a model where there are many.

More than `tau_s` parts are summarised in a tree of hash-ordered parts (graph/hash_tree.py), each node one call that is
keyed by its inputs: an edited document pays for the log n nodes above its part, not for the hub.
"""

from typing import TYPE_CHECKING

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from corpusmill.errors import ModelOutputError
from corpusmill.graph.hash_tree import trie_groups
from corpusmill.methods.common.ordered import ordered_map
from corpusmill.methods.flexstructrag.settings import FlexSettings
from corpusmill.methods.flexstructrag.tables import ENTITY_PARTS, ENTITY_TEXTS
from corpusmill.methods.flexstructrag.tasks import MERGE_SUMMARY, MergeSummaryInput
from corpusmill.models.contracts import LanguageModel
from corpusmill.steps import MapStep, StepContext, StepOutput

if TYPE_CHECKING:
    from corpusmill.settings import Settings


class MergedSummarySettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    tau_s: int
    fan_in: int


def summary_step(settings: "Settings") -> MapStep:
    """`entity_parts` -> `entity_texts`."""
    own = settings.method("flexstructrag")
    assert isinstance(own, FlexSettings)
    return MapStep(
        name="entity_texts",
        version=2,
        settings=MergedSummarySettings(tau_s=own.tau_s, fan_in=own.summary_fan_in),
        inputs=(ENTITY_PARTS.name,),
        outputs=(ENTITY_TEXTS,),
        roles=(MERGE_SUMMARY.role,),
        task_fingerprints=(MERGE_SUMMARY.fingerprint,),
        by="entity_id",
        run=entity_texts,
    )


async def entity_texts(parts: pa.Table, ctx: StepContext) -> StepOutput:
    """One text for each entity of `parts` (ENTITY_PARTS rows, all of an entity together).

    `summarised` is false where the parts stand joined, and where more than `tau_s` of them have a node that the model
    could not summarise: the task's rule then stands in for that node, and the failure is told.
    """
    own = ctx.settings
    assert isinstance(own, MergedSummarySettings)
    entities: dict[str, list[tuple[str, str, str]]] = {}
    for row in parts.to_pylist():
        entities.setdefault(row["entity_id"], []).append((row["part_hash"], row["part"], row["name"]))
    model = ctx.models.language_model(MERGE_SUMMARY.role)
    failures: list[str] = []

    async def describe(entity: str) -> dict[str, object]:
        ordered = sorted(entities[entity])
        texts = [text for _, text, _ in ordered]
        if len(ordered) <= own.tau_s:
            text, summarised = "\n".join(texts), False
        else:
            name = ordered[0][2]
            text, wrong = await summarise_parts(model, name, [h for h, *_ in ordered], texts, own.fan_in)
            failures.extend(f"entity {name!r} ({entity}): {reason}" for reason in wrong)
            summarised = not wrong
        return {"entity_id": entity, "text": text, "parts": len(ordered), "summarised": summarised}

    rows = await ordered_map(describe, sorted(entities))
    return StepOutput({ENTITY_TEXTS.name: ENTITY_TEXTS.table(rows)}, tuple(sorted(failures)))


async def summarise_parts(
    model: LanguageModel, name: str, hashes: list[str], texts: list[str], fan_in: int
) -> tuple[str, list[str]]:
    """(summary, a reason for each node that the model could not make) of parts sorted by hash, level by level.

    `name` goes into every node: it must not depend on how many documents use which spelling.
    """
    failures: list[str] = []

    async def node(group: tuple[str, ...]) -> str:
        if len(group) == 1:
            return group[0]
        inputs = MergeSummaryInput(name=name, parts=group)
        try:
            made = (await model.generate(MERGE_SUMMARY, inputs, affinity=hashes[0])).value
        except ModelOutputError as error:
            failures.append(str(error))
            made = MERGE_SUMMARY.rule(inputs)
        return " ".join(made.summary.split())

    while len(texts) > 1:
        groups = trie_groups(hashes, fan_in)
        texts = await ordered_map(node, [tuple(texts[at] for at in group) for group in groups])
        hashes = [hashes[group[0]] for group in groups]
    return texts[0], failures
