"""ContextRAG through the command line: the codebook that stays, what an update equals, filters, an empty corpus."""

import json
import random
import shutil
from pathlib import Path

import pytest

from corpusmill.store.commit import current
from corpusmill.store.objects import open_store
from tests.integration.conftest import Ran, corpusmill

pytestmark = pytest.mark.integration

SUBJECTS = {
    "rivers": ["river", "water", "bank", "bridge", "flood", "delta", "valley", "boat", "stream", "mouth"],
    "music": ["song", "album", "band", "guitar", "concert", "singer", "record", "tour", "stage", "chorus"],
    "stars": ["star", "planet", "orbit", "telescope", "galaxy", "moon", "comet", "light", "dust", "gravity"],
    "bread": ["flour", "oven", "dough", "baker", "yeast", "crust", "loaf", "salt", "butter", "kitchen"],
}
SMALL = (
    "--set", "methods.contextrag.levels=[8,4]",
    "--set", "methods.contextrag.points_per_centroid=8",
    "--set", "methods.contextrag.summaries=5",
)  # fmt: skip


def records(numbers: range) -> list[dict[str, str]]:
    """One document a number, each of one of four subjects."""
    found = []
    for number in numbers:
        choose = random.Random(number)
        subject, words = sorted(SUBJECTS.items())[number % 4]
        said = [f"The {' '.join(choose.sample(words, 4))} of place {number} is known." for _ in range(3)]
        found.append({"id": f"{subject}/{number}", "title": f"{subject} {number}", "text": " ".join(said)})
    return found


class Shell:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.source = folder / "corpus.jsonl"
        self.index = folder / "index"

    def write(self, *parts: range) -> None:
        rows = [record for numbers in parts for record in records(numbers)]
        self.source.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")

    def run(self, *arguments: str) -> Ran:
        return corpusmill(*arguments, cache=self.folder / "cache", CORPUSMILL__EMBEDDER__BACKEND="hash")

    def make(self, *more: str, to: Path | None = None) -> dict:
        ran = self.run(
            "index", str(self.source), "--to", str(to or self.index), "--method", "contextrag", "--json", *SMALL, *more
        )
        assert ran.code == 0, ran.err
        return ran.json


def digests(index: Path) -> dict[str, str]:
    manifest = current(open_store(str(index)))
    assert manifest is not None
    return {table.name: table.digest for table in manifest.tables}


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    made = Shell(tmp_path_factory.mktemp("context"))
    made.write(range(160))
    made.first = made.make()
    return made


def test_few_calls_make_the_index_and_every_mode_answers(shell: Shell) -> None:
    assert shell.first["new"] and shell.first["calls"] <= 5
    for mode in ("hybrid", "fast", "structure"):
        found = shell.run(
            "query", str(shell.index), "Which guitar song is on the album?", "--mode", mode, "--json"
        ).json
        assert (found["method"], found["mode"]) == ("contextrag", mode)
        assert found["evidence"]
    best = shell.run("query", str(shell.index), "Which guitar song is on the album?", "--mode", "fast", "--json").json
    assert all("music/" in source["uri"] for source in best["evidence"][0]["sources"])


def test_a_question_kept_to_some_documents_is_told_of_no_other(shell: Shell) -> None:
    found = shell.run(
        "query", str(shell.index), "Which guitar song is on the album?", "--document", "stars/*", "--json"
    ).json
    uris = {source["uri"] for piece in found["evidence"] for source in piece["sources"]}
    assert uris and all("stars/" in uri for uri in uris)


def test_an_update_depends_on_the_documents_and_the_codebook_alone(shell: Shell) -> None:
    other = shell.folder / "other"
    shutil.copytree(shell.index, other)
    before = digests(shell.index)
    shell.write(range(40, 200))
    straight = shell.make()
    shell.write(range(300, 380))
    shell.make(to=other)
    shell.write(range(40, 200))
    around = shell.make(to=other)
    assert straight["digest"] == around["digest"]
    after = digests(shell.index)
    assert after["context_codebook"] == before["context_codebook"]
    assert after["context_memberships"] != before["context_memberships"]

    fresh = shell.folder / "fresh"
    rebuilt = shell.make(to=fresh)
    assert digests(fresh)["context_codebook"] != after["context_codebook"]
    refitted = shell.make("--refit")
    assert refitted["new"] and refitted["digest"] == rebuilt["digest"]


def test_a_corpus_of_nothing_is_an_index_that_finds_nothing(shell: Shell) -> None:
    empty = shell.folder / "empty"
    folder = shell.folder / "nothing"
    folder.mkdir()
    (folder / "empty.txt").write_text("")
    ran = shell.run("index", str(folder), "--to", str(empty), "--method", "contextrag", "--json")
    assert ran.code == 0, ran.err
    found = shell.run("query", str(empty), "What is known?", "--json")
    assert found.code == 0, found.err
    assert not found.json["evidence"] and not found.json["citations"]
