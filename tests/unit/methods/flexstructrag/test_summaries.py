"""The summary tree: what one edit costs, order independence, and a model that fails."""

import asyncio
import random

import numpy as np
import pytest

from corpusmill.errors import ModelOutputError
from corpusmill.hashing import hash_text
from corpusmill.methods.flexstructrag.summaries import MergedSummarySettings, entity_texts
from corpusmill.methods.flexstructrag.tables import ENTITY_PARTS
from corpusmill.methods.flexstructrag.tasks import MergedSummary, MergeSummaryInput
from corpusmill.models.contracts import Generation, Usage
from corpusmill.steps import StepContext


class CountingModel:
    """Answers with the hash of its inputs; counts the calls that it has not answered before."""

    fingerprint = "counting"

    def __init__(self, fails_on: str | None = None) -> None:
        self.known: set[tuple[str, ...]] = set()
        self.fails_on = fails_on

    async def generate(self, task, inputs: MergeSummaryInput, *, affinity=None):  # type: ignore[no-untyped-def]
        if self.fails_on is not None and self.fails_on in inputs.parts:
            raise ModelOutputError("nonsense")
        self.known.add(inputs.parts)
        return Generation(MergedSummary(summary=hash_text("\x00".join(inputs.parts))), Usage(calls=1))

    async def aclose(self) -> None: ...


class OneModel:
    def __init__(self, model: CountingModel) -> None:
        self.model = model

    def language_model(self, role: str) -> CountingModel:
        return self.model

    embedder = None

    async def cluster(self, call, *args):  # type: ignore[no-untyped-def]
        return np.array(call(*args))


def _run(model: CountingModel, texts: list[str], tau_s: int = 9, fan_in: int = 16) -> dict[str, object]:
    rows = [{"entity_id": "e", "name": "Apple", "part_hash": hash_text(t), "part": t} for t in texts]
    ctx = StepContext(MergedSummarySettings(tau_s=tau_s, fan_in=fan_in), "f", OneModel(model))  # type: ignore[arg-type]
    output = asyncio.run(entity_texts(ENTITY_PARTS.table(rows), ctx))
    (row,) = output.tables["entity_texts"].to_pylist()
    return {**row, "failures": output.failures}


def test_few_parts_are_joined_in_hash_order_without_a_call() -> None:
    model = CountingModel()
    texts = [f"part {k}" for k in range(9)]
    row = _run(model, texts)
    assert row["text"] == "\n".join(sorted(texts, key=hash_text))
    assert (row["summarised"], row["parts"], len(model.known)) == (False, 9, 0)


def test_the_order_of_rows_does_not_matter() -> None:
    texts = [f"part {k}" for k in range(200)]
    shuffled = random.Random(1).sample(texts, len(texts))
    assert _run(CountingModel(), texts) == _run(CountingModel(), shuffled)
    assert _run(CountingModel(), texts)["summarised"] is True


@pytest.mark.parametrize("edited", [0, 1234, 9999])
def test_an_edit_of_one_of_ten_thousand_parts_repays_log_n_nodes(edited: int) -> None:
    model = CountingModel()
    texts = [f"part {k}" for k in range(10_000)]
    first = _run(model, texts)
    cost = len(model.known)
    assert cost < 10_000 / 8  # nodes are well filled
    texts[edited] += " edited"
    second = _run(model, texts)
    assert second["text"] != first["text"]
    assert len(model.known) - cost <= 2 * 5 + 4  # two paths of at most five levels, and a split or a join


def test_a_node_that_fails_falls_back_to_the_rule_and_is_marked() -> None:
    texts = [f"Apple is part {k} of the tree." for k in range(40)]
    row = _run(CountingModel(fails_on=texts[7]), texts)
    assert row["summarised"] is False
    assert row["text"]
    (reason,) = row["failures"]
    assert "Apple" in reason and "nonsense" in reason
    assert _run(CountingModel(), texts)["failures"] == ()
