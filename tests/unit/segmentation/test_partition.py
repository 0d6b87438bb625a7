"""Invariants of dynamic partitioning, each as a property."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.segmentation.paragraphs import paragraphs
from corpusmill.segmentation.partition import partition
from corpusmill.segmentation.tokens import get_tokenizer

WORDS = get_tokenizer("words")

PARTS = st.sampled_from(
    [
        *(
            "word ",
            "Some words. ",
            "A sentence, with a clause; and more.\n",
            "\n\n",
            "\n \n",
            "# Heading\n\n",
            "## H\n",
        ),
        *(
            "| a | b |\n",
            "```\n",
            "~~~\n",
            "他来了。真的吗？",
            "यह एक वाक्य है। ",
            "สวัสดีครับ นี่ ",
            "هل؟ ",
            "😀",
            "\t",
            "x" * 70,
        ),
        *("- item\n", "Title\n=====\n", "é\u0301 ", "\u200b", "\x1c", "U.S. e.g. then ", "“", '"Hm." '),
    ]
)
DOCUMENTS = st.one_of(st.lists(PARTS, max_size=60).map("".join), st.text(max_size=300))
BOUNDS = st.tuples(st.integers(1, 30), st.integers(0, 30)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@settings(max_examples=150, deadline=None)
@given(DOCUMENTS, BOUNDS)
def test_chunks_are_disjoint_in_order_trimmed_and_cover_all_that_is_not_blank(text, bounds):
    pieces = partition(text, WORDS, *bounds)
    at = 0
    for piece in pieces:
        assert at <= piece.span.start < piece.span.end <= len(text)
        assert not text[at : piece.span.start].strip()
        assert piece.span.of(text) == piece.span.of(text).strip()
        at = piece.span.end
    assert not text[at:].strip()


@settings(max_examples=150, deadline=None)
@given(DOCUMENTS, BOUNDS)
def test_sizes_are_those_of_the_spans_and_bounded(text, bounds):
    ct_min, ct_max = bounds
    for piece in partition(text, WORDS, ct_min, ct_max):
        assert piece.tokens == WORDS.count(piece.span.of(text))
        assert piece.tokens <= ct_max + ct_min - 1


@settings(max_examples=100, deadline=None)
@given(DOCUMENTS, BOUNDS)
def test_no_chunk_but_the_last_is_short(text, bounds):
    assert all(piece.tokens >= bounds[0] for piece in partition(text, WORDS, *bounds)[:-1])


@settings(max_examples=100, deadline=None)
@given(DOCUMENTS)
def test_a_document_under_ct_min_is_one_chunk(text):
    bound = WORDS.count(text) + 1
    assert len(partition(text, WORDS, bound, bound)) == (1 if text.strip() else 0)


@settings(max_examples=100, deadline=None)
@given(DOCUMENTS, DOCUMENTS)
def test_text_appended_later_leaves_all_but_the_last_chunks_alone(text, more):
    before = partition(text, WORDS, 5, 12)
    after = partition(text + "\n\nEnd of it.\n\n" + more, WORDS, 5, 12)
    if "```" not in text + more and "~~~" not in text + more:
        assert before[:-3] == after[: max(0, len(before) - 3)]


def test_short_chunks_take_in_the_next_and_do_not_chain():
    text = "\n\n".join(["w " * 4] * 10)
    assert [piece.tokens for piece in partition(text, WORDS, 5, 7)] == [8] * 5


def test_a_short_last_chunk_joins_backwards_only_within_the_bound():
    small = "\n\n".join(["w " * 6, "w " * 3])
    assert [piece.tokens for piece in partition(small, WORDS, 5, 7)] == [9]
    large = "\n\n".join(["w " * 4, "w " * 7, "w " * 3])
    assert [piece.tokens for piece in partition(large, WORDS, 5, 7)] == [11, 3]


def test_a_large_paragraph_is_cut_at_sentences_then_words_then_tokens():
    sentences = "One two three. Four five six. Seven eight nine."
    assert [piece.span.of(sentences) for piece in partition(sentences, WORDS, 1, 4)] == [
        "One two three.",
        "Four five six.",
        "Seven eight nine.",
    ]
    assert [piece.span.of("a b c d e") for piece in partition("a b c d e", WORDS, 1, 2)] == ["a b", "c d", "e"]
    assert [piece.tokens for piece in partition("来" * 7, WORDS, 1, 3)] == [3, 3, 1]


def test_bounds_that_cannot_be_met_are_refused():
    with pytest.raises(ValueError, match="ct_min"):
        partition("a", WORDS, 3, 2)


@pytest.mark.parametrize("unit", ["word ", "a", " ", ".", "他来了。", "x\n", "```\n", "# a\n\n", "“", "a, "])
def test_a_long_document_without_structure_takes_linear_time(unit):
    pieces = partition(unit * (60_000 // len(unit)), WORDS, 500, 600)
    assert all(piece.tokens <= 1099 for piece in pieces)


def test_wordpiece_counts_agree_with_the_spans():
    tokenizer = get_tokenizer("wordpiece")
    text = ("Dynamic partitioning keeps paragraphs together. " * 30 + "\n\n") * 4
    for piece in partition(text, tokenizer, 50, 60):
        assert piece.tokens == tokenizer.count(piece.span.of(text))


class TestParagraphs:
    def spans(self, text):
        return [span.of(text) for span in paragraphs(text)]

    def test_blank_lines_divide(self):
        assert self.spans("a\nb\n\n \n c") == ["a\nb", "c"]

    def test_headings_stay_with_what_follows(self):
        assert self.spans("# A\n\n## B\n\ntext\n\nmore\n\nC\n---\n\nlast") == [
            "# A\n\n## B\n\ntext",
            "more",
            "C\n---\n\nlast",
        ]

    def test_a_heading_at_the_end_stays(self):
        assert self.spans("text\n\n# End") == ["text", "# End"]

    def test_a_table_is_one_paragraph(self):
        assert self.spans("intro\n| a |\n|---|\n| b |\nafter") == ["intro", "| a |\n|---|\n| b |", "after"]

    def test_a_fence_is_one_paragraph_with_its_blank_lines(self):
        assert self.spans("x\n```py\na\n\n# b\n```\ny") == ["x", "```py\na\n\n# b\n```", "y"]

    def test_an_open_fence_is_none(self):
        assert self.spans("```\na\n\nb") == ["```\na", "b"]
