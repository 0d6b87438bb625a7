"""bm25 as a method: chunks and their lexical index, nothing else."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import BaseModel

from corpusmill.methods.bm25.settings import Bm25Settings
from corpusmill.methods.common.chunks import chunk_step
from corpusmill.methods.common.passages import lexical_step
from corpusmill.methods.protocol import Method, Retriever, Snapshot
from corpusmill.steps import AnyStep, Models

if TYPE_CHECKING:
    from corpusmill.settings import Settings


class Bm25:
    """Passages ranked by BM25 over tokens of any script."""

    name = "bm25"
    summary = "passages by the words that they share with the question; no model, no embedding"
    modes: tuple[str, ...] = ("lexical",)
    settings_type: type[BaseModel] = Bm25Settings

    def plan(self, settings: "Settings", dim: int) -> Sequence[AnyStep]:
        return (chunk_step(settings), lexical_step())

    def retriever(self, settings: "Settings", snapshot: Snapshot, models: Models) -> Retriever:
        from corpusmill.methods.common.passage_retriever import PassageRetriever

        own = settings.method(self.name)
        assert isinstance(own, Bm25Settings)
        return PassageRetriever(self.name, ("lexical",), settings, snapshot, models, top=own.passages)


METHOD: Method = Bm25()
