import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.errors import CorruptObjectError
from corpusmill.retrieval.files import folder
from corpusmill.retrieval.lexical import LEXICAL_FILES, LexicalIndex, build_lexical, top


def opened(texts: list[str], where: Path) -> LexicalIndex:
    assert build_lexical(texts, where) == len(texts)
    assert sorted(path.name for path in where.iterdir()) == sorted(LEXICAL_FILES)
    return LexicalIndex(folder(where))


def test_the_passage_with_the_rare_word_comes_first(tmp_path: Path) -> None:
    index = opened(["the cat sat", "the dog sat", "the axolotl sat"], tmp_path)
    assert next(row for row, _ in index.search("where is the axolotl", 3)) == 2


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> LexicalIndex:
    words = [f"filler {'even' if i % 2 == 0 else 'odd'} {'three' if i % 3 == 0 else ''}" for i in range(30)]
    return opened(words, tmp_path_factory.mktemp("small"))


@pytest.mark.parametrize("texts", [[], [""], ["", "..."], ["one"]])
def test_small_and_empty_indices_answer(texts: list[str], tmp_path: Path) -> None:
    index = opened(texts, tmp_path)
    assert len(index) == len(texts)
    assert [row for row, _ in index.search("one", 5)] == ([0] if texts == ["one"] else [])
    assert index.search("", 5) == [] and index.search("unknown", 5) == []


def test_ties_go_by_row(tmp_path: Path) -> None:
    index = opened(["same words"] * 5 + ["other"], tmp_path)
    assert [row for row, _ in index.search("same", 3)] == [0, 1, 2]


@given(st.sets(st.integers(0, 29)), st.integers(1, 12))
def test_a_mask_keeps_what_a_full_search_finds_within_it(small: LexicalIndex, rows: set[int], k: int) -> None:
    allowed = np.isin(np.arange(30), sorted(rows))
    everything = small.search("even three filler", 30)
    assert small.search("even three filler", k, allowed) == [hit for hit in everything if hit[0] in rows][:k]


def test_a_question_of_a_hundred_thousand_characters_is_answered(tmp_path: Path) -> None:
    index = opened([f"word{i} filler" for i in range(50)], tmp_path)
    question = " ".join(["filler"] * 14_000) + " word7 " + " ".join(f"noise{i}" for i in range(1_000))
    assert len(question) > 100_000
    assert index.search(question, 1)[0][0] == 7


def test_another_tokenizer_version_is_refused(tmp_path: Path) -> None:
    build_lexical(["one"], tmp_path)
    meta = json.loads((tmp_path / "meta.json").read_text())
    (tmp_path / "meta.json").write_text(json.dumps({**meta, "tokenizer": -1}))
    with pytest.raises(CorruptObjectError, match="tokenizer version -1"):
        LexicalIndex(folder(tmp_path))


def test_equal_texts_give_equal_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        build_lexical(["one two", "two three"], tmp_path / name)
    for name in LEXICAL_FILES:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, -1.0])), st.integers(0, 12))
def test_top_equals_a_full_sort(scores: list[float], k: int) -> None:
    expected = sorted(((i, s) for i, s in enumerate(scores) if s > 0), key=lambda item: (-item[1], item[0]))[:k]
    assert top(np.array(scores, np.float32), k) == expected
