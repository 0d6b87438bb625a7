"""Ingest on a real local Spark: planning, reading, texts and chunks, and what is left to build."""

import json
import os
import random
import shutil
import sys
from dataclasses import replace

import pytest

from corpusmill.digest import RowsDigest
from corpusmill.errors import SourceError
from corpusmill.planning import resolved_plan
from corpusmill.run import RunSpec
from corpusmill.settings import ChunkSettings, ConvertSettings, Settings, SparkSettings
from corpusmill.sources.listing import Source
from corpusmill.steps import TextStep
from corpusmill.store.commit import current, publish
from corpusmill.store.objects import open_store
from corpusmill.store.segments import read_segment_index
from corpusmill.store.tables import read_table_file
from corpusmill.store.view import SnapshotView
from spark_jobs.census import census
from spark_jobs.ingest import ingest
from spark_jobs.reading import document_counts
from tests.shared import REPOSITORY

pytestmark = pytest.mark.engine

MISBEHAVING = (sys.executable, str(REPOSITORY / "tests" / "convert_workers.py"))
QUICK = ConvertSettings(timeout_s=3, memory_mb=400, attempts=2)


@pytest.fixture(scope="module")
def spark():
    from spark_jobs.session import spark_session

    session = spark_session(Settings(spark=SparkSettings(partitions=2)), "test ingest")
    yield session
    session.stop()


def _make_corpus(folder):
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("Ada wrote the first program.\n\nBob read it.")
    (folder / "sub" / "a.txt").write_text("Another text under the same base name.")
    (folder / "copy.txt").write_text("Ada wrote the first program.\n\nBob read it.")
    (folder / "empty.md").write_text(" \n")
    (folder / "page.html").write_text("<html><body><h1>Ducks</h1><p>Ducks swim in ponds.</p></body></html>")
    (folder / "data.bin").write_bytes(bytes(range(256)) * 8)


@pytest.fixture(scope="module")
def template(spark, tmp_path_factory):
    """A corpus, a copy of it, and the published index of it; made once."""
    root = tmp_path_factory.mktemp("template")
    _make_corpus(root / "copy")
    shutil.copytree(root / "copy", root / "corpus")
    index = Index(spark, root / "index")
    result = index.ingest(root / "corpus")
    return root, result, index.commit(result)


@pytest.fixture
def corpus(template):
    """The corpus as it was ingested, times of change included, at the same place."""
    root = template[0]
    shutil.rmtree(root / "corpus")
    shutil.copytree(root / "copy", root / "corpus")
    for path in (root / "copy").rglob("*"):
        shutil.copystat(path, root / "corpus" / path.relative_to(root / "copy"))
    return root / "corpus"


@pytest.fixture
def published(spark, template, corpus, tmp_path):
    """An index of one's own with the corpus in it."""
    shutil.copytree(template[0] / "index", tmp_path / "index")
    made = Index(spark, tmp_path / "index")
    made.runs = 1
    return made


def text_steps_only(settings):
    """The plan without what builders would have to make."""
    plan = resolved_plan(settings)
    steps = tuple(step for step in plan.steps if isinstance(step, TextStep))
    return replace(plan, steps=steps, producers={spec.name: step.name for step in steps for spec in step.outputs})


class Index:
    """An index that this test fills: `ingest` runs one, `commit` publishes its texts and documents."""

    def __init__(self, spark, folder):
        self.spark, self.uri = spark, str(folder)
        self.store = open_store(self.uri)
        self.runs = 0

    def ingest(self, source, source_id=None, worker=None, counts=None, **settings):
        self.runs += 1
        self.settings = Settings(**{"spark": SparkSettings(partitions=2), **settings})
        uri = Source.parse(str(source), self.settings).uri
        parent = current(self.store)
        self.spec = RunSpec(
            run=f"run-{self.runs}",
            index=self.uri,
            source=uri,
            source_id=source_id or uri,
            settings=self.settings,
            parent=parent.number if parent else None,
        )
        return ingest(self.spark, self.spec, **({"worker": worker} if worker else {}), counts=counts)

    def commit(self, result):
        draft = census(self.spark, self.spec, result.draft, text_steps_only(self.settings))
        common = {"config": {}, "config_fingerprint": "c", "methods": [], "models": {}, "embedder": "e", "dim": 4}
        parent = current(self.store)
        return publish(self.store, draft, run=self.spec.run, parent=parent, corpusmill_version="0", **common).manifest

    def documents(self, result):
        return {row["path"]: row for row in SnapshotView(self.store, result.draft).table("documents").to_pylist()}


@pytest.fixture
def index(spark, tmp_path):
    return Index(spark, tmp_path / "index")


def test_documents_are_counted_while_they_are_read(spark, corpus, index):
    counts = document_counts(spark)
    index.ingest(corpus, counts=counts)
    assert (counts.listed.value, counts.read.value) == (6, 6)


def test_every_document_has_an_outcome_and_texts_are_stored_once(template, published):
    index, result = published, template[1]
    rows = index.documents(result)
    assert {path: row["outcome"] for path, row in rows.items()} == {
        "a.txt": "indexed",
        "sub/a.txt": "indexed",
        "copy.txt": "indexed",
        "page.html": "indexed",
        "empty.md": "empty",
        "data.bin": "quarantined",
    }
    assert "binary" in rows["data.bin"]["reason"]
    assert rows["page.html"]["title"] == "Ducks"
    assert rows["a.txt"]["text_hash"] == rows["copy.txt"]["text_hash"]
    assert (result.counts.new, result.counts.converted, result.counts.quarantined, result.counts.empty) == (6, 6, 1, 1)
    view = SnapshotView(index.store, result.draft)
    assert view.text(rows["a.txt"]["text_hash"]).startswith("Ada wrote")
    chunks = view.table("chunks").to_pylist()
    assert len(chunks) == 3
    assert all(view.text(c["text_hash"])[c["start"] : c["end"]].strip() for c in chunks)


def test_the_todo_names_the_missing_steps_and_where_the_rest_is(template, published):
    index, result = published, template[1]
    rows = [row for file in result.todo for row in read_table_file(index.store, file).to_pylist()]
    assert len(rows) == result.todo_texts == 3
    segments = {a.step: {s.id: s for s in a.segments} for a in result.draft.artifacts}
    for row in rows:
        have = dict(row["have"])
        assert set(have) == {"texts", "chunks"} and row["segment"] == have["texts"]
        assert "extract" in row["missing"]
        for step, segment in have.items():
            held = read_segment_index(index.store, segments[step][segment]).column("text_hash").to_pylist()
            assert row["text_hash"] in held


def test_what_is_new_changed_moved_deleted_and_unchanged(published, corpus):
    index = published
    (corpus / "a.txt").write_text("Ada wrote a second program.")
    (corpus / "page.html").rename(corpus / "moved.html")
    (corpus / "sub" / "a.txt").unlink()
    (corpus / "new.txt").write_text("Something new.")
    result = index.ingest(corpus)
    counts = result.counts
    assert (counts.new, counts.changed, counts.moved, counts.deleted, counts.unchanged) == (1, 1, 1, 1, 3)
    assert counts.converted == 3  # the changed, the new and the moved one; nothing else was opened
    assert set(index.documents(result)) == {"a.txt", "copy.txt", "empty.md", "data.bin", "moved.html", "new.txt"}


def test_an_unchanged_source_is_not_read_again(template, published, corpus):
    index, before = published, template[2]
    for name in ("a.txt", "sub/a.txt", "page.html"):
        stamp = (corpus / name).stat()
        (corpus / name).write_bytes(b"X" * stamp.st_size)  # reading it would show
        os.utime(corpus / name, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    result = index.ingest(corpus)
    assert (result.counts.unchanged, result.counts.converted) == (6, 0)
    assert result.draft.tables[0] == before.table("documents")


def test_deleted_is_decided_within_one_source(published, tmp_path):
    index = published
    (tmp_path / "other.txt").write_text("Of another source.")
    result = index.ingest(tmp_path / "other.txt")
    assert (result.counts.new, result.counts.deleted) == (1, 0)
    assert len(index.documents(result)) == 7


def test_digests_do_not_depend_on_partitions_or_the_order_of_records(index, spark, tmp_path):
    rows = [
        {"id": f"r{i}", "text": f"Record {i} speaks of {i * 7919}. " * 3, "labels": [f"l{i % 2}"]} for i in range(60)
    ]
    source = tmp_path / "c.jsonl"
    found = []
    for name, partitions, seed in (("one", 2, None), ("two", 17, None), ("three", 2, 5)):
        if seed is not None:
            random.Random(seed).shuffle(rows)
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
        fresh = Index(spark, tmp_path / name)
        manifest = fresh.commit(fresh.ingest(source, spark=SparkSettings(partitions=partitions)))
        found.append({t.name: RowsDigest.parse(t.rows, t.digest) for t in manifest.tables})
    assert found[0] == found[1] == found[2]
    assert found[0]["documents"].rows == found[0]["texts"].rows == 60


def test_faulty_records_are_rows_with_their_line(index, tmp_path):
    source = tmp_path / "c.jsonl"
    source.write_text('{"id": "a", "text": "one"}\n{oops\n{"id": "a", "text": "two"}\n{"text": "no id"}\n')
    result = index.ingest(source)
    rows = index.documents(result)
    assert {path: row["outcome"] for path, row in rows.items()} == {
        **{"a": "indexed", "line:2": "quarantined"},
        **{"line:3": "quarantined", "line:4": "quarantined"},
    }
    assert rows["line:3"]["reason"] == (
        "c.jsonl, line 3: the id 'a' stands on an earlier line too; expected each id once"
    )
    assert rows["line:2"]["reason"].startswith("c.jsonl, line 2: not JSON (")


def test_changed_labels_are_a_change_and_keep_the_text(index, tmp_path):
    source = tmp_path / "c.jsonl"
    source.write_text('{"id": "a", "text": "one", "labels": ["x"]}\n')
    first = index.ingest(source)
    index.commit(first)
    source.write_text('{"id": "a", "text": "one", "labels": ["y"]}\n')
    result = index.ingest(source)
    assert result.counts.changed == 1
    assert index.documents(result)["a"]["labels"] == ["y"]
    assert index.documents(result)["a"]["text_hash"] == index.documents(first)["a"]["text_hash"]


def test_other_chunk_settings_chunk_the_stored_texts_without_reading_the_source(published, corpus):
    index = published
    result = index.ingest(corpus, chunk=ChunkSettings(ct_min=1, ct_max=5))
    assert (result.counts.converted, result.counts.unchanged) == (0, 6)
    assert SnapshotView(index.store, result.draft).table("chunks").num_rows > 3
    assert result.todo_texts == 3


def test_converters_that_hang_crash_and_overflow_cost_their_document(index, tmp_path, monkeypatch):
    corpus = tmp_path / "bad"
    corpus.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    for what in ("hang", "crash", "memory", "echo"):
        (corpus / f"{what}.html").write_text(f"<html><body>[{what}]</body></html>")
    result = index.ingest(corpus, worker=MISBEHAVING, convert=QUICK)
    rows = index.documents(result)
    for what, reason in (("hang", "longer than 3 s"), ("crash", "signal 11"), ("memory", "400 MiB")):
        row = rows[f"{what}.html"]
        assert (row["outcome"], row["attempts"]) == ("quarantined", 2)
        assert reason in row["reason"]
    assert rows["echo.html"]["outcome"] == "indexed"


def test_a_text_that_crashes_a_text_step_is_partial_with_the_reason_until_the_step_takes_it(
    index, tmp_path, monkeypatch
):
    source = tmp_path / "source"
    source.mkdir()
    (source / "good.txt").write_text("A quiet text.")
    (source / "bad.txt").write_text("A text to crash on.")

    def crashing(settings):
        plan = resolved_plan(settings)
        whole = next(step for step in plan.steps if step.name == "chunks").run

        def run(text, tables, context):
            return whole(text, tables, context) if "crash" not in text.text else 1 // 0

        return replace(plan, steps=tuple(replace(s, run=run) if s.name == "chunks" else s for s in plan.steps))

    with monkeypatch.context() as patch:
        patch.setattr("spark_jobs.ingest.resolved_plan", crashing)
        result = index.ingest(source)
    hashes = {path: row["text_hash"] for path, row in index.documents(result).items()}
    rows = [row for file in result.todo for row in read_table_file(index.store, file).to_pylist()]
    assert {row["text_hash"]: "chunks" in row["missing"] for row in rows} == {
        hashes["good.txt"]: False,
        hashes["bad.txt"]: True,
    }
    assert all("chunks" in dict(row["have"]) for row in rows)
    found = {row["path"]: row for row in SnapshotView(index.store, index.commit(result)).documents()}
    assert (found["good.txt"]["outcome"], found["bad.txt"]["outcome"]) == ("indexed", "partial")
    assert "ZeroDivisionError" in found["bad.txt"]["reason"]
    view = SnapshotView(index.store, index.ingest(source).draft)
    assert view.partial_texts() == {} and view.table("chunks").num_rows == 2


def test_a_missing_source_is_an_error_of_the_caller(index, tmp_path):
    with pytest.raises(SourceError, match="gone"):
        index.ingest(tmp_path / "gone")
