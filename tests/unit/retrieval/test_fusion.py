import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.retrieval.fusion import rrf

RANKINGS = st.lists(st.lists(st.integers(0, 12), max_size=8, unique=True), max_size=5)


def test_the_formula() -> None:
    assert rrf([["a", "b"], ["b", "c"]]) == [
        ("b", pytest.approx(1 / 62 + 1 / 61)),
        ("a", pytest.approx(1 / 61)),
        ("c", pytest.approx(1 / 62)),
    ]
    assert rrf([["a", "b"]], k=0) == [("a", 1.0), ("b", 0.5)]


def test_ties_go_by_id_and_repeats_count_once() -> None:
    assert [own for own, _ in rrf([["b", "a"], ["a", "b"]])] == ["a", "b"]
    assert rrf([[7, 7, 3, 7]]) == rrf([[7, 3]])
    assert rrf([]) == [] and rrf([[]]) == []
    with pytest.raises(ValueError, match="-1"):
        rrf([["a"]], k=-1)


@given(RANKINGS, st.randoms())
def test_the_order_of_rankings_does_not_matter(rankings: list[list[int]], random: object) -> None:
    shuffled = list(rankings)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert rrf(shuffled) == rrf(rankings)


@given(RANKINGS)
def test_best_first_and_nothing_is_lost(rankings: list[list[int]]) -> None:
    fused = rrf(rankings)
    assert {own for own, _ in fused} == {own for ranking in rankings for own in ranking}
    assert fused == sorted(fused, key=lambda item: (-item[1], item[0]))
    assert all(0 < score <= len(rankings) / 61 + 1e-12 for _, score in fused)


@given(st.lists(st.integers(0, 30), unique=True, max_size=20))
def test_one_ranking_keeps_its_order(ranking: list[int]) -> None:
    assert [own for own, _ in rrf([ranking])] == ranking
