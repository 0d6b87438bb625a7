"""One text's tables come from one build, whatever runs left behind, and every reader takes the same ones."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from corpusmill.digest import RowsDigest, rows_digest
from corpusmill.schemas import TableSpec, required
from corpusmill.store.draft import Draft
from corpusmill.store.local import LocalStore
from corpusmill.store.ownership import Candidate, choose, with_lineage
from corpusmill.store.segments import INDEX_SCHEMA, TextArtifact, owners, write_segment
from corpusmill.store.view import SnapshotView
from tests.small_index import DOCUMENTS, document, write_table

READS: Mapping[str, tuple[str, ...]] = {"a": (), "b": ("a",), "c": ("a", "b"), "d": ()}
Candidates = dict[str, list[Candidate]]


@st.composite
def histories(draw: st.DrawFn) -> Candidates:
    """What runs left of one text: artifacts of each step, made from this or that version of what the step reads."""
    versions = st.sampled_from(["0", "1", "2"])
    held: Candidates = {}
    for step, reads in READS.items():
        for segment in draw(st.lists(st.integers(0, 3), unique=True, max_size=4)):
            made_from = {table: draw(versions) for table in reads}
            held.setdefault(step, []).append(Candidate(segment, draw(st.booleans()), {step: draw(versions)}, made_from))
    return held


def fits(one: Candidate, chosen: Mapping[str, Candidate]) -> bool:
    return all(table in chosen and chosen[table].tables[table] == d for table, d in one.made_from.items())


@given(histories())
def test_what_is_chosen_fits_and_nothing_better_does(held: Candidates) -> None:
    chosen = choose(held)
    for step, candidates in held.items():
        fitting = [one for one in candidates if fits(one, chosen)]
        complete = sorted(one.segment for one in fitting if one.complete)
        incomplete = sorted(one.segment for one in fitting)
        expected = complete[0] if complete else incomplete[-1] if incomplete else None
        assert (chosen[step].segment if step in chosen else None) == expected


@given(histories(), st.data())
def test_order_and_segments_that_own_nothing_do_not_matter(held: Candidates, data: st.DataObject) -> None:
    chosen = choose(held)
    shuffled = data.draw(st.permutations(list(held)))
    again = {step: data.draw(st.permutations(held[step])) for step in shuffled}
    assert choose(again) == chosen
    kept = {
        step: [one for one in rows if one is chosen.get(step) or data.draw(st.booleans())]
        for step, rows in held.items()
    }
    assert choose({step: rows for step, rows in kept.items() if rows}) == chosen


def test_steps_that_read_each_other_fit_nothing() -> None:
    one, two = Candidate(0, True, {"a": "x"}, {"b": "y"}), Candidate(0, True, {"b": "y"}, {"a": "x"})
    assert choose({"a": [one], "b": [two]}) == {}


@settings(max_examples=25)
@given(st.lists(st.lists(st.tuples(st.sampled_from("pqr"), histories()), unique_by=lambda pair: pair[0]), max_size=1))
def test_rows_of_many_texts_are_chosen_text_by_text(drawn: list[list[tuple[str, Candidates]]]) -> None:
    texts = dict(drawn[0]) if drawn else {}
    indexes = {step: [_index(texts, step, segment) for segment in range(4)] for step in READS}
    found = {
        (text, step): segment
        for step, rows in owners(indexes).items()
        for text, segment in zip(rows.column("text_hash").to_pylist(), rows.column("segment").to_pylist(), strict=True)
    }
    expected = {(text, step): one.segment for text, held in texts.items() for step, one in choose(held).items()}
    assert found == expected


def _index(texts: Mapping[str, Candidates], step: str, segment: int) -> pa.Table:
    rows = [
        {
            "text_hash": text,
            "complete": one.complete,
            "failures": [],
            "tables": [{"name": name, "rows": 1, "digest": digest} for name, digest in one.tables.items()],
            "made_from": [{"name": name, "digest": digest} for name, digest in one.made_from.items()],
        }
        for text in sorted(texts)
        for one in texts[text].get(step, [])
        if one.segment == segment
    ]
    return pa.Table.from_pylist(rows, schema=INDEX_SCHEMA)


def test_index_rows_of_the_first_version_are_made_from_nothing_known() -> None:
    rows = [{"text_hash": h, "complete": True, "failures": [], "tables": [], "made_from": []} for h in "ab"]
    whole = pa.Table.from_pylist(rows, schema=INDEX_SCHEMA)
    assert with_lineage(whole.drop_columns("made_from")).cast(INDEX_SCHEMA).equals(whole)


# through the store: two builds whose model answered differently


def _spec(name: str) -> TableSpec:
    fields = [required("text_hash", pa.string()), required("value", pa.string())]
    return TableSpec(name, pa.schema(fields), ("text_hash",))


def _seal(store: LocalStore, draft: Draft, step: str, made: Sequence[TextArtifact]) -> None:
    draft.add_segments(step, f"fp-{step}", (step,), [write_segment(store, step, f"fp-{step}", [_spec(step)], made)])


def test_a_view_never_joins_tables_of_two_builds(tmp_path: Path) -> None:
    store, draft = LocalStore(str(tmp_path)), Draft()
    rows = [document(name, f"text of {name}") for name in ("once", "twice")]
    draft.put_table(write_table(store, DOCUMENTS, "ingest", [DOCUMENTS.table(rows)], "run"))
    once, twice = (str(row["text_hash"]) for row in rows)

    def artifact(step: str, text: str, value: str, *failures: str, of: TextArtifact | None = None) -> TextArtifact:
        made_from: dict[str, RowsDigest] = {name: rows_digest(t) for name, t in of.tables.items()} if of else {}
        table = _spec(step).table([{"text_hash": text, "value": value}])
        return TextArtifact(text, {step: table}, failures, made_from)

    first = {text: artifact("statements", text, f"{text} 1") for text in (once, twice)}
    # the first run's entities were sealed, its statements of one text were lost
    _seal(store, draft, "statements", [first[once]])
    _seal(store, draft, "entities", [artifact("entities", t, f"of {t} 1", of=first[t]) for t in (once, twice)])
    second = artifact("statements", twice, f"{twice} 2")
    _seal(store, draft, "statements", [second])
    _seal(store, draft, "entities", [artifact("entities", twice, f"of {twice} 2", of=second)])
    view = SnapshotView(store, draft, specs=[_spec("statements"), _spec("entities")])
    values = {row["text_hash"]: row["value"] for row in view.table("statements").to_pylist()}
    assert values == {once: f"{once} 1", twice: f"{twice} 2"}
    values = {row["text_hash"]: row["value"] for row in view.table("entities").to_pylist()}
    assert values == {once: f"of {once} 1", twice: f"of {twice} 2"}
    assert view.index_rows("entities").column("segment").to_pylist() == [
        {once: 0, twice: 1}[text] for text in sorted((once, twice))
    ]
    assert view.rows("entities") == 2
