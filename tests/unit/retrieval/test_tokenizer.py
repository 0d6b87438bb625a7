import csv
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpusmill.retrieval.files import folder
from corpusmill.retrieval.lexical import LexicalIndex, build_lexical
from corpusmill.retrieval.tokenizer import tokens
from tests.shared import shared_data


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Cats' pyjamas, Apple's", ["the", "cats", "pyjamas", "apple"]),
        ("x-amz-acl", ["x-amz-acl", "x", "amz", "acl"]),
        ("PutObject", ["putobject", "put", "object"]),
        ("HTTPServer", ["httpserver", "http", "server"]),
        ("max_keys", ["max_keys", "max", "keys"]),
        ("Straße ﬁne", ["strasse", "fine"]),
        ("黑豹队", ["黑", "豹", "队", "黑豹", "豹队"]),
        ("डिफ़ेंस ने", ["डिफ़ेंस", "ने"]),
        ("한국어", ["한국", "국어", "한국어"]),
        ("", []),
        ("... !?", []),
    ],
)
def test_tokens_of_each_script(text: str, expected: list[str]) -> None:
    assert tokens(text) == [*expected]


def test_thai_is_searchable_inside_a_run_without_spaces() -> None:
    assert set(tokens("ภาษาไทย")) & set(tokens("ฉันพูดภาษาไทยได้"))


@given(st.text())
def test_tokens_are_deterministic_and_never_blank(text: str) -> None:
    found = tokens(text)
    assert found == tokens(text)
    assert all(token.strip() == token and token for token in found)


@given(st.text(alphabet=st.characters(categories=["Lu", "Ll"]), min_size=1))
def test_letter_case_does_not_matter_to_a_plain_word(word: str) -> None:
    plain = word.casefold()
    assert tokens(plain) == tokens(plain.casefold())


def _recall(name: str, tmp_path: Path) -> float:
    data = shared_data(name)
    corpus = [json.loads(line) for line in (data / "corpus.jsonl").open(encoding="utf-8")]
    questions = [json.loads(line) for line in (data / "queries.jsonl").open(encoding="utf-8")]
    with (data / "qrels.tsv").open(encoding="utf-8") as lines:
        gold = {row["query-id"]: row["corpus-id"] for row in csv.DictReader(lines, delimiter="\t")}
    build_lexical((f"{p['title']}\n{p['text']}" for p in corpus), tmp_path)
    index = LexicalIndex(folder(tmp_path))
    hits = [gold[q["_id"]] in {corpus[row]["_id"] for row, _ in index.search(q["text"], 5)} for q in questions]
    return float(np.mean(hits))


@pytest.mark.parametrize(("name", "least"), [("xquad_zh", 0.95), ("xquad_hi", 0.94), ("xquad_en", 0.97)])
def test_recall_in_scripts_with_and_without_spaces(name: str, least: float, tmp_path: Path) -> None:
    assert _recall(name, tmp_path) >= least


@given(st.text(alphabet=st.characters(codec="ascii")))
def test_ascii_text_gives_the_same_tokens_beside_other_scripts(text: str) -> None:
    assert tokens(text) == tokens(f"{text} 黑")[:-1]
