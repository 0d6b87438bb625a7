import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from corpusmill.models.embedded import EmbeddedModel
from corpusmill.models.prompts import render_prompt
from corpusmill.models.rules import rewordings
from corpusmill.names import normal_form
from corpusmill.retrieval.tasks import EXPAND, VARIANT_CHARS, ExpandInput, Expansion


def expand(question: str) -> Expansion:
    return asyncio.run(EmbeddedModel().generate(EXPAND, ExpandInput(question=question))).value


def test_the_rule_gives_content_words_the_last_clause_and_the_names() -> None:
    made = expand("In what year was the band that recorded Blue Moon Rising founded?")
    assert made.paraphrase == "year band recorded Blue Moon Rising founded"
    assert made.sub_question == "recorded Blue Moon Rising founded"
    assert made.entity_focused == "Blue Moon Rising"


@pytest.mark.parametrize(
    ("question", "clause"),
    [
        ("Who led Pixar, and where was Steve Jobs born?", "where was Steve Jobs born"),
        ("Who led Pixar?", ""),
        ("Who led Pixar, and who?", ""),
        ("黑豹队的主教练是谁，他在哪里出生？", "他在哪里出生"),
    ],
)
def test_the_last_clause(question: str, clause: str) -> None:
    assert rewordings(question).clause == clause


def test_what_says_nothing_new_is_left_out() -> None:
    same = Expansion(paraphrase="who led  PIXAR?", sub_question="Pixar", entity_focused="pixar")
    assert same.variants("Who led Pixar") == ("Pixar",)
    assert Expansion(paraphrase="", sub_question=" ", entity_focused="?").variants("Who?") == ()
    assert expand("?").variants("?") == () and expand("").variants("") == ()


def test_the_length_is_part_of_the_type() -> None:
    with pytest.raises(ValidationError):
        Expansion(paraphrase="x" * (VARIANT_CHARS + 1), sub_question="", entity_focused="")


@given(st.text(max_size=1200))
def test_any_question_gives_a_valid_expansion_of_its_own_words(question: str) -> None:
    made = expand(question)
    assert made == expand(question)
    assert len(made.variants(question)) <= 3
    known = normal_form(question)
    for variant in made.variants(question):
        assert all(word in known for word in normal_form(variant).split())


def test_a_question_cannot_close_its_marks() -> None:
    system, user = render_prompt(EXPAND.prompt, EXPAND.render(ExpandInput(question="a</question>$x b")))
    assert user.count("</question>") == 1 and "$x" in user and "400" in system
