import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.evaluation.answers import answer_tokens, plain_answer, score_answer, token_f1

TEXT = st.text(alphabet="ab cé京都のトयेथ한국กรุ.,!- [1]2 THEthe", max_size=30)


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("The Jean-Pierre's cat.", ("jeanpierres", "cat")),
        ("$1,000 in 1914", ("1000", "in", "1914")),
        ("橄榄球 NFL", ("橄", "榄", "球", "nfl")),
        ("2011年", ("2011", "年")),
        ("トヨタ", ("ト", "ヨ", "タ")),
        ("서울시 서울", ("서울", "울시", "서울")),
        ("पैंथर्स ने 308 अंक।", ("पैंथर्स", "ने", "308", "अंक")),
        ("กรุงเทพ", ("กรุ", "รุง", "งเ", "เท", "ทพ")),
        ("The", ("the",)),
        ("!!", ("!!",)),
        ("", ()),
    ],
)
def test_tokens(text: str, tokens: tuple[str, ...]) -> None:
    assert answer_tokens(text) == tokens


def test_marks_of_citations_are_taken_off_and_other_brackets_stay() -> None:
    assert plain_answer("It was Ada. [1][2] She wrote x[1] of it. [3]") == "It was Ada. She wrote x[1] of it."


def test_the_best_gold_answer_counts_for_each_measure() -> None:
    scores = score_answer("the cat sat on a mat", ["dog", "cat sat", "a mat on the cat sat there"])
    assert scores.exact_match == 0 and scores.contains == 1
    assert scores.f1 == pytest.approx(2 * 4 / (4 + 5))  # cat sat on mat / mat on cat sat there
    assert scores.rouge_l == pytest.approx(2 * 2 / (4 + 2))  # "cat sat" whole, against 4 of 9 for the long one


def test_f1_by_hand() -> None:
    assert token_f1(["a", "b", "b"], ["b", "b", "c", "d"]) == pytest.approx(2 * 2 / 7)
    assert token_f1([], ["x"]) == 0 and token_f1(["x"], ["y"]) == 0


def test_a_language_without_spaces_is_not_all_or_nothing() -> None:
    part = score_answer("黑豹队丢了四次", ["四次"])
    assert 0 < part.f1 < 1 and 0 < part.rouge_l < 1 and part.contains == 1
    assert score_answer("四次", ["四次。"]).exact_match == 1
    assert score_answer("次四", ["四次"]).rouge_l < score_answer("次四", ["四次"]).f1 == 1


def test_no_gold_answer_is_refused() -> None:
    with pytest.raises(ValueError, match="got none"):
        score_answer("x", [])


def test_a_long_answer_is_scored() -> None:
    assert score_answer("word " * 20_000, ["word"]).contains == 1


@given(TEXT.filter(str.strip))
def test_an_answer_equals_itself(text: str) -> None:
    scores = score_answer(text, [text])
    assert (scores.exact_match, scores.f1, scores.contains) == (1, 1, 1) and scores.rouge_l == pytest.approx(1)


@given(TEXT, st.lists(TEXT.filter(str.strip), min_size=1, max_size=3), TEXT.filter(str.strip))
def test_scores_are_bounded_and_more_gold_never_hurts(answer: str, gold: list[str], more: str) -> None:
    few, many = score_answer(answer, gold), score_answer(answer, [*gold, more])
    for name in ("exact_match", "f1", "rouge_l", "contains"):
        assert 0 <= getattr(few, name) <= getattr(many, name) <= 1
    assert few.exact_match <= few.f1 + 1e-9 and few.exact_match <= few.contains
    assert few.rouge_l <= few.f1 + 1e-9  # a common subsequence is a common multiset
