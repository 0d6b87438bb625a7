import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.models.embedded import EmbeddedModel
from corpusmill.models.rules import answer, query_entities, relations, statements, summary
from corpusmill.names import normal_form
from corpusmill.segmentation.tokens import get_tokenizer
from tests.unit.models.tasks import Question, make_task

S3 = (
    "PutObject adds an object to a bucket. You must have WRITE permissions on a bucket to add an object to it. "
    "The maximum size of an object is 5 GB. Amazon S3 never adds partial objects."
)
OTHER = "Ada Lovelace wrote the first program in 1843. She was born in London."


def test_relations_join_entities_of_one_statement_once():
    text = "Paris is the capital of France. Paris is the capital of France. Berlin lies on the Spree."
    made = relations(statements(text))
    assert [(r.source, r.target, r.text) for r in made] == [
        ("Paris", "France", "Paris is the capital of France"),
        ("Berlin", "Spree", "Berlin lies on the Spree"),
    ]
    assert made[0].statement == 0 and made[1].statement == 2


def test_relations_keep_to_the_entities_that_are_asked_for():
    made = relations(statements("Ada met Bob and Cleo in Rome."), ["ada", "ROME"])
    assert [(r.source, r.target) for r in made] == [("Ada", "Rome")]
    assert relations([], None) == []


@given(st.lists(st.sampled_from([S3, OTHER, "", "黑豹队很好。", "x" * 500]), max_size=4), st.integers(1, 80))
@settings(max_examples=60, deadline=None)
def test_a_summary_keeps_to_its_limit_and_to_the_texts(texts, limit):
    made = summary(texts, limit)
    assert made == summary(texts, limit)
    assert get_tokenizer("words").count(made) <= limit
    if any(text.strip() for text in texts):
        assert made
        assert made.split()[0] in " ".join(texts)


def test_a_summary_does_not_repeat_itself():
    assert summary([OTHER, OTHER, OTHER], 200).count("Ada Lovelace") == 1
    with pytest.raises(ValueError, match="limit_tokens"):
        summary([OTHER], 0)


def test_query_entities():
    assert query_entities("Who wrote the first program, Ada Lovelace or Charles Babbage?") == [
        "Ada Lovelace",
        "Charles Babbage",
    ]
    assert "PutObject" in query_entities("What is the maximum size for PutObject?")
    assert query_entities("谁写了《红楼梦》？") == ["红楼梦"]
    assert query_entities("") == []


def test_an_answer_is_verbatim_and_says_where_it_stands():
    made = answer("What is the maximum size of an object?", [OTHER, S3])
    assert made.answered
    best = made.sentences[0]
    assert best.text == "The maximum size of an object is 5 GB." and best.evidence == 1
    assert best.span.of(S3) == best.text


def test_what_the_evidence_does_not_say_is_not_answered():
    assert not answer("Who invented the telephone?", [OTHER, S3]).answered
    assert not answer("Who invented the telephone?", []).answered
    assert not answer("What is the capital of Germany?", ["Paris is the capital of France."]).answered
    assert answer("What is the capital of France?", ["Paris is the capital of France."]).answered
    assert not answer("", [S3]).answered and not answer("what is it?", [S3]).answered


def test_scores_that_are_passed_in_decide_between_equals():
    texts = ["Ada worked in London.", "Ada worked in Paris."]
    assert answer("Where did Ada work?", texts, [[0.0], [0.9]]).sentences[0].evidence == 1
    assert answer("Where did Ada work?", texts, [[0.9], [0.0]]).sentences[0].evidence == 0


@given(st.text(max_size=60), st.lists(st.text(max_size=120), max_size=4))
@settings(max_examples=60, deadline=None)
def test_every_answer_sentence_is_a_quote(question, texts):
    for sentence in answer(question, texts).sentences:
        assert sentence.span.of(texts[sentence.evidence]) == sentence.text


def test_the_embedded_model_runs_the_rule_and_costs_nothing():
    import asyncio

    model = EmbeddedModel()
    made = asyncio.run(model.generate(make_task(), Question(text="Ada")))
    assert made.value.items[0].name == "Ada"
    assert (made.usage.calls, made.usage.prompt_tokens, made.usage.cost) == (1, 0, 0.0)
    assert normal_form("x") and model.fingerprint == EmbeddedModel().fingerprint
