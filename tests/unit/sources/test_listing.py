"""What sources list: files, odd names, links, records and their faults."""

import errno
import gzip
import json
import os
import socket
import traceback

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from corpusmill.errors import SourceError
from corpusmill.settings import Settings, SourceSettings
from corpusmill.sources.listing import Source, document_id, without_index
from corpusmill.sources.records import told_place


def _settings(**source):
    return Settings(source=SourceSettings(**source))


def _list(where, settings=None):
    settings = settings or Settings()
    return list(Source.parse(str(where), settings).listing(settings))


def _lines(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), "utf-8")
    return path


def test_a_folder_lists_its_tree_and_equal_base_names_are_two_documents(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "readme.md").write_text(folder)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x").write_text("hidden")
    found = _list(tmp_path)
    assert [item.path for item in found] == ["a/readme.md", "b/readme.md"]
    assert len({document_id("s", item.path) for item in found}) == 2
    assert len(_list(tmp_path, _settings(hidden=True))) == 3


def test_include_and_exclude(tmp_path):
    for name in ("a.md", "b.txt", "draft-c.md"):
        (tmp_path / name).write_text("x")
    assert [item.path for item in _list(tmp_path, _settings(include=("*.md",), exclude=("draft-*",)))] == ["a.md"]


def test_a_version_changes_with_the_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one")
    first = _list(path)[0].version
    os.utime(path, ns=(1, 1))
    assert _list(path)[0].version != first


def test_the_uri_of_a_source_parses_to_the_same_source(tmp_path):
    (tmp_path / "with space & ünï [x].txt").write_text("x")
    for where in (tmp_path, tmp_path / "with space & ünï [x].txt", tmp_path / "*.txt"):
        source = Source.parse(str(where), Settings())
        assert Source.parse(source.uri, Settings()) == source


@pytest.mark.parametrize("where", ["/nowhere/at/all", "ftp://host/x", "/nowhere/*.md"])
def test_a_missing_source_is_named(where):
    with pytest.raises(SourceError, match=r"nowhere|ftp"):
        _list(where)


def test_links_that_lead_back_and_links_to_nothing(tmp_path):
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "up").symlink_to(tmp_path)
    (tmp_path / "d" / "a.txt").write_text("x")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    found = {item.path: item.problem for item in _list(tmp_path)}
    assert found["d/a.txt"] is None
    assert found["loop"] is not None and found["loop"].startswith("cannot be read")
    assert set(found) == {"d/a.txt", "loop"}


def test_names_that_are_not_utf8_and_special_files(tmp_path):
    with open(os.fsencode(tmp_path) + b"/caf\xe9.txt", "wb") as stream:
        stream.write(b"x")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        found = {item.path: item.problem for item in _list(tmp_path)}
    assert found == {r"caf\xe9.txt": "the file's name is not UTF-8", "socket": "not a regular file"}


def test_json_lines_with_faults(tmp_path):
    path = _lines(
        tmp_path / "c.jsonl",
        {"id": "a", "text": "one\r\ntwo", "title": "T", "labels": ["y", "x"], "year": 3},
        "{broken",
        "",
        {"text": "no id"},
        [1],
        {"id": 7, "text": None},
        {"id": "s", "text": "\ud800"},
    )
    found = _list(path)
    assert [(item.path, item.problem is None) for item in found] == [
        *(("a", True), ("line:2", False), ("line:4", False), ("line:5", False), ("7", False), ("s", True)),
    ]
    record = found[0].record
    assert record is not None
    assert (record.text, record.title, record.labels, record.metadata) == ("one\ntwo", "T", ("x", "y"), '{"year":3}')
    assert found[0].uri.endswith("c.jsonl#a")
    assert found[5].record.text == "\ufffd"


def test_a_fault_of_a_record_names_the_place_what_is_wrong_and_what_is_expected(tmp_path):
    expected = 'expected one JSON object a line, such as {"id": "1", "text": "…"}'
    path = _lines(
        tmp_path / "c d.jsonl",
        '{"id": "a", "text": broken}',
        "[",
        [1],
        {"text": "no id"},
        {"id": " ", "text": "x"},
        {"id": True, "text": "x"},
        {"id": "n", "body": "x"},
        {"id": "t", "text": 1.5},
        {"id": "m", "text": None},
        {"id": "l", "text": "x" * 99},
    )
    with path.open("ab") as stream:
        stream.write(b'{"id": "u", "text": "caf\xe9"}\n' + b'{"id": "d", "x": ' + b"[" * 200_000 + b"\n")
    found = {item.path: item.problem for item in _list(path, _settings(max_bytes=90))}
    assert found == {
        "line:1": f"c d.jsonl, line 1: not JSON (Expecting value, at character 21 of the line); {expected}",
        "line:2": f"c d.jsonl, line 2: not JSON (Expecting value, at character 3 of the line); {expected} "
        "(is the file one JSON array? write each of its objects on a line)",
        "line:3": f"c d.jsonl, line 3: JSON, but a list; {expected}",
        "line:4": "c d.jsonl, line 4: no column 'id' (columns: 'text'); "
        "expected an id, a text or a whole number (source.id_column is 'id')",
        "line:5": "c d.jsonl, line 5: column 'id' is blank; "
        "expected an id, a text or a whole number (source.id_column is 'id')",
        "line:6": "c d.jsonl, line 6: column 'id' is true or false; "
        "expected an id, a text or a whole number (source.id_column is 'id')",
        "n": "record 'n': no column 'text' (columns: 'body', 'id'); expected a text (source.text_column is 'text')",
        "t": "record 't': column 'text' is a number with a fraction; expected a text (source.text_column is 'text')",
        "m": "record 'm': column 'text' is null; expected a text (source.text_column is 'text')",
        "l": "record 'l': column 'text' has 99 bytes; expected at most 90 (source.max_bytes)",
        "line:11": f"c d.jsonl, line 11: not UTF-8 (byte 25 of the line is 0xe9); {expected} in UTF-8",
        "line:12": f"c d.jsonl, line 12: JSON that is nested too deeply; {expected}",
    }


def test_a_place_is_told_by_file_and_line():
    assert told_place("file:///data/caf%C3%A9%20x.jsonl", "line:7") == "café x.jsonl, line 7"
    assert told_place("file:///data/*.jsonl", "sub/b.jsonl:line:12") == "sub/b.jsonl, line 12"
    assert told_place("s3://bucket/rows.parquet", "line:3") == "rows.parquet, row 3"


def test_a_fault_of_a_record_with_an_id_does_not_depend_on_its_line(tmp_path):
    """Else an update, which takes over unchanged rows, would differ from a rebuild."""
    rows = [{"id": "a", "text": None}, {"id": "b", "text": "x"}]
    before, after = (
        {item.path: (item.version, item.problem) for item in _list(_lines(tmp_path / "c.jsonl", *order))}
        for order in (rows, rows[::-1])
    )
    assert before == after


def test_a_record_version_covers_every_column_and_what_they_are_taken_for(tmp_path):
    path = tmp_path / "c.jsonl"
    versions = set()
    for row in ({"id": "a", "text": "t"}, {"id": "a", "text": "t", "labels": ["x"]}, {"id": "a", "text": "u"}):
        versions.add(_list(_lines(path, row))[0].version)
    versions.add(_list(path, _settings(text_column="id"))[0].version)
    assert len(versions) == 4


def test_gzip_and_parquet_hold_the_same_records(tmp_path):
    rows = [{"id": "a", "text": "one"}, {"id": "b", "text": "two"}]
    with gzip.open(tmp_path / "c.jsonl.gz", "wt") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in rows)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "c.parquet")
    packed, table = _list(tmp_path / "c.jsonl.gz"), _list(tmp_path / "c.parquet")
    assert [(item.path, item.version, item.record) for item in packed] == [
        (item.path, item.version, item.record) for item in table
    ]


def _many(number):
    return "".join(json.dumps({"id": f"{i}", "text": f"{i * 7919}"}) + "\n" for i in range(number)).encode()


@pytest.mark.parametrize("several", [False, True])
def test_a_file_of_records_that_breaks_in_the_middle_ends_the_listing(tmp_path, several):
    whole = gzip.compress(_many(5000))
    damaged = bytearray(whole)
    damaged[len(whole) // 2 : len(whole) // 2 + 64] = b"\xff" * 64
    for content in (whole[: len(whole) // 2], bytes(damaged)):
        (tmp_path / "c.jsonl.gz").write_bytes(content)
        with pytest.raises(SourceError, match=r"c\.jsonl\.gz after line \d+: .") as found:
            _list(tmp_path / ("*.jsonl.gz" if several else "c.jsonl.gz"))
        assert "\n" not in str(found.value)
    pq.write_table(pa.Table.from_pylist([{"id": "a", "text": "one"}]), tmp_path / "c.parquet")
    (tmp_path / "c.parquet").write_bytes((tmp_path / "c.parquet").read_bytes()[:-9])
    with pytest.raises(SourceError, match=r"c\.parquet"):
        _list(tmp_path / ("*.parquet" if several else "c.parquet"))


def test_a_file_of_records_that_cannot_be_read_ends_the_listing(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(_many(2))
    assert len(_list(tmp_path / "*.jsonl")) == 2
    (tmp_path / "b.jsonl").symlink_to("/proc/self/mem")  # a regular file whose first read ends with EIO
    with pytest.raises(SourceError, match=r"b\.jsonl.*Input/output error"):
        _list(tmp_path / "*.jsonl")
    (tmp_path / "b.jsonl").unlink()
    (tmp_path / "b.jsonl").symlink_to("nothing")
    with pytest.raises(SourceError, match=r"b\.jsonl.*No such file"):
        _list(tmp_path / "*.jsonl")


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
@pytest.mark.parametrize("pattern", ["", "**/*.md", "*/inner/*.md", "*/inner/a.md", "**"])
def test_a_folder_that_cannot_be_listed_ends_the_listing(tmp_path, monkeypatch, number, pattern):
    bad = tmp_path / "bad" / "inner"
    for folder in (bad, tmp_path / "good" / "inner"):
        folder.mkdir(parents=True)
        (folder / "a.md").write_text("x")
    where = tmp_path / pattern if pattern else tmp_path
    assert [item.path for item in _list(where)] == ["bad/inner/a.md", "good/inner/a.md"]
    scandir = os.scandir

    def failing(path):
        if str(path).rstrip("/") == str(bad):
            raise OSError(number, os.strerror(number), path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", failing)
    with pytest.raises(SourceError) as found:
        _list(where)
    assert str(bad) in str(found.value) and os.strerror(number) in str(found.value)
    assert "\n" not in str(found.value)
    left_out = _settings(exclude=("bad/inner/*",))
    assert [item.path for item in _list(where, left_out)] == ["good/inner/a.md"]


def test_globs_find_what_the_shell_would(tmp_path):
    for path in ("a.md", "d/b.md", "d/e/c.md", "d/e/n.txt", ".h/x.md", "d/.y.md"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("x")
    (tmp_path / "d" / "up").symlink_to(tmp_path)
    found = {
        pattern: [item.path for item in _list(tmp_path / pattern)]
        for pattern in ("*.md", "**/[bc].md", "d/*/*", "**/e/c.md", ".h/*")
    }
    assert found == {
        "*.md": ["a.md"],
        "**/[bc].md": ["d/b.md", "d/e/c.md"],
        "d/*/*": ["e/c.md", "e/n.txt", "up/a.md"],
        "**/e/c.md": ["d/e/c.md"],
        ".h/*": ["x.md"],
    }


def test_an_error_of_a_listing_passes_through_spark_as_text(tmp_path):
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(_many(5000))[:3000])
    with pytest.raises(SourceError) as found:
        _list(tmp_path / "c.jsonl.gz")
    last = traceback.format_exception(found.value)[-1]
    assert last == f"corpusmill.errors.SourceError: {found.value}\n"


def test_a_record_version_tells_the_title_from_the_labels(tmp_path):
    path = _lines(tmp_path / "c.jsonl", {"id": "a", "text": "t", "x": "one", "y": "two"})
    versions = {
        _list(path, _settings(title_column=title, labels_column=labels))[0].version
        for title, labels in (("x", "y"), ("y", "x"))
    }
    assert len(versions) == 2


def test_a_text_over_the_limit_is_listed_with_its_problem(tmp_path):
    path = _lines(tmp_path / "c.jsonl", {"id": "a", "text": "x" * 50})
    assert "max_bytes" in (_list(path, _settings(max_bytes=10))[0].problem or "")


def test_an_index_inside_its_source_is_left_out(tmp_path):
    (tmp_path / "a [1]" / "ix" / "runs").mkdir(parents=True)
    (tmp_path / "a [1]" / "ix" / "runs" / "spec.json").write_text("{}")
    (tmp_path / "a [1]" / "note.md").write_text("note")
    (tmp_path / "a 1" / "ix").mkdir(parents=True)
    (tmp_path / "a 1" / "ix" / "kept.md").write_text("another folder of a like name")
    source = Source.parse(str(tmp_path), Settings())
    own = without_index(source, str(tmp_path / "a [1]" / "ix"), _settings(exclude=("*.tmp",)))
    assert [found.path for found in source.listing(own)] == ["a 1/ix/kept.md", "a [1]/note.md"]
    assert without_index(source, str(tmp_path / "a [1]" / "ix"), own) == own


def test_an_index_elsewhere_changes_nothing(tmp_path):
    (tmp_path / "docs").mkdir()
    source = Source.parse(str(tmp_path / "docs"), Settings())
    assert without_index(source, str(tmp_path / "docs.index"), Settings()) == Settings()
    prefix = Source("s3://b/docs", "prefix", "s3://b/docs", records=False)
    assert without_index(prefix, "s3://b/docs-index", Settings()) == Settings()
    assert without_index(prefix, "s3://b/docs/ix", Settings()).source.exclude == ("ix/*",)


def test_a_source_that_is_the_index(tmp_path):
    source = Source.parse(str(tmp_path), Settings())
    with pytest.raises(SourceError, match="one place"):
        without_index(source, str(tmp_path), Settings())
