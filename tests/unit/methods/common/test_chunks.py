"""The chunk step: ids from content and settings, a fingerprint that follows the settings."""

from corpusmill.hashing import content_id, hash_text
from corpusmill.methods.common.chunks import chunk_step, chunk_text
from corpusmill.models.contracts import Role
from corpusmill.settings import ChunkSettings, Settings
from corpusmill.steps import ModelFingerprints, Text, TextContext, resolve

NO_MODELS = ModelFingerprints(roles=dict[Role, str](), embedder="none")


def _fingerprint(chunk: ChunkSettings) -> str:
    return resolve([chunk_step(Settings(chunk=chunk))], NO_MODELS).fingerprints["chunks"]


def test_rows_are_keyed_by_text_fingerprint_and_span():
    text = "One two three. Four five six.\n\nSeven eight nine."
    step = chunk_step(Settings(chunk=ChunkSettings(ct_min=1, ct_max=4)))
    table = chunk_text(Text(hash_text(text), text), {}, TextContext(step.settings, "print"))["chunks"]
    assert table.schema == step.outputs[0].schema
    rows = table.to_pylist()
    assert [text[row["start"] : row["end"]] for row in rows] == [
        "One two three.",
        "Four five six.",
        "Seven eight nine.",
    ]
    assert [row["ordinal"] for row in rows] == [0, 1, 2]
    assert rows[0]["chunk_id"] == content_id("chunk", hash_text(text), "print", 0, 14)


def test_an_empty_text_has_no_chunks():
    step = chunk_step(Settings())
    assert chunk_text(Text(hash_text(""), ""), {}, TextContext(step.settings, "p"))["chunks"].num_rows == 0


def test_the_fingerprint_follows_the_settings():
    prints = {
        _fingerprint(ChunkSettings()),
        _fingerprint(ChunkSettings(ct_min=400)),
        _fingerprint(ChunkSettings(tokenizer="wordpiece")),
    }
    assert len(prints) == 3
    assert _fingerprint(ChunkSettings()) == _fingerprint(ChunkSettings())
