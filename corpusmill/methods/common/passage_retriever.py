"""Retrieval of passages alone, by words, by meaning or by both, and reranked where asked: what the baselines share."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from corpusmill.errors import UsageError
from corpusmill.methods.common.passages import Passage, PassageSearch
from corpusmill.methods.common.ranking import as_evidence
from corpusmill.methods.protocol import Evidence, Retrieval, Scope, Snapshot
from corpusmill.models.embedders.common import knows_script
from corpusmill.retrieval.tasks import shorten
from corpusmill.steps import Models

if TYPE_CHECKING:
    from corpusmill.settings import Settings

Mode = Literal["lexical", "dense", "hybrid"]


class PassageRetriever:
    """The best `top` passages. With `candidates` the best so many are reranked first.

    `lexical` opens no vector index and asks no embedder. `dense` is the cosine alone, also in a script that the
    embedder does not know; there `hybrid` goes by words.
    """

    def __init__(
        self,
        method: str,
        modes: Sequence[Mode],
        settings: "Settings",
        snapshot: Snapshot,
        models: Models,
        *,
        top: int,
        candidates: int = 0,
        default: Mode | None = None,
    ) -> None:
        self.modes: tuple[str, ...] = tuple(modes)
        self.default_mode: str = default or modes[0]
        self.passages = PassageSearch(snapshot, settings.vector_index.nprobe)
        self._method = method
        self._embedder = settings.embedder.backend
        self._snapshot = snapshot
        self._models = models
        self._top = top
        self._candidates = candidates

    async def retrieve(self, question: str, mode: str, scope: Scope | None = None) -> Retrieval:
        """Passages as evidence, best first. Raises UsageError on an unknown mode, ModelError."""
        if mode not in self.modes:
            raise UsageError(f"unknown mode {mode!r} of method {self._method}; choices: {', '.join(self.modes)}")
        started = time.perf_counter()
        short = shorten(question)
        found = await self._search(short, mode, max(self._candidates, self._top), scope)
        evidence = [as_evidence(passage, self._snapshot) for passage in found]
        timings = {"search": time.perf_counter() - started}
        calls = 0
        if self._candidates and evidence:
            evidence, calls = await reranked(short, evidence, self._models)
            timings["rerank"] = time.perf_counter() - started - timings["search"]
        return Retrieval(tuple(evidence[: self._top]), timings, calls)

    async def _search(self, question: str, mode: str, k: int, scope: Scope | None) -> list[Passage]:
        if mode == "lexical":
            return self.passages.bm25(question, k, scope)
        if mode == "hybrid" and not knows_script(question, self._embedder):
            return self.passages.hybrid(question, None, k, scope)
        vector = (await self._models.embedder.embed([question], "query"))[0]
        if mode == "dense":
            return self.passages.dense(vector, k, scope)
        return self.passages.hybrid(question, vector, k, scope)


async def reranked(question: str, evidence: Sequence[Evidence], models: Models) -> tuple[list[Evidence], int]:
    """The evidence by the reranker's scores, which replace its own, equal ones in the order given; and the model calls
    that it took."""
    scores = await models.reranker.rerank(question, [piece.text for piece in evidence])
    order = sorted(range(len(evidence)), key=lambda place: -float(scores[place]))
    return [replace(evidence[place], score=float(scores[place])) for place in order], models.reranker.calls(
        len(evidence)
    )
