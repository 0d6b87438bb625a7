"""Vectors of the units of a text: chunks here, a method's own units through `vector_step`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from corpusmill.hashing import hash_text
from corpusmill.methods.common.ordered import ordered_map
from corpusmill.models.contracts import Embedder
from corpusmill.schemas import TableSpec, vector_table
from corpusmill.steps import DocumentStep, StepContext, StepOutput, Text

CHUNK_VECTORS = "chunk_vectors"
_BATCH = 256  # texts handed to the embedder at once
_BATCHES_IN_FLIGHT = 4  # of one text

Units = Callable[[Text, pa.Table], Sequence[tuple[str, str]]]


class VectorSettings(BaseModel):
    """Nothing but the units and the embedder, both in the fingerprint, changes a vector."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class UnitVectors:
    """The function of a vector step: embeds the units that `units` reads from the step's one input table."""

    input_table: str
    output: TableSpec
    units: Units

    async def __call__(self, text: Text, tables: Mapping[str, pa.Table], ctx: StepContext) -> StepOutput:
        units = self.units(text, tables[self.input_table])
        distinct = list(dict.fromkeys(written for _, written in units))
        vectors = await embed_passages(ctx.models.embedder, distinct)
        place = {written: at for at, written in enumerate(distinct)}
        rows = np.array([place[written] for _, written in units], dtype=np.int64)
        table = pa.Table.from_arrays(
            [
                pa.array([text.text_hash] * len(units), pa.string()),
                pa.array([unit_id for unit_id, _ in units], pa.string()),
                pa.array([hash_text(written) for _, written in units], pa.string()),
                vector_array(vectors[rows], self.output),
            ],
            schema=self.output.schema,
        )
        return StepOutput({self.output.name: table})


def vector_step(name: str, input_table: str, units: Units, dim: int, version: int = 1) -> DocumentStep:
    """A step that makes the table `name`: one vector for each (unit_id, embedded text) that `units` returns.

    `units(text, table)` is a module-level function (steps travel between processes); `version` rises with a change of
    what it returns. Equal texts are embedded once.
    """
    output = vector_table(name, dim)
    return DocumentStep(
        name=name,
        version=version,
        settings=VectorSettings(),
        inputs=(input_table,),
        outputs=(output,),
        embeds=True,
        run=UnitVectors(input_table, output, units),
    )


async def embed_passages(embedder: Embedder, texts: Sequence[str]) -> np.ndarray:
    """float32 [len(texts), dim] of kind "passage", in batches. Raises ValueError on vectors of another shape."""
    batches = [texts[at : at + _BATCH] for at in range(0, len(texts), _BATCH)]

    async def embed(batch: Sequence[str]) -> np.ndarray:
        vectors = np.asarray(await embedder.embed(batch, "passage"), dtype=np.float32)
        if vectors.shape != (len(batch), embedder.dim):
            raise ValueError(
                f"embedder {embedder.fingerprint} gave vectors of shape {vectors.shape} for {len(batch)} texts, "
                f"expected ({len(batch)}, {embedder.dim})"
            )
        return vectors

    parts = await ordered_map(embed, batches, _BATCHES_IN_FLIGHT)
    return np.concatenate(parts) if parts else np.empty((0, embedder.dim), dtype=np.float32)


def vector_array(vectors: np.ndarray, spec: TableSpec) -> pa.Array:
    """Rows of `vectors` [n, d] as the `vector` column of `spec`. Raises ValueError if d is not the table's."""
    kind = spec.schema.field("vector").type
    if len(vectors) and vectors.shape[1] != kind.list_size:
        raise ValueError(f"table {spec.name!r} holds vectors of {kind.list_size} numbers, got {vectors.shape[1]}")
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1), pa.float32()), type=kind)


def vector_matrix(table: pa.Table, unit_ids: Sequence[str]) -> np.ndarray:
    """The vectors of `unit_ids`, in their order, float32 [n, dim]. Raises KeyError on a unit without a vector."""
    column = table.column("vector").combine_chunks()
    dim = column.type.list_size
    matrix = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, dim)
    place = {unit: at for at, unit in enumerate(table.column("unit_id").to_pylist())}
    rows = np.array([place[unit] for unit in unit_ids], dtype=np.int64)
    return np.ascontiguousarray(matrix[rows])


def chunk_units(text: Text, chunks: pa.Table) -> list[tuple[str, str]]:
    """Each chunk's own text."""
    columns = (chunks.column(name).to_pylist() for name in ("chunk_id", "start", "end"))
    return [(chunk_id, text.text[start:end]) for chunk_id, start, end in zip(*columns, strict=True)]


def chunk_vector_step(dim: int) -> DocumentStep:
    """Vectors of chunks, shared by every method with the same chunks and embedder."""
    return vector_step(CHUNK_VECTORS, "chunks", chunk_units, dim)
