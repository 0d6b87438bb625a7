"""A method of a third package, written through the public seam alone: indexed, updated, refitted and queried."""

import ast
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from corpusmill.store.commit import current
from corpusmill.store.manifest import Manifest
from corpusmill.store.objects import open_store
from tests.integration.conftest import APPLE, OTHERS, Ran, corpusmill, write_corpus

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]  # six runs of the command line

PACKAGE = Path(__file__).parent.parent / "toy_method"
PINNED = {"toy_vocabulary", "toy_weights"}  # the fitted table, and the one that is made with it
EDITED = {
    "zh.txt": "上海是中国的城市。上海大学位于上海。",
    "new.md": "Marie Curie was born in Warsaw. Marie Curie won the Nobel Prize for the discovery of radium.",
    "notes/two/readme.md": "# Bridges\n\nThe Golden Gate Bridge in San Francisco opened in 1937. Charles Ellis drew it.",
}
QUESTION = "When did the Golden Gate Bridge in San Francisco open?"
SEAM = {
    "corpusmill.steps",
    "corpusmill.methods.protocol",
    "corpusmill.methods.common",
    "corpusmill.schemas",
    "corpusmill.spans",
    "corpusmill.frozen",
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """PYTHONPATH of a folder that holds the package as an installer leaves it, its entry point beside it."""
    site = tmp_path_factory.mktemp("site")
    shutil.copytree(PACKAGE, site / "toy_method", ignore=shutil.ignore_patterns("__pycache__"))
    info = site / "toy_method-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-method\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[corpusmill.methods]\ntoy = toy_method\n")
    return os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])


class Shell:
    """The command line with the package installed, and one index."""

    def __init__(self, folder: Path, installed: str) -> None:
        self.source = folder / "docs"
        self.index = str(folder / "index")
        self._folder = folder
        self._environment = {"PYTHONPATH": installed, "CORPUSMILL__EMBEDDER__BACKEND": "hash"}

    def run(self, *arguments: str) -> Ran:
        return corpusmill(*arguments, cache=self._folder / "cache", **self._environment)

    def make(self, *more: str, to: str | None = None, method: str = "toy") -> dict:
        ran = self.run("index", str(self.source), "--to", to or self.index, "--method", method, "--json", *more)
        assert ran.code == 0, ran.err
        return ran.json


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory, installed: str) -> Shell:
    made = Shell(tmp_path_factory.mktemp("toy"), installed)
    write_corpus(made.source, APPLE | OTHERS)
    return made


@pytest.fixture(scope="module")
def first(shell: Shell) -> dict:
    """The result of the first run."""
    return shell.make()


def manifest(index: str) -> Manifest:
    found = current(open_store(index))
    assert found is not None
    return found


def digests(found: Manifest) -> Mapping[str, tuple[int, str]]:
    return {table.name: (table.rows, table.digest) for table in found.tables}


def test_the_method_is_small_and_uses_the_seam_alone() -> None:
    sources = [path.read_text("utf-8") for path in sorted(PACKAGE.glob("*.py"))]
    assert sum(len(source.splitlines()) for source in sources) < 80
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    used = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    used |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    ours = {name for name in used if name.startswith("corpusmill")}
    assert {name for name in ours if name not in SEAM and name.rpartition(".")[0] not in SEAM} == set()
    assert used - ours == {"re", "pyarrow"}


def test_a_third_package_is_indexed_updated_refitted_and_queried(shell: Shell, first: dict, tmp_path: Path) -> None:
    listed = {method["name"]: method for method in shell.run("methods", "--json").json["methods"]}
    assert listed["toy"]["modes"] == ["terms"]
    assert (first["new"], first["calls"], first["documents"]["new"]) == (True, 0, len(APPLE) + len(OTHERS))
    before = digests(manifest(shell.index))
    assert before["toy_vocabulary"][0] == 60 and before["toy_weights"][0] == 60
    assert before["toy_counts"][0] > 60 and before["toy_terms"][0] > before["toy_counts"][0]

    again = shell.make()
    assert (again["new"], again["snapshot"], again["digest"]) == (False, first["snapshot"], first["digest"])

    write_corpus(shell.source, EDITED)
    (shell.source / "fruit/orchard.md").unlink()
    updated = shell.make()
    counts = updated["documents"]
    assert (counts["new"], counts["changed"], counts["deleted"]) == (1, 2, 1)
    after = digests(manifest(shell.index))
    assert after["toy_vocabulary"] == before["toy_vocabulary"]  # pinned, though what it was fitted on has changed
    assert after["toy_counts"] != before["toy_counts"] and after["toy_weights"] != before["toy_weights"]

    rebuilt_at = str(tmp_path / "rebuilt")
    rebuilt = shell.make(to=rebuilt_at)
    fresh = digests(manifest(rebuilt_at))
    assert {name for name in after if after[name] != fresh[name]} == PINNED  # equal up to the pinned fit

    refitted = shell.make("--refit")
    assert (refitted["new"], refitted["digest"]) == (True, rebuilt["digest"])
    assert digests(manifest(shell.index)) == fresh
    assert shell.run("verify", shell.index, "--json").json == {"ok": True, "problems": []}

    answer = shell.run("query", shell.index, QUESTION, "--method", "toy", "--json").json
    assert (answer["method"], answer["mode"]) == ("toy", "terms")
    assert answer["evidence"][0]["sources"][0]["uri"].endswith("notes/two/readme.md")
    assert "1937" in answer["answer"] and answer["citations"][0]["uri"].endswith("notes/two/readme.md")


def test_a_second_method_on_the_index_shares_its_chunks(shell: Shell, first: dict) -> None:
    """The chunks that one method made are the other's, to the segment; the first one's tables stay as they are."""
    assert first["new"]
    before = manifest(shell.index)
    shell.make(method="bm25")
    after = manifest(shell.index)
    assert {method.name for method in after.methods} == {"bm25", "toy"}
    assert [a for a in after.artifacts if a.step == "chunks"] == [a for a in before.artifacts if a.step == "chunks"]
    table = after.table("chunks")
    assert (table.digest, set(table.methods)) == (before.table("chunks").digest, {"bm25", "toy"})
    assert digests(before).items() <= digests(after).items()
    for method in ("toy", "bm25"):
        found = shell.run("query", shell.index, QUESTION, "--method", method, "--json").json
        assert found["method"] == method and "1937" in found["answer"]
