from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from corpusmill.errors import UnknownMethodError
from corpusmill.estimate import CallEstimate, MethodEstimate
from corpusmill.methods.costs import method_costs
from corpusmill.methods.registry import method_names
from corpusmill.settings import ChunkSettings, ModelSettings, ModelsSettings, RerankSettings, Settings


def test_every_method_tells_its_costs_and_whether_it_embeds() -> None:
    found = {name: method_costs(name, Settings()) for name in method_names()}
    assert {name for name, costs in found.items() if not costs.embeds} == {"bm25"}
    assert found["bm25"].embedded_texts == 0 and found["dense"].embedded_texts == 4
    assert all(costs.document_calls is not None and costs.document_tokens == 2_200 for costs in found.values())
    for name in ("bm25", "dense", "dense-rerank"):
        assert (found[name].document_calls, found[name].corpus_calls, found[name].query_calls) == (0, 0, 0)
    assert found["flexstructrag"].document_calls > 4 and found["flexstructrag"].query_calls == 1


def test_contextrag_is_bounded_by_the_corpus() -> None:
    own = method_costs("contextrag", Settings())
    assert (own.document_calls, own.corpus_calls, own.query_calls) == (0, 30, 0)
    plan = ModelSettings(backend="openai", model="m")
    model = Settings(models=ModelsSettings(plan=plan), rerank=RerankSettings(backend="llm"))
    assert method_costs("contextrag", model).query_calls == 2


def test_settings_change_the_costs() -> None:
    model = Settings(rerank=RerankSettings(backend="llm", batch_size=10))
    assert method_costs("dense-rerank", model).query_calls == 3  # 25 candidates
    assert method_costs("dense", model).query_calls == 0
    small = Settings(chunk=ChunkSettings(ct_min=100, ct_max=100))
    assert method_costs("flexstructrag", small).document_tokens == 400
    fewer = method_costs("flexstructrag", small).document_calls
    assert fewer is not None and fewer < (method_costs("flexstructrag", Settings()).document_calls or 0)


def test_what_is_bounded_by_the_corpus_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def estimate_calls(settings: object, chunk_tokens: Sequence[Sequence[int]]) -> MethodEstimate:
        bounded = CallEstimate("summaries", "summarise", 2.0, 0, 0, at_most=30.0)
        return MethodEstimate((CallEstimate("extract", "extract", 4.0, 0, 0), bounded), 7)

    extra = SimpleNamespace(estimate_calls=estimate_calls)
    monkeypatch.setattr("corpusmill.methods.costs.method_extra", lambda name, module: extra)
    costs = method_costs("dense", Settings())
    assert (costs.document_calls, costs.corpus_calls, costs.query_calls) == (4, 30, None)
    said = costs.sentence()
    assert "4 model calls, at most 30 model calls for the whole corpus, 7 texts" in said and "not told" in said
    monkeypatch.setattr("corpusmill.methods.costs.method_extra", lambda name, module: None)
    bare = method_costs("bm25", Settings())
    assert bare.document_calls is None and "not told, embeds nothing" in bare.sentence()


def test_the_sentence() -> None:
    assert method_costs("bm25", Settings()).sentence() == (
        "a document of 2,200 tokens: no model call, nothing embedded; a question: no model call and the answer's"
    )


def test_an_unknown_method_names_the_choices() -> None:
    with pytest.raises(UnknownMethodError, match="choices: bm25"):
        method_costs("none-such", Settings())
