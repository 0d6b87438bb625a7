import asyncio
import pickle

import numpy as np
import pyarrow as pa
import pytest

from corpusmill.hashing import hash_text
from corpusmill.methods.common.vectors import (
    chunk_units,
    chunk_vector_step,
    embed_passages,
    vector_array,
    vector_matrix,
    vector_step,
)
from corpusmill.models.embedders import build_embedder
from corpusmill.models.factory import RunModels
from corpusmill.schemas import CHUNKS, vector_table
from corpusmill.settings import EmbedderSettings
from corpusmill.steps import StepContext, StepOutput, Text

DIM = 256
EMBEDDER = build_embedder(EmbedderSettings(backend="hash"))


class Recording:
    """The hashing embedder, remembering what it was asked for."""

    def __init__(self) -> None:
        self.fingerprint, self.dim = EMBEDDER.fingerprint, EMBEDDER.dim
        self.asked: list[list[str]] = []

    async def embed(self, texts: list[str], kind: str) -> np.ndarray:
        assert kind == "passage"
        self.asked.append(list(texts))
        return await EMBEDDER.embed(texts, "passage")

    async def aclose(self) -> None:
        return None


def pairs(text: Text, table: pa.Table) -> list[tuple[str, str]]:
    return [(row["id"], row["text"]) for row in table.to_pylist()]


def run(rows: list[dict[str, str]], embedder: object) -> StepOutput:
    step = vector_step("unit_vectors", "units", pairs, DIM)
    table = pa.Table.from_pylist(rows, schema=pa.schema([("id", pa.string()), ("text", pa.string())]))
    models = RunModels(lambda role: None, lambda: embedder)  # type: ignore[arg-type,return-value]
    return asyncio.run(step.run(Text("t" * 32, ""), {"units": table}, StepContext(step.settings, "", models)))  # type: ignore[arg-type]


def test_equal_texts_are_embedded_once_and_every_unit_has_its_row() -> None:
    embedder = Recording()
    out = run([{"id": str(n), "text": f"word{n % 3}"} for n in range(9)], embedder)
    table = out.tables["unit_vectors"]
    assert embedder.asked == [["word0", "word1", "word2"]]
    assert table.column("unit_id").to_pylist() == [str(n) for n in range(9)]
    assert table.column("input_hash").to_pylist() == [hash_text(f"word{n % 3}") for n in range(9)]
    matrix = vector_matrix(table, ["4", "1", "0"])
    expected = asyncio.run(EMBEDDER.embed(["word1", "word1", "word0"], "passage"))
    assert np.array_equal(matrix, expected)


def test_many_texts_go_in_batches_and_come_back_in_order() -> None:
    embedder = Recording()
    texts = [f"text {n}" for n in range(600)]
    vectors = asyncio.run(embed_passages(embedder, texts))  # type: ignore[arg-type]
    assert [len(batch) for batch in embedder.asked] == [256, 256, 88]
    assert np.array_equal(vectors, asyncio.run(EMBEDDER.embed(texts, "passage")))


def test_no_units_no_call() -> None:
    embedder = Recording()
    out = run([], embedder)
    assert embedder.asked == [] and out.tables["unit_vectors"].num_rows == 0
    assert out.tables["unit_vectors"].schema.equals(vector_table("unit_vectors", DIM).schema)


def test_vectors_of_another_dimension_are_refused() -> None:
    with pytest.raises(ValueError, match="holds vectors of 3 numbers, got 2"):
        vector_array(np.ones((2, 2), dtype=np.float32), vector_table("v", 3))


def test_a_unit_without_a_vector_is_an_error() -> None:
    table = run([{"id": "a", "text": "x"}], Recording()).tables["unit_vectors"]
    with pytest.raises(KeyError, match="b"):
        vector_matrix(table, ["b"])


def test_a_step_travels_between_processes() -> None:
    step = pickle.loads(pickle.dumps(chunk_vector_step(DIM)))  # noqa: S301
    assert step.outputs[0].name == "chunk_vectors" and step.run.units is chunk_units and step.embeds


def test_a_chunk_is_embedded_as_its_own_text() -> None:
    row = {"text_hash": "t", "chunk_id": "c", "ordinal": 0, "start": 6, "end": 11, "tokens": 1}
    assert chunk_units(Text("t", "hello world again"), CHUNKS.table([row])) == [("c", "world")]
