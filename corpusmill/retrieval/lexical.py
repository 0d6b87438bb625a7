"""BM25 (bm25s, the Lucene form) over passages in any script, memory-mapped at query time.

Files: `scores.npy`, `rows.npy`, `starts.npy` (a column-compressed matrix of term scores), `vocabulary.json` and
`meta.json`.
Scores depend on all documents, so an index is rebuilt whole: a delta's scores equal a rebuild's.
"""

import json
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corpusmill.errors import CorruptObjectError
from corpusmill.retrieval.files import FileOf
from corpusmill.retrieval.tokenizer import TOKENIZER_VERSION, tokens

K1 = 1.2
B = 0.75
LEXICAL_FILES = ("scores.npy", "rows.npy", "starts.npy", "vocabulary.json", "meta.json")
_QUERY_TERMS = 512  # of a longer question the rarest distinct terms count


def build_lexical(texts: Iterable[str], folder: Path) -> int:
    """Index `texts` (row i is the i-th) into `folder`; the number of rows. Holds the token ids, not the texts."""
    vocabulary: dict[str, int] = {}
    ids: list[Sequence[int]] = []
    for text in texts:
        ids.append(array("i", (vocabulary.setdefault(token, len(vocabulary)) for token in tokens(text))))
    scores, rows, starts = _score(ids, vocabulary)
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "scores.npy", scores)
    np.save(folder / "rows.npy", rows)
    np.save(folder / "starts.npy", starts)
    (folder / "vocabulary.json").write_text(json.dumps(list(vocabulary), ensure_ascii=False), encoding="utf-8")
    meta = {"rows": len(ids), "tokenizer": TOKENIZER_VERSION, "k1": K1, "b": B}
    (folder / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
    return len(ids)


def _score(ids: list[Sequence[int]], vocabulary: dict[str, int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if not vocabulary:
        return np.zeros(0, np.float32), np.zeros(0, np.int32), np.zeros(1, np.int64)
    model = _bm25()
    model.index((ids, vocabulary), create_empty_token=False, show_progress=False)
    part = model.scores
    return part["data"].astype(np.float32), part["indices"].astype(np.int32), part["indptr"].astype(np.int64)


def _bm25() -> Any:
    import bm25s

    return bm25s.BM25(method="lucene", k1=K1, b=B, backend="numpy")


class LexicalIndex:
    """An opened index. Raises CorruptObjectError if another tokenizer version built it."""

    def __init__(self, file: FileOf) -> None:
        self._meta = json.loads(file("meta.json").read_text(encoding="utf-8"))
        if self._meta["tokenizer"] != TOKENIZER_VERSION:
            raise CorruptObjectError(
                f"the lexical index at {file('meta.json').parent} was built by tokenizer version "
                f"{self._meta['tokenizer']}, this program has {TOKENIZER_VERSION}; index again"
            )
        terms = json.loads(file("vocabulary.json").read_text(encoding="utf-8"))
        self._vocabulary = {term: i for i, term in enumerate(terms)}
        self._starts = np.load(file("starts.npy"), mmap_mode="r")
        self._model = _bm25()
        self._model.nonoccurrence_array = None  # which the Lucene form does not have
        self._model.scores = {
            "data": np.load(file("scores.npy"), mmap_mode="r"),
            "indices": np.load(file("rows.npy"), mmap_mode="r"),
            "indptr": self._starts,
            "num_docs": len(self),
        }

    def __len__(self) -> int:
        return int(self._meta["rows"])

    def scores(self, question: str) -> np.ndarray:
        """float32 [rows]: the BM25 score of every row; zeros for a question without known words."""
        ids = [self._vocabulary[token] for token in tokens(question) if token in self._vocabulary]
        if not ids:
            return np.zeros(len(self), np.float32)
        if len(ids) > _QUERY_TERMS:
            distinct = sorted(set(ids), key=lambda term: (self.document_frequency(term), term))
            ids = distinct[:_QUERY_TERMS]
        found: np.ndarray = self._model.get_scores_from_ids(ids)
        return found

    def document_frequency(self, term: int) -> int:
        """In how many rows the term with that number stands."""
        return int(self._starts[term + 1] - self._starts[term])

    def idf(self, token: str) -> float:
        """Lucene's inverse document frequency of a token of the tokenizer; an unknown one has the highest."""
        term = self._vocabulary.get(token)
        count = 0 if term is None else self.document_frequency(term)
        return float(np.log1p((len(self) - count + 0.5) / (count + 0.5)))

    def search(self, question: str, k: int, allowed: np.ndarray | None = None) -> list[tuple[int, float]]:
        """The best `k` (row, score) with a score above 0, best first; ties by row. `allowed`: bool [rows]."""
        scores = self.scores(question)
        return top(scores if allowed is None else np.where(allowed, scores, np.float32(0)), k)


def top(scores: np.ndarray, k: int) -> list[tuple[int, float]]:
    """The `k` largest positive entries of float [n] as (index, score), ties by index."""
    if k <= 0 or not len(scores):
        return []
    if k < len(scores):
        bound = np.partition(scores, len(scores) - k)[len(scores) - k]
        rows = np.flatnonzero((scores >= bound) & (scores > 0))
    else:
        rows = np.flatnonzero(scores > 0)
    order = rows[np.lexsort((rows, -scores[rows]))][:k]
    return [(int(row), float(scores[row])) for row in order]
