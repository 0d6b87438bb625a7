"""Whether an index holds a question set's documents: by their ids, and by the texts of some of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from corpusmill.errors import UsageError
from corpusmill.evaluation.dataset import QuestionSet, corpus_rows, counted, listed
from corpusmill.methods.protocol import Snapshot
from corpusmill.sources.encodings import normalised

_ROWS_AT_ONCE = 8_192
_SAMPLE = 50  # documents whose texts are compared


@dataclass(frozen=True)
class Coverage:
    """Documents of the set, those that the index can find (by id, with a text), and the same of gold ones. `lost` are
    ids that it cannot find, gold ones first; `differ` those of the `compared` whose text the index does not have.
    `others` are documents of the index that the set does not have."""

    documents: int
    found: int
    gold: int
    gold_found: int
    lost: tuple[str, ...]
    compared: int
    differ: tuple[str, ...]
    others: int = 0


def coverage(questions: QuestionSet, snapshot: Snapshot) -> Coverage:
    """Compare a set's corpus with the documents of an index. Raises UsageError on a corpus line at fault."""
    table = snapshot.table("documents", ["path", "text_hash"])
    table = table.filter(table.column("text_hash").is_valid())
    stored = table.column("path").combine_chunks()
    gold = {document for question in questions.questions for document in question.gold}
    documents, lost, sample = 0, list[str](), dict[str, str]()
    rows = corpus_rows(questions.corpus)
    while batch := list(islice(rows, _ROWS_AT_ONCE)):
        documents += len(batch)
        known = pc.is_in(pa.array([document for document, _ in batch], pa.string()), value_set=stored).to_pylist()
        for (document, row), is_known in zip(batch, known, strict=True):
            if not is_known:
                lost.append(document)
            elif len(sample) < _SAMPLE and isinstance(row.get("text"), str):
                sample[document] = normalised(row["text"])[0].strip()
    gold_lost = [one for one in lost if one in gold]
    return Coverage(
        documents=documents,
        found=documents - len(lost),
        gold=len(gold),
        gold_found=len(gold) - len(gold_lost),
        lost=(*gold_lost, *(one for one in lost if one not in gold)),
        compared=len(sample),
        differ=_differing(sample, table, snapshot),
        others=table.num_rows - (documents - len(lost)),
    )


def _differing(sample: Mapping[str, str], table: pa.Table, snapshot: Snapshot) -> tuple[str, ...]:
    """Documents whose text of the set stands in none of the index's texts of that id (a title may stand before it)."""
    own = table.filter(pc.is_in(table.column("path"), value_set=pa.array(list(sample), pa.string())))
    held = {
        path
        for path, text_hash in zip(own.column("path").to_pylist(), own.column("text_hash").to_pylist(), strict=True)
        if sample[path] in snapshot.text(text_hash)
    }
    return tuple(document for document in sample if document not in held)


def coverage_warnings(found: Coverage, questions: QuestionSet, index: str) -> list[str]:
    """What to know of an index that lacks some of the set. Raises UsageError where it is no index of the set."""
    corpus, how = questions.corpus, f"corpusmill index {questions.corpus} --to INDEX --set source.id_column=_id"
    if not found.found:
        raise UsageError(
            f"{index} has none of the {counted(found.documents, 'document')} of {corpus} ({listed(found.lost)}); a "
            f"document's path must be its `_id`: {how}"
        )
    if found.compared and len(found.differ) == found.compared:
        raise UsageError(
            f"{index} has documents of the same ids as {corpus} but with other texts ({listed(found.differ)}): it is "
            f"the index of another corpus; make one of this: {how}"
        )
    warnings = []
    if lost := found.documents - found.found:
        warnings.append(
            f"{index} lacks {lost:,} of the {counted(found.documents, 'document')} of {corpus}, "
            f"{found.gold - found.gold_found:,} of the {found.gold:,} gold ones among them ({listed(found.lost)}): "
            f"what it lacks counts as not found; to add them: {how.replace('INDEX', index)}"
        )
    if found.others:
        warnings.append(
            f"{index} has {counted(found.others, 'document')} that {corpus} does not have: questions are asked among "
            "those too, so figures do not compare with the set's own"
        )
    if found.differ:
        warnings.append(
            f"{len(found.differ)} of {counted(found.compared, 'document')} compared have another text in {index} than "
            f"in {corpus} ({listed(found.differ)}): the index is of another version"
        )
    return warnings
