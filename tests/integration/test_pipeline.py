"""The main job from the shell: index a folder, look at it, ask it, change it, index it again."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from corpusmill.temporary import OWNER
from tests.integration.conftest import APPLE, OTHERS, Indexed, command_environment, corpusmill, write_corpus

pytestmark = pytest.mark.integration


def test_index_reports_what_it_did(indexed: Indexed) -> None:
    result = indexed.result
    assert set(result) >= {"run", "snapshot", "digest", "documents", "calls", "tokens", "seconds"}
    assert result["documents"]["new"] == len(APPLE) + len(OTHERS)
    assert result["documents"]["quarantined"] == result["documents"]["partial"] == 0
    assert result["calls"] > 0


def test_verify_finds_nothing(indexed: Indexed) -> None:
    ran = corpusmill("verify", indexed.index, "--json", cache=indexed.cache)
    assert (ran.code, ran.json) == (0, {"ok": True, "problems": []})


def test_every_document_has_an_outcome(indexed: Indexed) -> None:
    rows = corpusmill("documents", indexed.index, "--json", cache=indexed.cache).json
    outcomes = {row["uri"].rsplit("/", 1)[-1]: row["outcome"] for row in rows}
    assert len(rows) == len(APPLE) + len(OTHERS)  # two readme.md are two documents
    assert outcomes["empty.txt"] == "empty"
    assert outcomes["word.txt"] == outcomes["page.html"] == "indexed"


def test_answers_cite_the_stored_text(indexed: Indexed) -> None:
    answer = corpusmill(
        "query", indexed.index, "Who was the chief engineer of the Golden Gate Bridge?", "--json", cache=indexed.cache
    ).json
    assert "Strauss" in answer["answer"]
    assert answer["citations"]
    for citation in answer["citations"]:
        shown = corpusmill("show", indexed.index, citation["doc_id"], "--json", cache=indexed.cache).json
        assert shown["text"][citation["start"] : citation["end"]] == citation["quote"]


def test_a_document_without_facts_is_found_by_its_text(indexed: Indexed) -> None:
    answer = corpusmill("query", indexed.index, "Hello", "--json", cache=indexed.cache).json
    assert any(source["uri"].endswith("word.txt") for e in answer["evidence"] for source in e["sources"])


def test_the_two_apples_stay_apart(indexed: Indexed) -> None:
    from corpusmill.store.commit import current
    from corpusmill.store.objects import open_store
    from corpusmill.store.view import SnapshotView

    store = open_store(indexed.index)
    manifest = current(store)
    assert manifest is not None
    view = SnapshotView(store, manifest)
    paths = {row["doc_id"]: row["path"] for row in view.table("documents").to_pylist()}
    groups: dict[str, set[str]] = {}
    for row in view.table("entity_members").to_pylist():
        if row["normal"] == "apple":
            groups.setdefault(row["entity_id"], set()).add(paths[row["doc_id"]])
    assert sorted(map(sorted, groups.values())) == [
        sorted(p for p in APPLE if p.startswith("company/")),
        sorted(p for p in APPLE if p.startswith("fruit/")),
    ]


def test_a_second_run_calls_no_model_and_publishes_nothing(indexed: Indexed) -> None:
    ran = corpusmill("index", str(indexed.source), "--to", indexed.index, "--json", cache=indexed.cache)
    assert ran.code == 0
    assert (ran.json["calls"], ran.json["snapshot"], ran.json["digest"]) == (
        0,
        indexed.result["snapshot"],
        indexed.result["digest"],
    )
    assert "nothing changed" in ran.json["message"]
    snapshots = corpusmill("snapshots", indexed.index, "--json", cache=indexed.cache).json
    assert len(snapshots) == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"CORPUSMILL__RAY__BUILDERS": "4", "CORPUSMILL__SPARK__PARTITIONS": "2"},
        {"CORPUSMILL__SPARK__PARTITIONS": "17", "CORPUSMILL__RAY__BATCH_DOCUMENTS": "3"},
    ],
    ids=["4 builders, 2 partitions", "17 partitions, small batches"],
)
def test_the_digest_does_not_depend_on_the_engines(indexed: Indexed, tmp_path: Path, settings: dict[str, str]) -> None:
    ran = corpusmill(
        "index", str(indexed.source), "--to", str(tmp_path / "index"), "--json", cache=tmp_path / "cache", **settings
    )
    assert ran.code == 0, ran.err
    assert ran.json["digest"] == indexed.result["digest"]


def test_the_digest_does_not_depend_on_the_order_of_records(tmp_path: Path) -> None:
    records = [{"id": name, "title": name, "text": text} for name, text in (APPLE | OTHERS).items() if text]
    source = tmp_path / "records.jsonl"
    digests = []
    for number, rows in enumerate([records, records[::-1]]):
        source.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        ran = corpusmill(
            "index", str(source), "--to", str(tmp_path / f"i{number}"), "--json", cache=tmp_path / f"c{number}"
        )
        assert ran.code == 0, ran.err
        digests.append(ran.json["digest"])
    assert digests[0] == digests[1]


def test_an_update_equals_a_rebuild(tmp_path: Path) -> None:
    """One document edited, one deleted, one moved, one added: the same digest as indexing the new folder afresh."""
    source = write_corpus(tmp_path / "docs", APPLE | OTHERS)
    first = corpusmill("index", str(source), "--to", str(tmp_path / "a"), "--json", cache=tmp_path / "ca")
    assert first.code == 0, first.err
    (source / "notes/two/readme.md").unlink()
    (source / "fruit/orchard.md").rename(source / "fruit/trees.md")
    write_corpus(
        source,
        {
            "zh.txt": "上海是中国的城市。上海大学位于上海。",
            "new.md": "Marie Curie was born in Warsaw. Marie Curie won the Nobel Prize.",
        },
    )
    updated = corpusmill("index", str(source), "--to", str(tmp_path / "a"), "--json", cache=tmp_path / "ca")
    assert updated.code == 0, updated.err
    documents = updated.json["documents"]
    assert (documents["new"], documents["changed"], documents["moved"], documents["deleted"]) == (1, 1, 1, 1)
    assert updated.json["calls"] < first.json["calls"] / 2
    rebuilt = corpusmill("index", str(source), "--to", str(tmp_path / "b"), "--json", cache=tmp_path / "cb")
    assert rebuilt.json["digest"] == updated.json["digest"]


def folders_of(pid: int) -> list[Path]:
    """Temporary folders marked with a process id."""
    marks = [mark for place in ("corpusmill-*", "cm-ray-*") for mark in Path("/tmp").glob(f"{place}/{OWNER}")]
    return [mark.parent for mark in marks if json.loads(mark.read_text("utf-8"))["pid"] == pid]


def test_a_killed_run_leaves_the_index_as_it_was_and_resumes(indexed: Indexed, tmp_path: Path) -> None:
    """`status` tells at once that it is gone; the next run removes its temporary files and resumes."""
    index, cache = str(tmp_path / "index"), tmp_path / "cache"
    process = subprocess.Popen(
        [str(Path(sys.executable).parent / "corpusmill"), "index", str(indexed.source), "--to", index, "--json"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=command_environment(cache, TMPDIR="/tmp"),
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 120
        while (
            time.monotonic() < deadline
            and process.poll() is None
            and not list((tmp_path / "index").glob("runs/*/ingest.json"))
        ):
            time.sleep(0.1)
        assert process.poll() is None
        time.sleep(2)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert not (tmp_path / "index" / "refs" / "main.json").exists()
    state = corpusmill("status", index, "--json", cache=cache).json
    assert (state["running"], state["process"], state["run"]["status"]) == (False, "gone", "running")
    assert folders_of(process.pid)
    ran = corpusmill("index", str(indexed.source), "--to", index, "--json", cache=cache, TMPDIR="/tmp")
    assert ran.code == 0, ran.err
    assert ran.json["digest"] == indexed.result["digest"]
    assert not folders_of(process.pid)


def test_the_query_starts_no_engine(indexed: Indexed) -> None:
    code = (
        "import sys; from corpusmill_jobs.cli import main\n"
        "try: main()\n"
        "except SystemExit as e: assert not e.code, e.code\n"
        "bad = {'pyspark', 'ray', 'torch'} & {m.split('.')[0] for m in sys.modules}; sys.exit(f'loaded {bad}' if bad else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "query", indexed.index, "Where is Mount Wilson Observatory?"],
        capture_output=True,
        text=True,
        env=command_environment(indexed.cache),
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert "California" in done.stdout
