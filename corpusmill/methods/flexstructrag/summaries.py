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
from corpusmill.steps import MapStep, StepContext

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
        version=1,
        settings=MergedSummarySettings(tau_s=own.tau_s, fan_in=own.summary_fan_in),
        inputs=(ENTITY_PARTS.name,),
        outputs=(ENTITY_TEXTS,),
        roles=(MERGE_SUMMARY.role,),
        task_fingerprints=(MERGE_SUMMARY.fingerprint,),
        by="entity_id",
        run=entity_texts,
    )


async def entity_texts(parts: pa.Table, ctx: StepContext) -> dict[str, pa.Table]:
    """One text for each entity of `parts` (ENTITY_PARTS rows, all of an entity together).

    `summarised` is false where the parts stand joined, and where more than `tau_s` of them have a node that the model
    could not summarise: the task's rule then stands in for that node.
    """
    own = ctx.settings
    assert isinstance(own, MergedSummarySettings)
    entities: dict[str, list[tuple[str, str, str]]] = {}
    for row in parts.to_pylist():
        entities.setdefault(row["entity_id"], []).append((row["part_hash"], row["part"], row["name"]))
    model = ctx.models.language_model(MERGE_SUMMARY.role)

    async def describe(entity: str) -> dict[str, object]:
        ordered = sorted(entities[entity])
        texts = [text for _, text, _ in ordered]
        if len(ordered) <= own.tau_s:
            text, summarised = "\n".join(texts), False
        else:
            text, summarised = await summarise_parts(model, ordered[0][2], [h for h, *_ in ordered], texts, own.fan_in)
        return {"entity_id": entity, "text": text, "parts": len(ordered), "summarised": summarised}

    rows = await ordered_map(describe, sorted(entities))
    return {ENTITY_TEXTS.name: ENTITY_TEXTS.table(rows)}


async def summarise_parts(
    model: LanguageModel, name: str, hashes: list[str], texts: list[str], fan_in: int
) -> tuple[str, bool]:
    """(summary, whether the model made all of it) of parts sorted by hash, level by level up the tree."""
    whole = True

    async def node(group: tuple[str, ...]) -> str:
        nonlocal whole
        if len(group) == 1:
            return group[0]
        inputs = MergeSummaryInput(name=name, parts=group)
        try:
            made = (await model.generate(MERGE_SUMMARY, inputs, affinity=hashes[0])).value
        except ModelOutputError:
            whole = False
            made = MERGE_SUMMARY.rule(inputs)
        return " ".join(made.summary.split())

    while len(texts) > 1:
        groups = trie_groups(hashes, fan_in)
        texts = await ordered_map(node, [tuple(texts[at] for at in group) for group in groups])
        hashes = [hashes[group[0]] for group in groups]
    return texts[0], whole
