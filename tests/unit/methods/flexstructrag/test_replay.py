import asyncio
import json
from pathlib import Path

import pytest

from corpusmill.errors import ConfigError, ModelOutputError
from corpusmill.methods.flexstructrag.replay import ReplayModel, mentions, replayed_items, smallest_run
from corpusmill.methods.flexstructrag.tasks import EXTRACT, SUMMARISE_ENTITY, ExtractInput, SummariseInput
from corpusmill.spans import align_quote
from tests.shared import shared_data

PASSAGE = "Ada was born in London. She met Charles Babbage there. Babbage built the Difference Engine with Ada."


def model(folder: Path, triples: list[list[object]], entities: list[str] | None = None) -> ReplayModel:
    record = {"_id": "d0", "entities": entities or [], "triples": triples}
    (folder / "openie.jsonl").write_text(json.dumps(record))
    (folder / "corpus.jsonl").write_text(json.dumps({"_id": "d0", "title": "Ada", "text": PASSAGE}))
    return ReplayModel(folder / "openie.jsonl", folder / "corpus.jsonl")


def items(replay: ReplayModel, chunk: str = PASSAGE) -> list[tuple[str, str, tuple[str, ...]]]:
    found = asyncio.run(replay.generate(EXTRACT, ExtractInput(prefix=(), chunk=chunk))).value.items
    return [(item.statement, item.quote, item.entities) for item in found]


def test_a_triple_is_a_statement_quoting_the_smallest_run_that_holds_both_ends(tmp_path: Path) -> None:
    replay = model(
        tmp_path,
        [["Ada", "was born in", "London"], ["Ada", "met", "Charles Babbage"], ["Ada", "designed", "Analytical Engine"]],
    )
    assert items(replay) == [
        ("Ada was born in London", "Ada was born in London.", ("Ada", "London")),
        (
            "Ada met Charles Babbage",
            "Ada was born in London. She met Charles Babbage there.",
            ("Ada", "Charles Babbage"),
        ),
        ("Ada designed Analytical Engine", PASSAGE, ("Ada", "Analytical Engine")),
    ]


def test_malformed_triples_are_joined_or_counted(tmp_path: Path) -> None:
    replay = model(
        tmp_path,
        [
            ["Ada", "met", "Babbage", "in", "London"],
            ["Ada", "a mathematician"],
            ["nobody", "unknown to the list"],
            ["Ada", "", "London"],
            ["Ada", None, "London"],
            ["Ada"],
            [],
        ],
        ["Ada", "London"],
    )
    assert [(statement, entities) for statement, _, entities in items(replay)] == [
        ("Ada met Babbage in London", ("Ada", "London")),
        ("Ada a mathematician", ("Ada",)),
    ]
    assert replay.counts == {"triples": 2, "joined": 1, "dropped_blank": 4, "dropped_no_entity": 1}


def test_passages_are_found_with_and_without_title_and_others_refused(tmp_path: Path) -> None:
    replay = model(tmp_path, [["Ada", "was born in", "London"]])
    assert items(replay, f"Ada\n\n{PASSAGE} ")[0][1] == "Ada was born in London."
    with pytest.raises(ModelOutputError, match="no recorded extraction of the passage 'Something else'"):
        items(replay, "Something else")


def test_other_tasks_run_their_rule(tmp_path: Path) -> None:
    replay = model(tmp_path, [])
    inputs = SummariseInput(name="Ada", statements=("Ada was born in London.",))
    assert asyncio.run(replay.generate(SUMMARISE_ENTITY, inputs)).value == SUMMARISE_ENTITY.rule(inputs)


@pytest.mark.parametrize("line", ["{", "[]", '{"_id": "d0"}', '{"_id": "d0", "entities": 3, "triples": []}'])
def test_a_bad_recording_is_refused_with_its_place(tmp_path: Path, line: str) -> None:
    (tmp_path / "openie.jsonl").write_text(line)
    with pytest.raises(ConfigError, match="line 1"):
        ReplayModel(tmp_path / "openie.jsonl", tmp_path / "openie.jsonl")


def test_mentions_respects_words_where_a_script_has_them() -> None:
    assert mentions("the us army", "us") and mentions("us", "us")
    assert not mentions("russia and belarus", "us")
    assert mentions("他住在北京市", "北京") and mentions("2010年北京", "北京")
    assert not mentions("anything", "")


def test_smallest_run_prefers_few_sentences_then_the_first() -> None:
    assert smallest_run(["a", "x", "b", "a b", "a b"], "a", "b") == (3, 3)
    assert smallest_run(["a", "x", "b", "x", "a"], "a", "b") == (0, 2)
    assert smallest_run(["a"], "a", "b") is None


def test_every_recorded_passage_of_musique_is_answered_with_grounded_quotes() -> None:
    folder = shared_data("musique_train100")
    replay = ReplayModel(folder / "openie_gpt-3.5-turbo-1106.jsonl", folder / "corpus.jsonl")
    assert replay.counts == {"triples": 17407, "joined": 115, "dropped_blank": 1, "dropped_no_entity": 11}
    lines = (folder / "corpus.jsonl").read_text().splitlines()[::10]
    for line in lines:
        text = json.loads(line)["text"]
        for statement, quote, entities in items(replay, text):
            assert statement and entities and quote in text and align_quote(quote, text) is not None


def test_items_of_one_triple_do_not_depend_on_the_others() -> None:
    triples = [["Ada", "met", "Babbage"], ["Ada", "was born in", "London"]]
    both = list(replayed_items(PASSAGE, [], triples))
    assert both == [next(replayed_items(PASSAGE, [], [triple])) for triple in triples]
