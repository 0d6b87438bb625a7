"""Retrieval (step 8): wordings of the question ranked one by one, fused by reciprocal rank, reranked, cut."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from corpusmill.errors import UsageError
from corpusmill.methods.common.passages import PassageSearch
from corpusmill.methods.common.ranking import as_evidence
from corpusmill.methods.contextrag.scoring import Scorer, Unit, open_scorer
from corpusmill.methods.contextrag.settings import ContextSettings
from corpusmill.methods.protocol import Evidence, Retrieval, Scope, Snapshot, Source
from corpusmill.models.embedders.common import knows_script
from corpusmill.retrieval.fusion import rrf
from corpusmill.retrieval.tasks import EXPAND, ExpandInput, shorten
from corpusmill.segmentation.sentences import sentences
from corpusmill.steps import Models

if TYPE_CHECKING:
    from corpusmill.settings import Settings

MODES = ("hybrid", "fast", "structure")
LEAD_CHARS = 300  # of one chunk in the text of a concept


class ContextRetriever:
    """Modes: `hybrid` (all), `fast` (the question as it is, no reranking: no model call), `structure` (routing,
    summaries and bridges alone, for measuring what they add)."""

    modes: tuple[str, ...] = MODES

    def __init__(self, settings: "Settings", snapshot: Snapshot, models: Models) -> None:
        own = settings.method("contextrag")
        assert isinstance(own, ContextSettings)
        self.settings = own
        self.default_mode: str = own.mode
        self.passages = PassageSearch(snapshot, settings.vector_index.nprobe)
        self._embedder = settings.embedder.backend
        rules = settings.models.of(EXPAND.role).backend == "embedded"
        self._reformulates = own.reformulations == "always" or (own.reformulations == "auto" and not rules)
        self._snapshot = snapshot
        self._models = models
        self._scorer: Scorer | None = None

    async def retrieve(self, question: str, mode: str, scope: Scope | None = None) -> Retrieval:
        """Evidence for the question, best first. Raises UsageError on an unknown mode."""
        if mode not in MODES:
            raise UsageError(f"unknown mode {mode!r} of method contextrag; choices: {', '.join(MODES)}")
        own, started = self.settings, time.perf_counter()
        short = shorten(question)
        wordings, calls = [short], 0
        if mode == "hybrid" and self._reformulates:
            wordings, calls = await self._wordings(short), 1
        expanded = time.perf_counter()
        vectors = await self._vectors(wordings)
        rankings = [
            self.scorer.rank(wording, vector, scope, mode) for wording, vector in zip(wordings, vectors, strict=True)
        ]
        orders = [self._first(sorted(scores, key=lambda unit: (-scores[unit], unit)), own.pool) for scores in rankings]
        fused = dict(rrf(orders, own.rrf_k)) if len(orders) > 1 else {unit: rankings[0][unit] for unit in orders[0]}
        searched = time.perf_counter()
        evidence = [self._evidence(unit, fused[unit], scope) for unit in self._first(list(fused), own.pool)]
        if own.rerank and mode == "hybrid" and evidence:
            evidence = await self._reranked(short, evidence)
            calls += self._models.reranker.calls(len(evidence))
        timings = {
            "wordings": expanded - started,
            "search": searched - expanded,
            "rerank": time.perf_counter() - searched,
        }
        kinds = [(piece.kind, place) for place, piece in enumerate(evidence)]
        kept = tuple(evidence[place] for _, place in self._first(kinds, own.top))
        return Retrieval(kept, timings, calls)

    def _first(self, ranked: Sequence[Unit], count: int) -> list[Unit]:
        """The head of a ranking: `count` passages with the other units among them, or `count` units of any kind."""
        if self.settings.slots == "shared":
            return list(ranked[:count])
        passages = [place for place, (kind, _) in enumerate(ranked) if kind == "passage"]
        end = passages[count - 1] + 1 if len(passages) >= count else len(ranked)
        return list(ranked[:end])

    @property
    def scorer(self) -> Scorer:
        """Opened at first use."""
        if self._scorer is None:
            self._scorer = open_scorer(self.settings, self.passages, self._snapshot)
        return self._scorer

    async def _wordings(self, question: str) -> list[str]:
        """The question and its other wordings, each once."""
        asked = await self._models.language_model(EXPAND.role).generate(EXPAND, ExpandInput(question=question))
        return [question, *asked.value.variants(question)]

    async def _vectors(self, wordings: Sequence[str]) -> list[np.ndarray | None]:
        """Vectors of the wordings; None for one in a script that the embedder does not know: words decide alone."""
        known = [text for text in wordings if knows_script(text, self._embedder)]
        by_text: dict[str, np.ndarray] = {}
        if known:
            by_text.update(zip(known, await self._models.embedder.embed(known, "query"), strict=True))
        return [by_text.get(text) for text in wordings]

    async def _reranked(self, question: str, evidence: list[Evidence]) -> list[Evidence]:
        scores = await self._models.reranker.rerank(question, [piece.text for piece in evidence])
        order = np.lexsort((np.arange(len(scores)), -np.asarray(scores)))
        return [evidence[place] for place in order]

    def _evidence(self, unit: Unit, score: float, scope: Scope | None) -> Evidence:
        kind, place = unit
        if kind == "passage":
            return as_evidence(self.passages.passage(place, score), self._snapshot)
        if kind == "summary":
            summary = self.scorer.summaries[place]
            return Evidence(kind, summary.summary_id, score, summary.text, summary.sources)
        return self._concept(place, score, scope)

    def _concept(self, bridge: int, score: float, scope: Scope | None) -> Evidence:
        """A bridge stands for its strongest chunks: its text is their first sentences, its sources are they."""
        space = self.scorer.space
        assert space is not None
        found = [self.passages.passage(row, 0.0) for row in self.scorer.leaders(bridge, self.passages.allowed(scope))]
        leads = [self._lead(passage.span.of(self._snapshot.text(passage.text_hash))) for passage in found]
        sources = tuple(Source(passage.text_hash, passage.span) for passage in found)
        return Evidence("concept", space.bridge_ids[bridge], score, "\n".join(leads), sources)

    def _lead(self, text: str) -> str:
        """The first sentence of a chunk, so far as it is short."""
        first = next(iter(sentences(text)), None)
        return (first.of(text) if first is not None else text)[:LEAD_CHARS]
