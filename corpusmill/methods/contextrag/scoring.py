"""One ranking of passages, summaries and bridges for one wording of a question (step 7)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from corpusmill.methods.common.passages import PassageSearch
from corpusmill.methods.contextrag.settings import ContextSettings
from corpusmill.methods.contextrag.space import ConceptSpace, open_space, top_rows
from corpusmill.methods.protocol import Scope, Snapshot, Source
from corpusmill.retrieval.lexical import K1, B
from corpusmill.retrieval.tokenizer import tokens
from corpusmill.retrieval.vectors import matrix
from corpusmill.spans import Span

Unit = tuple[str, int]  # ("passage", row), ("summary", place), ("concept", bridge)


@dataclass(frozen=True)
class Summary:
    """A virtual chunk."""

    summary_id: str
    text: str
    topic: int
    sources: tuple[Source, ...]
    terms: tuple[str, ...]


@dataclass(frozen=True)
class Parts:
    """The three parts of a score before scaling, weights and boosts; float64, one entry a unit. The first `passages`
    units are passages."""

    units: tuple[Unit, ...]
    bm25: np.ndarray
    cosine: np.ndarray
    fuzzy: np.ndarray
    passages: int


@dataclass
class Scorer:
    """Scores the units of a snapshot. `space` None: there is no concept graph, and summaries and bridges neither."""

    settings: ContextSettings
    passages: PassageSearch
    space: ConceptSpace | None
    summaries: tuple[Summary, ...]
    summary_vectors: np.ndarray
    mean_tokens: float
    _leaders: dict[int, list[int]] = field(default_factory=dict)

    def rank(
        self, text: str, vector: np.ndarray | None, scope: Scope | None = None, mode: str = "hybrid"
    ) -> dict[Unit, float]:
        """unit -> score of the candidates. Mode `structure`: units by the structure's own signals, which are fuzzy
        routing, summaries and bridges; no passage enters for its words or its vector alone."""
        own = self.settings
        weights = np.array([own.bm25_weight, own.cosine_weight, own.fuzzy_weight])
        parts = self.raw(text, vector, scope, structure_alone=mode == "structure")
        if not parts.units:
            return {}
        scaled = self._scaled(parts)
        if mode == "structure":
            passage = np.array([kind == "passage" for kind, _ in parts.units])
            weights = np.where(passage, np.array([[0.0], [0.0], [1.0]]), weights[:, None])
        else:
            weights = np.repeat(weights[:, None], len(parts.units), axis=1)
        boosts = {"passage": 1.0, "summary": own.summary_boost, "concept": own.bridge_boost}
        scores = (scaled * weights).sum(axis=0) * np.array([boosts[kind] for kind, _ in parts.units])
        return dict(zip(parts.units, scores.tolist(), strict=True))

    def raw(
        self, text: str, vector: np.ndarray | None, scope: Scope | None = None, *, structure_alone: bool = False
    ) -> Parts:
        """The unscaled parts of all candidates: passages that any signal puts forward, summaries, active bridges."""
        among = self.passages.allowed(scope)
        lexical = self.passages.lexical.scores(text)
        mu = self.space.activation(vector) if self.space is not None and vector is not None else None
        rows = self._candidates(lexical, vector, mu, scope, among, structure_alone)
        units: list[Unit] = [("passage", row) for row in rows]
        places = np.array(rows, np.int64)
        bm25 = [float(lexical[row]) for row in rows]
        cosine = self._cosines(vector, places)
        fuzzy = (
            self.space.fuzzy(mu, places).tolist() if self.space is not None and mu is not None else [0.0] * len(rows)
        )
        if self.space is not None and mu is not None and vector is not None:
            for place, summary in enumerate(self.summaries):
                if scope is None or all(source.text_hash in scope for source in summary.sources):
                    units.append(("summary", place))
                    bm25.append(self._bm25_of(summary.terms, text))
                    cosine.append(float(self.summary_vectors[place] @ vector))
                    seed = self.space.topics.get(summary.topic)
                    fuzzy.append(float(mu[seed]) if seed is not None else 0.0)
            own_cosines = self._bridge_cosines(self.space, vector)
            active = self.space.bridge_activation(mu)
            for bridge in top_rows(active + np.maximum(own_cosines, 0.0), self.settings.candidates):
                if leaders := self.leaders(bridge, among):
                    units.append(("concept", bridge))
                    bm25.append(float(np.mean(lexical[leaders])))
                    cosine.append(float(own_cosines[bridge]))
                    fuzzy.append(float(active[bridge]))
        return Parts(tuple(units), np.array(bm25), np.array(cosine), np.array(fuzzy), len(rows))

    def _bridge_cosines(self, space: ConceptSpace, vector: np.ndarray) -> np.ndarray:
        found: np.ndarray = space.bridge_vectors @ vector
        if self.settings.bridge_cosine == "direction":
            found = found / np.maximum(np.linalg.norm(space.bridge_vectors, axis=1), 1e-12)
        return found

    def leaders(self, bridge: int, among: np.ndarray | None) -> list[int]:
        """Rows of the passages that a bridge stands for."""
        assert self.space is not None
        if among is not None:
            return self.space.leaders(bridge, among)
        if bridge not in self._leaders:
            self._leaders[bridge] = self.space.leaders(bridge)
        return self._leaders[bridge]

    def _candidates(
        self,
        lexical: np.ndarray,
        vector: np.ndarray | None,
        mu: np.ndarray | None,
        scope: Scope | None,
        among: np.ndarray | None,
        structure_alone: bool,
    ) -> list[int]:
        k = self.settings.candidates
        found: dict[int, None] = {}
        if mu is not None and self.space is not None:
            found.update(dict.fromkeys(top_rows(self.space.routed(mu), k, among)))
        if structure_alone:
            return list(found)
        found.update(dict.fromkeys(top_rows(lexical, k, among)))
        if vector is not None:
            found.update(dict.fromkeys(passage.row for passage in self.passages.dense(vector, k, scope)))
        return list(found)

    def _cosines(self, vector: np.ndarray | None, rows: np.ndarray) -> list[float]:
        if vector is None or not len(rows):
            return [0.0] * len(rows)
        return (self.passages.vectors_of(rows) @ vector).tolist()

    def _bm25_of(self, terms: Sequence[str], text: str) -> float:
        """BM25 of a virtual chunk by the word statistics of the passages."""
        index = self.passages.lexical
        norm = K1 * (1 - B + B * len(terms) / max(self.mean_tokens, 1.0))
        score = 0.0
        for term in tokens(text):
            if count := terms.count(term):
                score += index.idf(term) * count / (count + norm)
        return score

    def _scaled(self, raw: Parts) -> np.ndarray:
        """float64 [3, units]: BM25, cosine and fuzzy score over the range that the candidate passages span; those of
        other units are cut to it. The paper's form scales BM25 alone."""
        bm25 = _minmax(raw.bm25, raw.passages)
        if self.settings.scaling == "paper":
            return np.stack([bm25, raw.cosine, raw.fuzzy])
        return np.stack([bm25, _minmax(raw.cosine, raw.passages), _minmax(raw.fuzzy, raw.passages)])


def _minmax(values: np.ndarray, passages: int) -> np.ndarray:
    """Moved to [0, 1] by the least and greatest of the first `passages` values; equal ones become 0."""
    own = values[:passages] if passages else values
    if not len(own) or own.max() <= own.min():
        return np.zeros(len(values))
    scaled: np.ndarray = np.clip((values - own.min()) / (own.max() - own.min()), 0.0, 1.0)
    return scaled


def open_scorer(settings: ContextSettings, passages: PassageSearch, snapshot: Snapshot) -> Scorer:
    """The scorer of a snapshot; reads its concept graph, memberships and summaries."""
    rows = {chunk: row for row, chunk in enumerate(passages.table.column("chunk_id").to_pylist())}
    sizes = snapshot.table("chunks", ["tokens"]).column("tokens").to_numpy()
    summaries, vectors = _open_summaries(snapshot)
    space = open_space(snapshot, rows, settings.activation_percentile)
    return Scorer(settings, passages, space, summaries, vectors, float(np.mean(sizes)) if len(sizes) else 1.0)


def _open_summaries(snapshot: Snapshot) -> tuple[tuple[Summary, ...], np.ndarray]:
    """The virtual chunks of a snapshot and their vectors, unit length float32 [n, dim]."""
    table = snapshot.table("context_summaries")
    if not table.num_rows:  # of an empty table no file tells the columns
        return (), np.zeros((0, 0), np.float32)
    dim = table.schema.field("vector").type.list_size
    vectors = matrix(table.column("vector"), dim)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    summaries = tuple(_summary(row) for row in table.drop_columns(["vector"]).to_pylist())
    return summaries, vectors / np.where(norms > 0, norms, 1.0)


def _summary(row: Mapping[str, object]) -> Summary:
    sources = row["sources"]
    assert isinstance(sources, list)
    return Summary(
        str(row["summary_id"]),
        str(row["text"]),
        int(str(row["topic"])),
        tuple(Source(member["text_hash"], Span(member["start"], member["end"])) for member in sources),
        tuple(tokens(str(row["text"]))),
    )
