import asyncio
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.errors import ConfigError
from corpusmill.models.rerank import embedded as module
from corpusmill.models.rerank.embedded import EmbeddedReranker, Encoded, best_cosine, late_interaction, scaled
from corpusmill.models.rerank.lexical import coverage, kinship

QUESTION = "Where was the founder of Pixar born?"
PASSAGES = [
    "Bread is baked from flour and water.",
    "Pixar was founded by Ed Catmull, who led it for many years.",
    "Ed Catmull was born in Parkersburg and grew up in Utah.",
    "The harbour of Oslo is large.",
]


@pytest.fixture(scope="module")
def reranker() -> EmbeddedReranker:
    return EmbeddedReranker(threads=1)


def scores(reranker: EmbeddedReranker, question: str, passages: Sequence[str]) -> np.ndarray:
    return asyncio.run(reranker.rerank(question, passages))


def test_what_answers_comes_before_what_does_not(reranker: EmbeddedReranker) -> None:
    found = scores(reranker, QUESTION, PASSAGES)
    assert found.dtype == np.float32 and found.shape == (4,)
    assert set(np.argsort(-found)[:2]) == {1, 2}
    assert found.min() >= 0 and found.max() <= 1


def test_the_order_of_passages_changes_no_score(reranker: EmbeddedReranker) -> None:
    found = scores(reranker, QUESTION, PASSAGES)
    assert np.array_equal(scores(reranker, QUESTION, PASSAGES[::-1]), found[::-1])
    fresh = EmbeddedReranker(threads=2)
    assert np.array_equal(scores(fresh, QUESTION, PASSAGES), found)  # nor do threads or what was kept
    fresh.forget()
    assert np.array_equal(scores(fresh, QUESTION, PASSAGES), found)


@pytest.mark.parametrize("passages", [[], ["one"], ["", ""], ["same", "same", "same"], ["...", "?"], ["word " * 2_000]])
@pytest.mark.parametrize("question", ["", "?", "one word", "谁写了这本书？", "the of and"])
def test_odd_input_has_finite_scores(reranker: EmbeddedReranker, question: str, passages: list[str]) -> None:
    found = scores(reranker, question, passages)
    assert found.shape == (len(passages),) and np.isfinite(found).all()
    if len(set(passages)) == 1:
        assert len(set(found.tolist())) == 1


def test_an_unknown_script_goes_by_words(reranker: EmbeddedReranker) -> None:
    passages = ["北京是中国的首都。", "上海是一座大城市。", "面包是用面粉做的。"]
    found = scores(reranker, "中国的首都在哪里？", passages)
    assert np.array_equal(found, coverage("中国的首都在哪里？", passages)) and int(np.argmax(found)) == 0


def test_a_long_passage_counts_by_its_best_part(reranker: EmbeddedReranker) -> None:
    long = " ".join(["Bread is baked from flour and water."] * 120) + " " + PASSAGES[1]
    assert int(np.argmax(scores(reranker, "Who founded Pixar?", [PASSAGES[0], long, PASSAGES[3]]))) == 1


def test_encoded_passages_are_kept_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    own = EmbeddedReranker(threads=1)
    monkeypatch.setattr(module, "CACHE_BYTES", 20_000)
    made: list[str] = []
    encode = own._encode
    monkeypatch.setattr(own, "_encode", lambda text: made.append(text) or encode(text))  # type: ignore[func-returns-value]
    for _ in range(2):
        scores(own, QUESTION, PASSAGES)
    assert len(made) > len(PASSAGES) + 1 and own._bytes <= 20_000
    monkeypatch.setattr(module, "CACHE_BYTES", 1 << 20)
    own.forget()
    made.clear()
    for _ in range(3):
        scores(own, QUESTION, PASSAGES)
    assert sorted(made) == sorted([QUESTION, *PASSAGES])
    assert own._bytes == sum(encoded.tokens.nbytes for encoded in own._kept.values())
    asyncio.run(own.aclose())


def test_a_missing_model_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ConfigError("needs the package x")

    monkeypatch.setattr(module, "load_model", missing)
    with pytest.raises(ConfigError, match=r"rerank\.backend embedded needs .* package x"):
        scores(EmbeddedReranker(threads=1), QUESTION, PASSAGES)


def encoded(
    pieces: Sequence[int], vectors: Sequence[Sequence[float]], surfaces: Sequence[str] | None = None
) -> Encoded:
    array = np.array(vectors, np.float16).reshape(len(pieces), 2)
    return Encoded(tuple(pieces), tuple(surfaces or [f"w{p}" for p in pieces]), array, array[:1].astype(np.float32))


def test_late_interaction_weighs_tokens_by_rarity_and_leaves_function_words_out() -> None:
    asked = encoded([1, 2, 3], [(1, 0), (0, 1), (1, 0)], ["the", "pixar", "common"])
    a, b = encoded([3, 2], [(1, 0), (0, 1)]), encoded([3, 9], [(1, 0), (1, 0)])
    first, second = late_interaction(asked, [a, b])
    rare, common = np.log1p(1.5 / 1.5), np.log1p(0.5 / 2.5)  # of 2 passages: pixar in one, common in both
    assert first == pytest.approx(1.0)
    assert second == pytest.approx(common / (rare + common))
    alone = encoded([1], [(1, 0)], ["the"])
    assert late_interaction(alone, [a])[0] == pytest.approx(1.0)  # nothing but function words: all count
    assert late_interaction(asked, [encoded([], [])]).tolist() == [0.0]


def test_the_best_windows_cosine() -> None:
    asked = encoded([1], [(1, 0)])
    passage = Encoded((5,), ("x",), np.zeros((1, 2), np.float16), np.array([[0, 1], [0.6, 0.8]], np.float32))
    assert best_cosine(asked, [passage]) == pytest.approx([0.6])


def test_coverage_weighs_rare_words_and_ignores_function_words() -> None:
    made = coverage("Where is the harbour of Oslo?", ["Oslo has a harbour.", "Oslo is a city.", "Oslo and Bergen."])
    assert made[0] == pytest.approx(1.0) and made[1] == made[2] and 0 < made[1] < 0.5
    assert coverage("the of", ["the", "x"])[0] > coverage("the of", ["the", "x"])[1]
    assert coverage("?", ["a", "b"]).tolist() == [0.0, 0.0]


def test_kinship_is_with_what_the_question_does_not_say() -> None:
    found = kinship(QUESTION, PASSAGES, 1)
    assert found[1] == 0 and int(np.argmax(found)) == 2
    assert found[0] == found[3] == 0
    assert kinship("Ed Catmull?", ["Ed Catmull", "Ed Catmull"], 0).tolist() == [0.0, 0.0]


@settings(max_examples=60)
@given(st.text(max_size=60), st.lists(st.text(max_size=60), min_size=1, max_size=6), st.data())
def test_lexical_scores_lie_in_the_unit_interval(question: str, passages: list[str], data: st.DataObject) -> None:
    lead = data.draw(st.integers(0, len(passages) - 1))
    for found in (coverage(question, passages), kinship(question, passages, lead)):
        assert found.shape == (len(passages),) and (found >= 0).all() and (found <= 1 + 1e-6).all()
    assert coverage(question, [*passages, question])[-1] in (0.0, pytest.approx(1.0))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9))
def test_scaling_keeps_the_order(values: list[float]) -> None:
    made = scaled(np.array(values))
    assert made.min() >= 0 and made.max() == pytest.approx(1.0)
    order = np.argsort(values, kind="stable")
    assert (np.diff(made[order]) >= 0).all()
