"""From evidence to ranked documents, and ranking metrics by question."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from corpusmill.evaluation.dataset import Question
from corpusmill.methods.common.passages import PassageSearch
from corpusmill.methods.common.ranking import passages_of
from corpusmill.methods.protocol import Evidence, Snapshot


class DocumentRanking:
    """Ranks the documents that evidence leads to; a document is named by its path, in a record source its id column."""

    def __init__(self, snapshot: Snapshot, nprobe: int = 16) -> None:
        self._snapshot = snapshot
        self._search = PassageSearch(snapshot, nprobe)
        self._paths: dict[str, tuple[str, ...]] = {}

    def documents(self, evidence: Sequence[Evidence]) -> tuple[str, ...]:
        """Documents by their best passage, best first; documents that share a text are ordered by their path."""
        rows = passages_of(evidence, self._search)
        texts = self._search.table.column("text_hash").take(pa.array(rows, pa.int64())).to_pylist()
        return tuple(
            dict.fromkeys(path for text_hash in dict.fromkeys(texts) for path in self._documents_of(text_hash))
        )

    def _documents_of(self, text_hash: str) -> tuple[str, ...]:
        if text_hash not in self._paths:
            rows = self._snapshot.documents_of(text_hash)
            self._paths[text_hash] = tuple(sorted({str(row["path"]) for row in rows}))
        return self._paths[text_hash]


def ranking_metrics(
    questions: Sequence[Question], rankings: Sequence[Sequence[str]], cuts: Sequence[int]
) -> Mapping[str, np.ndarray]:
    """float [questions] by name: `recall@k`, `all_gold@k`, `ndcg@k` for each cut, and `mrr` over whole rankings.

    `rankings[i]` are distinct documents for question i, best first. nDCG has the grades as gains.
    """
    import ir_measures
    from ir_measures import RR, R, nDCG

    names = {R @ k: f"recall@{k}" for k in cuts} | {nDCG @ k: f"ndcg@{k}" for k in cuts} | {RR: "mrr"}
    run = {
        question.id: {document: float(-place) for place, document in enumerate(ranking)}
        for question, ranking in zip(questions, rankings, strict=True)
    }
    place = {question.id: at for at, question in enumerate(questions)}
    values = {name: np.zeros(len(questions)) for name in names.values()}
    judged = {question.id: dict(question.grades) for question in questions}
    for metric in ir_measures.iter_calc(list(names), judged, run):
        values[names[metric.measure]][place[metric.query_id]] = metric.value
    for k in cuts:
        values[f"all_gold@{k}"] = np.array(
            [question.gold <= set(ranking[:k]) for question, ranking in zip(questions, rankings, strict=True)], float
        )
    return values
