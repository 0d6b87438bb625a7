"""Section 8: entities by name, hyperedges and edges by meaning, clusters of what was found; then passages to fill.

Modes: `hypergraph` (entities, hyperedges, clusters), `graph` (entities, edges), `hybrid` (all).
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from corpusmill.errors import UsageError
from corpusmill.methods.common.passages import Passage, PassageSearch, open_vectors
from corpusmill.methods.common.ranking import as_evidence
from corpusmill.methods.flexstructrag.calibration import embedder_name, thresholds
from corpusmill.methods.flexstructrag.diffusion import EntityGraph
from corpusmill.methods.flexstructrag.lookup import StructureLookup
from corpusmill.methods.flexstructrag.settings import FlexSettings
from corpusmill.methods.protocol import Evidence, Retrieval, Scope, Snapshot, Source
from corpusmill.models.embedders.common import knows_script
from corpusmill.names import normal_form
from corpusmill.retrieval.tasks import QUERY_ENTITIES, QueryEntitiesInput, shorten
from corpusmill.retrieval.vectors import Hit
from corpusmill.steps import Models

if TYPE_CHECKING:
    from corpusmill.settings import Settings

MODES: tuple[str, ...] = ("hypergraph", "graph", "hybrid")
STATEMENT_INDEX, EDGE_INDEX = "statement_index", "edge_index"
NEAREST = 50  # statements by cosine that order entities and start the walk, thresholds aside
KEPT_HEAD = 1  # passages that word and vector search keep in front of the walk's
MAX_SOURCES = 64  # statements of one entity that are given as its sources


@dataclass(frozen=True)
class Found:
    """What of the structure a question found, before it becomes evidence; each best first."""

    vector: np.ndarray | None  # None: the embedder does not know the question's script
    names: tuple[str, ...]
    entities: tuple[str, ...]  # canonical ids
    hyperedges: tuple[Hit, ...]
    edges: tuple[Hit, ...]
    nearest: tuple[Hit, ...]  # best hyperedges whatever their cosine: seeds of the walk


class FlexRetriever:
    """Retrieval over one pinned snapshot; indices and tables are read at first use."""

    modes = MODES

    def __init__(self, settings: "Settings", snapshot: Snapshot, models: Models) -> None:
        own = settings.method("flexstructrag")
        assert isinstance(own, FlexSettings)
        self.settings = own
        self.default_mode: str = own.mode
        self._query = settings.query
        self._embedder = settings.embedder.backend
        self._snapshot = snapshot
        self._models = models
        calibrated = thresholds(embedder_name(settings.embedder))
        self.tau_hyperedge = calibrated.tau_hyperedge if own.tau_hyperedge is None else own.tau_hyperedge
        self.tau_edge = calibrated.tau_edge if own.tau_edge is None else own.tau_edge
        nprobe = settings.vector_index.nprobe
        self.passages = PassageSearch(snapshot, nprobe)
        self._statements = open_vectors(snapshot, STATEMENT_INDEX, nprobe)
        self._edges = open_vectors(snapshot, EDGE_INDEX, nprobe)
        self._lookup = StructureLookup(snapshot)
        self._graph: EntityGraph | None = None

    async def retrieve(self, question: str, mode: str, scope: Scope | None = None) -> Retrieval:
        """Evidence for the question. Raises UsageError on an unknown mode."""
        if mode not in MODES:
            raise UsageError(f"unknown mode {mode!r} of method flexstructrag; choices: {', '.join(MODES)}")
        started = time.perf_counter()
        found = await self.find(question, mode, scope)
        searched = time.perf_counter()
        evidence = self.structure(found, mode, scope)
        assembled = time.perf_counter()
        if self._query.fill and self._query.passages:
            passages = self.fill(question, found, self._query.passages, scope)
            evidence += [as_evidence(passage, self._snapshot) for passage in passages]
        timings = {
            "search": searched - started,
            "structure": assembled - searched,
            "passages": time.perf_counter() - assembled,
        }
        return Retrieval(tuple(evidence), timings, calls=1)

    async def find(self, question: str, mode: str, scope: Scope | None = None) -> Found:
        """Names by the model, vectors by the embedder, and what the indices return for them.

        In a script that the embedder does not know its cosines are noise: then names and words carry alone.
        """
        short = shorten(question)
        asked = await self._models.language_model("plan").generate(QUERY_ENTITIES, QueryEntitiesInput(question=short))
        names = tuple(asked.value.entities)
        if not knows_script(short, self._embedder):
            return Found(None, names, self.match(names, (), scope), (), (), ())
        vector = (await self._models.embedder.embed([short], "query"))[0]
        own = self.settings
        texts = None if scope is None else scope.texts
        nearest = self._statements.search(vector, max(own.n_hyperedges, NEAREST), 0.0, texts)
        hyperedges = [hit for hit in nearest if hit[2] > self.tau_hyperedge][: own.n_hyperedges]
        edges = [] if mode == "hypergraph" else self._edges.search(vector, own.n_edges, self.tau_edge, texts)
        entities = self.match(names, nearest, scope)
        return Found(vector, names, entities, tuple(hyperedges), tuple(edges), tuple(nearest))

    def match(self, names: Sequence[str], nearest: Sequence[Hit], scope: Scope | None = None) -> tuple[str, ...]:
        """Canonical entities of the names, in their order; an alias counts only where no entity has the name itself.

        Of several entities with one name, those in statements near the question come first, then the busier ones.
        """
        forms = [normal_form(name) for name in names]
        known = [self._named(form, False, scope) or self._named(form, True, scope) for form in forms]
        place: dict[str, int] = {}
        if any(len(entities) > 1 for entities in known):
            for i, hit in enumerate(nearest):
                for entity in self._lookup.entities_of(hit[1]):
                    place.setdefault(entity, i)
        out: dict[str, None] = {}
        for entities in known:
            ranked = sorted(entities, key=lambda e: (place.get(e, len(nearest)), -self._lookup.degree(e), e))
            out.update(dict.fromkeys(ranked))
        return tuple(out)[: self.settings.n_entities]

    def _named(self, form: str, alias: bool, scope: Scope | None) -> list[str]:
        known = self._lookup.named(form, alias)
        return known if scope is None else [entity for entity in known if self._lookup.stands_in(entity, scope.texts)]

    def structure(self, found: Found, mode: str, scope: Scope | None = None) -> list[Evidence]:
        """The structure's own evidence: entities, hyperedges, edges, clusters, as the mode has them.

        What was found within a scope is within it; of an entity, sources and text are also kept to it.
        """
        cosine = {unit: score for _, unit, score in found.nearest}
        entities = (self._entity(entity, cosine, scope) for entity in found.entities)
        evidence = [entity for entity in entities if entity is not None]
        if mode != "graph":
            evidence += [self._hyperedge(hit) for hit in found.hyperedges]
        if mode != "hypergraph":
            evidence += [self._edge(hit) for hit in found.edges]
        if mode != "graph":
            evidence += self._clusters(found.hyperedges)
        return evidence

    def fill(self, question: str, found: Found, k: int, scope: Scope | None = None) -> list[Passage]:
        """The best `k` passages, ranked as `passage_ranking` says.

        `diffusion` keeps the best by words and meaning in front: an answer that one passage holds is found by it, and
        what needs several passages by the walk.
        """
        fused = self.passages.scores(shorten(question), found.vector, scope=scope)
        best = sorted(fused, key=lambda row: (-fused[row], row))
        head, scores = best[:KEPT_HEAD], dict(fused)
        if self._walks(found):
            seeds = [(unit, score) for _, unit, score in found.nearest]
            walked = self.graph.rank(seeds, found.entities, fused)
            if (allowed := self.passages.allowed(scope)) is not None:
                walked = {row: share for row, share in walked.items() if allowed[row]}
            rest = sorted(walked.keys() - set(head), key=lambda row: (-walked[row], row))
            if rest:
                scale = min((fused[row] for row in head), default=1.0) / walked[rest[0]]
                scores |= {row: walked[row] * scale for row in rest}
                best = [*head, *rest]
        return [self.passages.passage(row, scores[row]) for row in best[:k]]

    def _walks(self, found: Found) -> bool:
        own = self.settings
        wanted = own.passage_ranking == "diffusion" and found.vector is not None
        return wanted and self._lookup.statements <= own.diffusion_max

    @property
    def graph(self) -> EntityGraph:
        if self._graph is None:
            chunks = self.passages.table.column("chunk_id").to_pylist()
            self._graph = EntityGraph(self._snapshot, {chunk: row for row, chunk in enumerate(chunks)})
        return self._graph

    def _entity(self, entity_id: str, cosine: Mapping[str, float], scope: Scope | None) -> Evidence | None:
        """Sources: the spans of its members' statements, those near the question first. None: it has none in scope.

        The merged text speaks of all documents: where some are out of scope, what those of the sources say stands
        for it.
        """
        rows = self._lookup.statements_of(entity_id)
        if scope is not None:
            rows = [row for row in rows if row["text_hash"] in scope]
            if not rows:
                return None
        rows.sort(key=lambda row: -cosine.get(str(row["hyperedge_id"]), 0.0))
        sources = tuple(self._lookup.source(row) for row in rows[:MAX_SOURCES])
        score = max((cosine.get(str(row["hyperedge_id"]), 0.0) for row in rows), default=0.0)
        if scope is None or self._lookup.stands_only_in(entity_id, scope.texts):
            text = self._lookup.entity_text(entity_id)
        else:
            text = self._lookup.local_text(entity_id, {source.text_hash for source in sources})
        return Evidence("entity", entity_id, score, text, sources)

    def _hyperedge(self, hit: Hit) -> Evidence:
        row = self._lookup.statement(hit[1])
        return Evidence("hyperedge", hit[1], hit[2], str(row["text"]), (self._lookup.source(row),))

    def _edge(self, hit: Hit) -> Evidence:
        row = self._lookup.edge(hit[1])
        source = self._lookup.source(row)
        return Evidence(
            "edge", hit[1], hit[2], f"{row['source_name']} – {row['target_name']}: {row['text']}", (source,)
        )

    def _clusters(self, hyperedges: Iterable[Hit]) -> list[Evidence]:
        """Clusters that hold a retrieved hyperedge, by their best one; text: the members' refs in extraction order."""
        best: dict[str, float] = {}
        for _, unit, score in hyperedges:
            for cluster in self._lookup.clusters_of(unit):
                best[cluster] = max(best.get(cluster, -1.0), score)
        out = []
        for cluster, score in sorted(best.items(), key=lambda item: (-item[1], item[0])):
            text_hash, spans = self._lookup.cluster(cluster)
            text = self._snapshot.text(text_hash)
            sources = tuple(Source(text_hash, span) for span in spans)
            out.append(Evidence("cluster", cluster, score, "\n".join(span.of(text) for span in spans), sources))
        return out
