"""Recorded open information extraction as the extractor: a real model's entities and triples with no model at hand."""

import itertools
import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from corpusmill.errors import ConfigError, ModelOutputError
from corpusmill.hashing import fingerprint, hash_bytes, hash_text
from corpusmill.methods.flexstructrag.tasks import ExtractedItem, ExtractInput, Extraction
from corpusmill.models.contracts import Generation, InputT, OutputT, Task, Usage
from corpusmill.names import normal_form as uncached_normal_form
from corpusmill.segmentation.sentences import sentences

_VERSION = 1

normal_form = lru_cache(maxsize=1 << 16)(uncached_normal_form)  # names recur in many triples of a record


class ReplayModel:
    """A LanguageModel that answers `extract` from a recording, and every other task by its rule.

    `path`: JSON lines {_id, entities, triples}; `corpus`: JSON lines {_id, title, text}. A chunk is looked up by the
    hash of its text (with or without the title before it), white space apart: passages must fit one chunk.
    `counts` says how many triples were used, joined from more than three parts, or dropped, and why.
    Raises ConfigError on a line that does not have this form.
    """

    def __init__(self, path: Path, corpus: Path) -> None:
        self._records: dict[str, dict[str, object]] = {}
        self._passages: dict[str, str] = {}
        self.counts = {"triples": 0, "joined": 0, "dropped_blank": 0, "dropped_no_entity": 0}
        self._fingerprint = fingerprint(
            {"replay": _VERSION, "files": [hash_bytes(Path(file).read_bytes()) for file in (path, corpus)]}
        )
        for record in _lines(path, ("_id", "entities", "triples")):
            self._records[str(record["_id"])] = record
            for triple in _triples(record):
                self._count(triple, _names(record))
        for passage in _lines(corpus, ("_id", "text")):
            for text in (str(passage["text"]), f"{passage.get('title') or ''} {passage['text']}"):
                self._passages[_key(text)] = str(passage["_id"])

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    async def generate(
        self, task: Task[InputT, OutputT], inputs: InputT, *, affinity: str | None = None
    ) -> Generation[OutputT]:
        """Raises ModelOutputError where the recording has no such passage."""
        if not isinstance(inputs, ExtractInput):
            return Generation(task.rule(inputs), Usage(calls=1))
        record = self._records.get(self._passages.get(_key(inputs.chunk), ""))
        if record is None:
            raise ModelOutputError(f"no recorded extraction of the passage {inputs.chunk[:80]!r}")
        items = tuple(replayed_items(inputs.chunk, _names(record), _triples(record)))
        return Generation(task.output_type.model_validate(Extraction(items=items).model_dump()), Usage(calls=1))

    async def aclose(self) -> None:
        return None

    def _count(self, triple: Sequence[object], names: Sequence[str]) -> None:
        parts = _parts(triple)
        if len(parts) < 2 or len(parts) != len(triple):
            self.counts["dropped_blank"] += 1
        elif not _entities(parts, names):
            self.counts["dropped_no_entity"] += 1
        else:
            self.counts["triples"] += 1
            self.counts["joined"] += len(parts) > 3


def replayed_items(passage: str, names: Sequence[str], triples: Sequence[Sequence[object]]) -> Iterator[ExtractedItem]:
    """Triples as statements: "subject relation object".

    Its entities are its ends and the recorded names that it mentions. More than three parts: the first and the last
    are the ends, all are joined. Two parts are a subject and what is said of it: only the recorded names are entities.
    The quote is the smallest run of sentences that mentions both ends, else the whole passage. Triples with a blank
    part, or without an entity, are left out.
    """
    spans = sentences(passage)
    folded = [normal_form(span.of(passage)) for span in spans]
    for triple in triples:
        parts = _parts(triple)
        if len(parts) < 2 or len(parts) != len(triple):
            continue
        entities = _entities(parts, names)
        if entities:
            run = smallest_run(folded, normal_form(parts[0]), normal_form(parts[-1]))
            quote = passage if run is None else passage[spans[run[0]].start : spans[run[1]].end]
            yield ExtractedItem(statement=" ".join(parts), quote=quote, entities=entities)


def smallest_run(folded: Sequence[str], a: str, b: str) -> tuple[int, int] | None:
    """First and last of the fewest consecutive sentences that mention both normal forms; of equals the first run."""
    at_a = [i for i, sentence in enumerate(folded) if mentions(sentence, a)]
    at_b = [i for i, sentence in enumerate(folded) if mentions(sentence, b)]
    runs = ((min(i, j), max(i, j)) for i, j in itertools.product(at_a, at_b))
    return min(runs, key=lambda run: (run[1] - run[0], run[0]), default=None)


def mentions(folded: str, name: str) -> bool:
    """Whether a normal form stands in another, not inside a word of a script that separates words by spaces."""
    at = folded.find(name) if name else -1
    while at >= 0:
        if not (_inside_word(folded, at) or _inside_word(folded, at + len(name))):
            return True
        at = folded.find(name, at + 1)
    return False


def _inside_word(text: str, at: int) -> bool:
    """Whether `at` divides a word; letters from U+2E80 on (CJK) are words of their own."""
    pair = text[max(0, at - 1) : at + 1]
    return 0 < at < len(text) and pair.isalnum() and all(ch < "\u2e80" for ch in pair)


def _entities(parts: Sequence[str], names: Sequence[str]) -> tuple[str, ...]:
    ends = (parts[0], parts[-1]) if len(parts) > 2 else ()
    statement = normal_form(" ".join(parts))
    inside = [name for name in names if mentions(statement, normal_form(name))]
    kept = {normal_form(name): name for name in (*inside, *ends) if normal_form(name)}
    return tuple(kept.values())


def _parts(triple: Sequence[object]) -> list[str]:
    return [part.strip() for part in triple if isinstance(part, str) and normal_form(part)]


def _names(record: dict[str, object]) -> list[str]:
    names = record["entities"]
    assert isinstance(names, list)
    return [name for name in names if isinstance(name, str)]


def _triples(record: dict[str, object]) -> list[list[object]]:
    triples = record["triples"]
    assert isinstance(triples, list)
    return [triple for triple in triples if isinstance(triple, list)]


def _key(text: str) -> str:
    return hash_text(" ".join(text.split()))


def _lines(path: Path, keys: tuple[str, ...]) -> Iterator[dict[str, object]]:
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            try:
                record = json.loads(line)
            except ValueError as error:
                raise ConfigError(f"{path}, line {number}: not JSON ({error})") from None
            if not isinstance(record, dict) or any(key not in record for key in keys):
                raise ConfigError(f"{path}, line {number}: expected an object with {', '.join(keys)}")
            if not all(isinstance(record.get(key, []), list) for key in ("entities", "triples")):
                raise ConfigError(f"{path}, line {number}: entities and triples must be lists")
            yield record
