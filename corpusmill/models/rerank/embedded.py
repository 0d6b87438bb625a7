"""The embedded reranker: MiniLM's token vectors and the words themselves, on the CPU, with what is installed.

Not a cross-encoder: question and passage are encoded apart. A passage is scored by the mean of three parts, each moved
to [0, 1] over the passages at hand:

1. late interaction (MaxSim, as in ColBERT, arXiv 2004.12832): for each token of the question the best cosine with a
   token of the passage, weighted by the token's rarity among the passages, function words left out;
2. the cosine of the pooled vectors, of a long passage that of its best window;
3. the share of the question's words that the passage holds (see `lexical.coverage`).

Then 0.3 is given for kinship with the best passage by that mean: what the second step of a question needs shares words
with the first step's passage rather than with the question. A question in a script that MiniLM does not know is scored
by its words alone. What each part brings is printed by `benchmarks/rerank.py`.
"""

import asyncio
import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from corpusmill.errors import ConfigError
from corpusmill.hashing import fingerprint
from corpusmill.models.embedders.common import knows_script, unit_rows, windows
from corpusmill.models.embedders.minilm import hidden_states, load_model, model_identity, special_ids
from corpusmill.models.rerank.common import checked_scores
from corpusmill.models.rerank.lexical import coverage, is_function_word, kinship, rarity
from corpusmill.names import normal_form

if TYPE_CHECKING:
    from tokenizers import Tokenizer

VERSION = 1
WINDOW = 254  # word pieces that are encoded together
KINSHIP = 0.3
CACHE_BYTES = 64 << 20  # of encoded passages


@dataclass(frozen=True)
class Encoded:
    """A text's word pieces, their surface forms, a unit vector each (float16 [n, d]) and one for each window."""

    pieces: tuple[int, ...]
    surfaces: tuple[str, ...]
    tokens: np.ndarray
    windows: np.ndarray


@dataclass(frozen=True)
class Parts:
    """What the score is made of, each over all passages; `late` and `cosine` are None in a script not known."""

    late: np.ndarray | None
    cosine: np.ndarray | None
    words: np.ndarray

    def mean(self) -> np.ndarray:
        """float64 [passages] in [0, 1]: the mean of the parts, each moved to [0, 1], and the mean moved there too."""
        if self.late is None or self.cosine is None:
            return self.words.astype(np.float64)
        return scaled(np.mean([scaled(part) for part in (self.late, self.cosine, self.words)], axis=0))


class EmbeddedReranker:
    """float32 scores in [0, 1]. `threads` passages are encoded side by side, each on one core."""

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads or os.cpu_count() or 1
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._loaded: tuple[Tokenizer, Any] | None = None
        self._kept: OrderedDict[str, Encoded] = OrderedDict()
        self._bytes = 0

    @property
    def fingerprint(self) -> str:
        return fingerprint({"backend": "embedded", "version": VERSION, "model": model_identity()})

    def calls(self, passages: int) -> int:
        return 0

    async def rerank(self, question: str, passages: Sequence[str]) -> np.ndarray:
        """Raises ConfigError where the model's package is not installed."""
        if not passages:
            return np.zeros(0, np.float32)
        parts = await self.parts(question, passages)
        scores = parts.mean()
        if parts.late is not None and len(passages) > 1:
            related = scaled(kinship(question, passages, int(np.argmax(scores))))
            scores = (scores + KINSHIP * related) / (1.0 + KINSHIP)
        return checked_scores(scores, len(passages), "the embedded reranker")

    async def parts(self, question: str, passages: Sequence[str]) -> Parts:
        """The parts of the score of at least one passage."""
        words = coverage(question, passages)
        if not knows_script(question):
            return Parts(None, None, words)
        asked, *encoded = await self._encoded([question, *passages])
        return Parts(late_interaction(asked, encoded), best_cosine(asked, encoded), words)

    def forget(self) -> None:
        """Let go of the encoded passages that are kept."""
        self._kept.clear()
        self._bytes = 0

    async def aclose(self) -> None:
        self.forget()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
        self._loaded = None

    async def _encoded(self, texts: Sequence[str]) -> list[Encoded]:
        """Each text encoded; those of the last questions are kept."""
        missing = [text for text in dict.fromkeys(texts) if text not in self._kept]
        known = {text: self._kept[text] for text in texts if text in self._kept}
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="reranker")
        loop = asyncio.get_running_loop()
        made = await asyncio.gather(*(loop.run_in_executor(self._pool, self._encode, text) for text in missing))
        known.update(zip(missing, made, strict=True))
        for text in dict.fromkeys(texts):
            self._keep(text, known[text])
        return [known[text] for text in texts]

    def _keep(self, text: str, encoded: Encoded) -> None:
        if text not in self._kept:
            self._bytes += encoded.tokens.nbytes
        self._kept[text] = encoded
        self._kept.move_to_end(text)
        while self._bytes > CACHE_BYTES and len(self._kept) > 1:
            self._bytes -= self._kept.popitem(last=False)[1].tokens.nbytes

    def _encode(self, text: str) -> Encoded:
        tokenizer, session = self._load()
        encoding = tokenizer.encode(text, add_special_tokens=False)
        first, last = special_ids(tokenizer)
        states, pooled = [], []
        for start, end in windows(len(encoding.ids), WINDOW):
            hidden = hidden_states(session, [first, *encoding.ids[start:end], last])
            states.append(hidden[1:-1])
            pooled.append(hidden.mean(axis=0))
        dim = states[0].shape[1] if states else 1
        stacked = np.concatenate(states) if states else np.zeros((0, dim), np.float32)
        return Encoded(
            pieces=tuple(encoding.ids),
            surfaces=tuple(text[start:end] for start, end in encoding.offsets),
            tokens=unit_rows(stacked, "reranker").astype(np.float16),
            windows=unit_rows(np.stack(pooled), "reranker") if pooled else np.zeros((0, dim), np.float32),
        )

    def _load(self) -> "tuple[Tokenizer, Any]":
        with self._lock:
            if self._loaded is None:
                try:
                    self._loaded = load_model()
                except ConfigError as error:
                    raise ConfigError(
                        f"rerank.backend embedded needs the model of the embedder minilm: {error}"
                    ) from error
            return self._loaded


def late_interaction(asked: Encoded, passages: Sequence[Encoded]) -> np.ndarray:
    """float64 [len(passages)]: the weighted mean, over the question's tokens, of the best cosine in a passage."""
    weights = _token_weights(asked, passages)
    out = np.zeros(len(passages))
    if not weights.sum():
        return out
    question = asked.tokens.astype(np.float32)
    for place, passage in enumerate(passages):
        if len(passage.pieces):
            best = (question @ passage.tokens.astype(np.float32).T).max(axis=1)
            out[place] = float(best @ weights) / float(weights.sum())
    return out


def best_cosine(asked: Encoded, passages: Sequence[Encoded]) -> np.ndarray:
    """float64 [len(passages)]: the greatest cosine of a window of the question with one of a passage; 0 for no text."""
    out = np.zeros(len(passages))
    for place, passage in enumerate(passages):
        if len(asked.windows) and len(passage.windows):
            out[place] = float((asked.windows @ passage.windows.T).max())
    return out


def scaled(scores: np.ndarray) -> np.ndarray:
    """Moved to [0, 1] by their least and greatest; equal ones all become 1."""
    low, high = float(scores.min()), float(scores.max())
    return np.ones_like(scores) if high <= low else (scores - low) / (high - low)


def _token_weights(asked: Encoded, passages: Sequence[Encoded]) -> np.ndarray:
    """float32 [tokens of the question]: rarity among the passages; 0 for function words and signs, unless all are."""
    wanted = set(asked.pieces)
    seen = Counter(piece for passage in passages for piece in wanted.intersection(passage.pieces))
    weights = np.zeros(len(asked.pieces), np.float32)
    for place, (piece, surface) in enumerate(zip(asked.pieces, asked.surfaces, strict=True)):
        form = normal_form(surface)
        if form and not is_function_word(form):
            weights[place] = rarity(seen[piece], len(passages))
    return weights if weights.any() else np.ones_like(weights)
