"""Rerankers that are not in this process, or whose model is not installed with the tests."""

import asyncio
import re
import sys
import types
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
from pydantic import ValidationError

from corpusmill.errors import ConfigError, ModelOutputError, ModelRejectedError, ModelUnavailableError, UsageError
from corpusmill.models.contracts import Generation, Reranker, Usage
from corpusmill.models.factory import RunModels, build_models
from corpusmill.models.metered import Meter
from corpusmill.models.prompts import render_prompt
from corpusmill.models.rerank import build_reranker
from corpusmill.models.rerank.graded import RERANK, Grade, Grades, GradingReranker, RerankInput
from corpusmill.settings import EmbedderSettings, RerankSettings, Settings
from tests.unit.models.fake_endpoint import Answer, Call, endpoint, refusal

PASSAGES = ["Bread is baked.", "Ada wrote the first program.", "Ada lived in London."]
QUESTION = "Who wrote the first program?"


def no_model() -> Any:
    raise AssertionError("this reranker asks no language model")


def run(settings: RerankSettings, passages: list[str] = PASSAGES, question: str = QUESTION) -> np.ndarray:
    async def scored() -> np.ndarray:
        reranker = build_reranker(settings, no_model)
        try:
            return await reranker.rerank(question, passages)
        finally:
            await reranker.aclose()

    return asyncio.run(scored())


def remote(url: str, **changes: object) -> RerankSettings:
    return RerankSettings.model_validate(
        {"backend": "endpoint", "model": "r", "base_url": url, "retries": 2, **changes}
    )


def by_length(call: Call) -> Answer:
    rows = [{"index": i, "relevance_score": len(text) / 100} for i, text in enumerate(call.body["documents"])]
    return Answer({"id": "x", "results": sorted(rows, key=lambda row: -row["relevance_score"]), "meta": {}})


def test_an_endpoint_gets_batches_and_its_order_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "k")
    with endpoint(by_length) as server:
        settings = remote(server.url, batch_size=2, api_key_env="SOME_KEY")
        scores = run(settings)
        assert run(settings, []).shape == (0,)
    assert scores.dtype == np.float32 and scores.tolist() == pytest.approx([len(p) / 100 for p in PASSAGES])
    assert [call.path for call in server.calls] == ["/v1/rerank"] * 2
    assert server.calls[0].headers["authorization"] == "Bearer k"
    assert [call.body for call in server.calls] == [
        {"model": "r", "query": QUESTION, "documents": PASSAGES[:2], "top_n": 2},
        {"model": "r", "query": QUESTION, "documents": PASSAGES[2:], "top_n": 1},
    ]
    assert build_reranker(settings, no_model).calls(3) == 2


def test_a_busy_endpoint_is_asked_again() -> None:
    def busy(call: Call) -> Answer:
        return refusal(429, "busy", headers={"retry-after": "0"}) if call.number == 0 else by_length(call)

    with endpoint(busy) as server:
        assert run(remote(server.url)).shape == (3,)
    assert len(server.calls) == 2


@pytest.mark.parametrize(
    ("reply", "error", "said"),
    [
        (lambda call: refusal(503, "down"), ModelUnavailableError, "tried 1 times|not available"),
        (lambda call: refusal(401, "no"), ModelRejectedError, "is missing"),
        (lambda call: refusal(404, "no such model"), ModelRejectedError, "404"),
        (lambda call: refusal(422, "too long"), ModelRejectedError, "too long"),
        (lambda call: Answer({"scores": [1, 2, 3]}), ModelOutputError, r"no results\[\]"),
        (lambda call: Answer({"results": "none"}), ModelOutputError, r"no results\[\]"),
        (lambda call: Answer({"results": [{"index": 0, "relevance_score": 1}]}), ModelOutputError, "one score"),
        (lambda call: Answer({"results": [{"index": 1, "relevance_score": 1}] * 3}), ModelOutputError, "one score"),
        (
            lambda call: Answer(b'{"results": [{"index": 0, "relevance_score": NaN}]}'),
            ModelOutputError,
            "not finite for passage 0 of 1",
        ),
    ],
)
def test_what_an_endpoint_does_badly_is_told(reply: Callable[[Call], Answer], error: type, said: str) -> None:
    with endpoint(reply) as server, pytest.raises(error, match=said):
        run(remote(server.url, retries=0), PASSAGES[:1] if "finite" in said else PASSAGES)


def test_settings_name_what_is_missing() -> None:
    with pytest.raises(ValidationError, match="needs a `model`"):
        RerankSettings(backend="torch")
    with pytest.raises(ValidationError, match="needs a `base_url`"):
        RerankSettings(backend="endpoint", model="r")
    with pytest.raises(UsageError, match="not an http"):
        build_reranker(RerankSettings(backend="endpoint", model="r", base_url="ftp://x"), no_model)


def test_torch_says_what_is_missing_and_scores_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    own = RerankSettings(backend="torch", model="/models/cross", batch_size=2, max_tokens=256)
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(ConfigError, match=r"corpusmill\[gpu\]"):
        run(own)

    class Stand:
        seen: ClassVar[list[object]] = []

        def __init__(self, name: str, max_length: int) -> None:
            assert (name, max_length) == ("/models/cross", 256)

        def predict(self, pairs: list[tuple[str, str]], batch_size: int, show_progress_bar: bool) -> np.ndarray:
            Stand.seen.append((batch_size, show_progress_bar))
            return np.array([len(passage) if question == QUESTION else np.nan for question, passage in pairs])

    monkeypatch.setitem(sys.modules, "sentence_transformers", types.SimpleNamespace(CrossEncoder=Stand))
    assert run(own).tolist() == [len(p) for p in PASSAGES] and Stand.seen == [(2, False)]
    assert run(own, []).shape == (0,)
    with pytest.raises(ModelOutputError, match="not finite"):
        run(own, question="another")


class Grader:
    """Grades a passage by its length; fails its check where `wrong` is set."""

    fingerprint = "grader"

    def __init__(self) -> None:
        self.sizes: list[int] = []

    async def generate(self, task, inputs: RerankInput, *, affinity=None):  # type: ignore[no-untyped-def]
        assert task is RERANK
        self.sizes.append(len(inputs.passages))
        grades = [Grade(passage=n, grade=len(text) % 11) for n, text in enumerate(inputs.passages, 1)]
        output = Grades(grades=tuple(reversed(grades)))
        assert task.check(inputs, output) is None
        return Generation(output, Usage(calls=1))

    async def aclose(self) -> None: ...


def test_a_language_model_grades_batches() -> None:
    grader = Grader()
    reranker: Reranker = GradingReranker(RerankSettings(backend="llm", batch_size=2), grader)  # type: ignore[arg-type]
    scores = asyncio.run(reranker.rerank(QUESTION, PASSAGES))
    assert scores.tolist() == [len(p) % 11 for p in PASSAGES] and grader.sizes == [2, 1]
    assert reranker.calls(3) == 2 and reranker.calls(0) == 0
    assert asyncio.run(reranker.rerank(QUESTION, [])).shape == (0,)


@pytest.mark.parametrize(
    ("numbers", "said"),
    [((1, 2), r"without: \[3\]"), ((1, 2, 2), r"without: \[3\]"), ((1, 2, 3, 4), "exactly one"), ((), r"\[1, 2, 3\]")],
)
def test_every_passage_needs_one_grade(numbers: tuple[int, ...], said: str) -> None:
    inputs = RerankInput(question=QUESTION, passages=tuple(PASSAGES))
    assert RERANK.check is not None
    found = RERANK.check(inputs, Grades(grades=tuple(Grade(passage=n, grade=1) for n in numbers)))
    assert found is not None and re.search(said, found)


def test_passages_cannot_close_their_marks_and_are_numbered() -> None:
    inputs = RerankInput(question="a</question>", passages=("x</passage>", "$y"))
    system, user = render_prompt(RERANK.prompt, RERANK.render(inputs))
    assert user.count("</passage>") == 2 and user.count("</question>") == 1
    assert '<passage number="2">\n$y' in user and "0 to 10" in system


def test_the_models_of_a_run_rerank_by_their_settings() -> None:
    base = Settings(embedder=EmbedderSettings(backend="hash"))
    meter = Meter()
    models = build_models(base.model_copy(update={"rerank": RerankSettings(backend="llm")}), meter=meter)
    scores = asyncio.run(models.reranker.rerank(QUESTION, PASSAGES))
    assert int(np.argmax(scores)) == 1 and models.reranker is models.reranker
    assert meter.snapshot().usage["rerank"].calls == 1
    asyncio.run(models.aclose())
    bare = RunModels(lambda role: no_model(), no_model)
    with pytest.raises(ConfigError, match="no reranker"):
        _ = bare.reranker


def test_identities_differ() -> None:
    made = [
        build_reranker(RerankSettings(), no_model),
        build_reranker(RerankSettings(backend="torch", model="a"), no_model),
        build_reranker(RerankSettings(backend="torch", model="b"), no_model),
        build_reranker(remote("http://127.0.0.1:1/v1"), no_model),
        build_reranker(RerankSettings(backend="llm"), Grader),
    ]
    assert len({reranker.fingerprint for reranker in made}) == len(made)
    moved = build_reranker(remote("http://127.0.0.1:2/v1"), no_model)
    assert moved.fingerprint == made[3].fingerprint
