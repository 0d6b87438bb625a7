"""The plan: what a step may read, how its fingerprint follows, and what is refused with a clear word."""

from dataclasses import replace

import pyarrow as pa
import pytest

from corpusmill.frozen import Frozen
from corpusmill.schemas import TableSpec, required
from corpusmill.steps import (
    AnyStep,
    BuildContext,
    BuildStep,
    CorpusStep,
    DocumentStep,
    MapStep,
    ModelFingerprints,
    Sql,
    StepContext,
    StepOutput,
    Text,
    TextContext,
    TextStep,
    resolve,
)

MODELS = ModelFingerprints({"extract": "rules"}, "hash")


class Numbers(Frozen):
    n: int = 1


def spec(name: str) -> TableSpec:
    return TableSpec(name, pa.schema([required("text_hash", pa.string())]), ("text_hash",))


def text_run(text: Text, tables: object, context: TextContext) -> dict[str, pa.Table]:
    return {}


async def document_run(text: Text, tables: object, context: StepContext) -> StepOutput:
    return StepOutput({})


async def map_run(rows: pa.Table, context: StepContext) -> StepOutput:
    return StepOutput({})


def build_run(context: BuildContext) -> None:
    return None


PIECES = TextStep(name="pieces", outputs=(spec("pieces"),), run=text_run)
FACTS = DocumentStep(name="facts", inputs=("pieces",), outputs=(spec("facts"),), run=document_run)
MERGE = CorpusStep(
    name="merge", inputs=("facts",), outputs=(spec("merged"),), ops=(Sql("merged", "SELECT text_hash FROM facts"),)
)
INDEX = BuildStep(name="index", settings=Numbers(), inputs=("merged",), files=("a.bin",), run=build_run)
SAY = MapStep(name="say", inputs=("merged",), outputs=(spec("said"),), by="text_hash", indices=("index",), run=map_run)
PLAN: tuple[AnyStep, ...] = (PIECES, FACTS, MERGE, INDEX, SAY)


def test_a_step_that_reads_index_files_follows_what_made_them() -> None:
    before = resolve(PLAN, MODELS).fingerprints
    after = resolve((*PLAN[:3], replace(INDEX, settings=Numbers(n=2)), SAY), MODELS).fingerprints
    assert {name for name in before if before[name] != after[name]} == {"index", "say"}


def test_a_step_without_index_files_keeps_its_fingerprint_whatever_is_built_before_it() -> None:
    alone = replace(SAY, indices=())
    with_index = resolve((*PLAN[:4], alone), MODELS).fingerprints["say"]
    assert with_index == resolve((*PLAN[:3], alone), MODELS).fingerprints["say"]
    assert with_index != resolve(PLAN, MODELS).fingerprints["say"]


def test_a_step_may_say_nothing_of_version_and_settings() -> None:
    first = resolve(PLAN, MODELS).fingerprints["facts"]
    assert resolve((PIECES, replace(FACTS, version=2)), MODELS).fingerprints["facts"] != first
    assert resolve((PIECES, replace(FACTS, version=1)), MODELS).fingerprints["facts"] == first


@pytest.mark.parametrize("indices", [("other",), ("merge",), ("say",)])
def test_index_files_of_no_earlier_build_step_are_refused(indices: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=rf"'say' reads the files of '{indices[0]}'.*such steps: \['index'\]"):
        resolve((*PLAN[:4], replace(SAY, indices=indices)), MODELS)


@pytest.mark.parametrize(
    "step",
    [
        replace(MERGE, name="again", outputs=(), indices=("index",)),
        replace(FACTS, name="again", outputs=(), indices=("index",)),
        replace(PIECES, name="again", outputs=(), indices=("index",)),
    ],
)
def test_index_files_are_refused_to_steps_that_cannot_read_them(step: AnyStep) -> None:
    with pytest.raises(ValueError, match=rf"'again' names the indices \['index'\], but a {type(step).__name__} reads"):
        resolve((*PLAN, step), MODELS)


def test_a_build_step_makes_something_that_can_be_told() -> None:
    with pytest.raises(ValueError, match="'index' makes neither files nor tables"):
        resolve((*PLAN[:3], replace(INDEX, files=())), MODELS)
    with pytest.raises(ValueError, match="'index' makes files alone, which no digest covers"):
        resolve((*PLAN[:3], replace(INDEX, pinned=True)), MODELS)
    tables = replace(INDEX, files=(), outputs=(spec("codes"),))
    with pytest.raises(ValueError, match="'say' reads the files of 'index', which is no build step before it that"):
        resolve((*PLAN[:3], tables, SAY), MODELS)
