"""A small question set in the BEIR layout, and an index of it in memory."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.inprocess import Document, MemorySnapshot, index
from corpusmill.models.factory import build_models
from corpusmill.models.metered import Meter
from corpusmill.settings import EmbedderSettings, RunSettings, Settings
from tests.unit.by_name import by_name

DOCUMENTS = {
    "d1": ("Steve Jobs", "Steve Jobs was born in San Francisco. Steve Jobs led Pixar."),
    "d2": ("San Francisco", "San Francisco lies in California. The Golden Gate Bridge stands in San Francisco."),
    "d3": ("Apple", "The apple tree was domesticated in Kazakhstan. Apples are eaten all over the world."),
    "d4": ("Marie Curie", "Marie Curie discovered polonium. Marie Curie named polonium after Poland."),
    "d5": ("黑豹队", "黑豹队的防守只丢了308分。黑豹队在联赛中排名第六。"),
    "d6": ("Radium", "Radium glows in the dark. Radium was found in Paris."),
}
QUERIES: list[dict[str, object]] = [
    {"_id": "q1", "text": "In which city was Steve Jobs born?", "answers": ["San Francisco"]},
    {"_id": "q2", "text": "Which state does the birthplace of Steve Jobs lie in?", "answers": ["California"]},
    {"_id": "q3", "text": "What did Marie Curie name polonium after?", "answers": ["Poland", "the country of Poland"]},
    {"_id": "q4", "text": "黑豹队的防守丢了多少分？", "answers": ["308"]},
]
QRELS = ["query-id\tcorpus-id\tscore", "q1\td1\t1", "q2\td1\t1", "q2\td2\t1", "q3\td4\t1", "q4\td5\t1"]
METHODS = ("bm25", "dense", "flexstructrag")


def settings(methods: Sequence[str] = METHODS) -> Settings:
    return Settings(embedder=EmbedderSettings(backend="hash"), run=RunSettings(methods=tuple(methods)))


def write_set(
    folder: Path,
    *,
    queries: Iterable[object] = QUERIES,
    qrels: Iterable[str] = QRELS,
    corpus: Iterable[object] | None = None,
    qrels_name: str = "qrels.tsv",
) -> Path:
    """Write a set; a line that is no object is written as it is."""
    rows = [{"_id": key, "title": title, "text": text} for key, (title, text) in DOCUMENTS.items()]
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in (("corpus.jsonl", rows if corpus is None else corpus), ("queries.jsonl", queries)):
        written = [line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines]
        (folder / name).write_text("".join(f"{line}\n" for line in written), "utf-8")
    (folder / qrels_name).parent.mkdir(exist_ok=True)
    (folder / qrels_name).write_text("".join(f"{line}\n" for line in qrels), "utf-8")
    return folder


async def small_index(
    folder: Path, own: Settings, documents: Mapping[str, tuple[str, str]] = DOCUMENTS
) -> MemorySnapshot:
    """An index of the documents, whose paths are their ids."""
    models = build_models(own, meter=Meter())
    rows = [Document(key, title, text) for key, (title, text) in documents.items()]
    try:
        return await index(rows, own, models, folder, by_name)
    finally:
        await models.aclose()
