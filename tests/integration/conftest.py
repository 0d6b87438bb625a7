"""What the integration tests share: a small odd corpus, and the command line as its user runs it."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.s3_server import running_s3, s3  # noqa: F401  (fixtures)

APPLE = {
    "fruit/orchard.md": "# Orchards\n\nApple is a sweet fruit that grows on trees in orchards. An Apple holds seeds in its core. "
    "Growers harvest the Apple in autumn and press it into cider. The Apple keeps well in a cool cellar.",
    "fruit/cooking.md": "# Pies\n\nApple is a fruit used in pies and sauces. Cooks peel the Apple and remove its core and seeds. "
    "A ripe Apple is sweet, a green Apple is sour. Bakers slice the fruit Apple into pie crust with cinnamon.",
    "company/history.md": "# Computers\n\nApple is a technology company founded by Steve Jobs and Steve Wozniak in Cupertino. "
    "Apple sells computers and the iPhone. Apple designed the Macintosh computer. Apple employs engineers in California.",
    "company/products.md": "# Phones\n\nApple is the technology company that sells the iPhone and computers. Tim Cook leads Apple "
    "in Cupertino. Apple designs software for its computers. Apple opened stores in California.",
    "company/shares.txt": "Apple is a technology company whose shares trade on Nasdaq. Apple makes computers and the iPhone. "
    "Investors value Apple for its hardware. The company Apple is based in Cupertino, California.",
}
OTHERS = {
    "notes/one/readme.md": "# Telescopes\n\nThe Hubble Space Telescope was launched in 1990. It was named after Edwin Hubble.\n\n"
    "Edwin Hubble worked at Mount Wilson Observatory in California.",
    "notes/two/readme.md": "# Bridges\n\nThe Golden Gate Bridge in San Francisco opened in 1937. Joseph Strauss was its chief engineer.",
    "zh.txt": "北京是中华人民共和国的首都。北京大学位于北京。鲁迅曾在北京大学任教。",
    "page.html": "<html><head><title>Rivers</title></head><body><h1>Rivers</h1><p>The Danube flows through Vienna and Budapest. "
    "Budapest is the capital of Hungary.</p></body></html>",
    "empty.txt": "",
    "word.txt": "Hello",
}


def write_corpus(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return folder


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict:
        assert self.out, self.err
        return json.loads(self.out)


def command_environment(cache: Path, **settings: str) -> dict[str, str]:
    """The environment of a command: small engines, a cache of its own, settings as CORPUSMILL__A__B."""
    small = {"CORPUSMILL__SPARK__DRIVER_MEMORY": "768m", "CORPUSMILL__SPARK__PARTITIONS": "4"}
    return {**os.environ, **small, "CORPUSMILL__CACHE__DIR": str(cache), **settings}


def corpusmill(*arguments: str, cache: Path, timeout: float = 300, **settings: str) -> Ran:
    """Run the command line as a user does."""
    done = subprocess.run(
        [str(Path(sys.executable).parent / "corpusmill"), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=command_environment(cache, **settings),
    )
    return Ran(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"), APPLE | OTHERS)


@dataclass(frozen=True)
class Indexed:
    source: Path
    index: str
    cache: Path
    result: dict


@pytest.fixture(scope="session")
def indexed(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Indexed:
    """The corpus indexed once with the defaults."""
    base = tmp_path_factory.mktemp("indexed")
    ran = corpusmill("index", str(corpus), "--to", str(base / "index"), "--json", cache=base / "cache")
    assert ran.code == 0, ran.err
    return Indexed(corpus, str(base / "index"), base / "cache", ran.json)
