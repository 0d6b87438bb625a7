"""The cache of vectors: equal vectors, nothing embedded twice, costs of what was really embedded."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as bounds
from hypothesis import strategies as st

from corpusmill.models.contracts import EmbedKind
from corpusmill.models.embedders import build_embedder
from corpusmill.models.embedders.cached import CachedEmbedder, vector_key
from corpusmill.models.factory import build_models
from corpusmill.models.metered import Meter
from corpusmill.settings import EmbedderSettings, Settings
from corpusmill.store.local import LocalStore
from corpusmill.store.response_cache import ResponseCache
from tests.unit.models.tasks import DictCache

HASH = EmbedderSettings(backend="hash", dim=16)


class Counting:
    """The hash embedder, which notes what it is asked; the first calls may fail."""

    def __init__(self, failures: int = 0) -> None:
        self.inner = build_embedder(HASH)
        self.fingerprint = self.inner.fingerprint
        self.dim = self.inner.dim
        self.asked: list[tuple[str, EmbedKind]] = []
        self.failures = failures

    async def embed(self, texts: Sequence[str], kind: EmbedKind) -> np.ndarray:
        self.asked.extend((text, kind) for text in texts)
        await asyncio.sleep(0.01)
        if self.failures:
            self.failures -= 1
            raise RuntimeError("lost")
        return await self.inner.embed(texts, kind)

    async def aclose(self) -> None: ...


@bounds(deadline=None, max_examples=25)
@given(st.lists(st.lists(st.sampled_from(["", "a", "b b", "é鲁", "a b c"]), max_size=6), max_size=5))
def test_vectors_are_the_embedders_and_no_text_is_embedded_twice(requests: list[list[str]]) -> None:
    inner = Counting()
    cached = CachedEmbedder(inner, DictCache())

    async def go() -> list[np.ndarray]:
        at_once = await asyncio.gather(*(cached.embed(texts, "passage") for texts in requests))
        return [*at_once, *[await cached.embed(texts, "passage") for texts in requests]]

    made = asyncio.run(go())
    for texts, vectors in zip([*requests, *requests], made, strict=True):
        assert vectors.shape == (len(texts), 16) and vectors.dtype == np.float32
        np.testing.assert_array_equal(vectors, asyncio.run(build_embedder(HASH).embed(texts, "passage")))
    assert len(inner.asked) == len(set(inner.asked))


def test_another_process_and_another_machine_embed_only_what_is_new(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "index"))
    texts = [f"sentence {k}" for k in range(300)]

    def run(folder: str, wanted: list[str]) -> list[tuple[str, EmbedKind]]:
        inner = Counting()
        with ResponseCache(tmp_path / folder, store) as cache:
            made = asyncio.run(CachedEmbedder(inner, cache).embed(wanted, "passage"))
        np.testing.assert_array_equal(made, asyncio.run(build_embedder(HASH).embed(wanted, "passage")))
        return inner.asked

    assert len(run("one", texts)) == 300
    assert run("one", [*texts[:299], "edited"]) == [("edited", "passage")]
    assert run("two", [*texts, "edited"]) == []


def test_kinds_and_embedders_have_vectors_of_their_own() -> None:
    cache, inner = DictCache(), Counting()
    other = Counting()
    other.fingerprint = "other"

    async def go() -> None:
        await CachedEmbedder(inner, cache).embed(["a"], "passage")
        await CachedEmbedder(inner, cache).embed(["a"], "query")
        await CachedEmbedder(other, cache).embed(["a"], "passage")

    asyncio.run(go())
    assert len(cache.rows) == 3 and len(inner.asked) == 2 and len(other.asked) == 1


def test_a_value_of_another_length_is_embedded_anew() -> None:
    cache, inner = DictCache(), Counting()
    cache.rows[inner.fingerprint, vector_key("a", "passage")] = b"12345678"
    vectors = asyncio.run(CachedEmbedder(inner, cache).embed(["a"], "passage"))
    assert vectors.any() and inner.asked == [("a", "passage")]
    assert len(cache.rows[inner.fingerprint, vector_key("a", "passage")]) == 4 * 16


def test_who_waited_for_a_call_that_failed_or_was_cancelled_tries_for_itself() -> None:
    inner = Counting(failures=1)
    cached = CachedEmbedder(inner, DictCache())

    async def go() -> None:
        first, second = (asyncio.create_task(cached.embed(["a"], "passage")) for _ in range(2))
        with pytest.raises(RuntimeError, match="lost"):
            await first
        assert (await second).any()
        third, fourth = (asyncio.create_task(cached.embed(["b"], "passage")) for _ in range(2))
        await asyncio.sleep(0.005)
        third.cancel()
        assert (await fourth).any()

    asyncio.run(go())
    assert not cached._flights


@pytest.mark.parametrize(("backend", "counted"), [("minilm", 3), ("hash", 6)])
def test_costs_count_only_what_was_embedded(backend: str, counted: int) -> None:
    meter = Meter()
    settings = Settings(embedder=EmbedderSettings.model_validate({"backend": backend}))
    models = build_models(settings, meter=meter, cache=DictCache(), embedder=Counting())

    async def go() -> None:
        await models.embedder.embed(["a", "b", "c"], "passage")
        await models.embedder.embed(["c", "b", "a"], "passage")

    asyncio.run(go())
    assert meter.snapshot().embedded_texts == counted
