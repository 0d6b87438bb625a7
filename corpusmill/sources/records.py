"""Record sources: JSON lines (also gzipped) and Parquet, one document a record.

A record's version is the hash of all its columns and of what the settings take them for. A line that is no record, has
no id, or repeats one is a quarantined document named by its place, `line:N`.
"""

import gzip
import io
import json
import zlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

from corpusmill.errors import SourceError
from corpusmill.hashing import canonical_json, hash_text
from corpusmill.settings import Settings, SourceSettings
from corpusmill.sources.encodings import normalised
from corpusmill.sources.listing import UNREADABLE, Listed, Record, Source

_PARQUET_ROWS = 256
_KINDS: dict[type, str] = {
    type(None): "null",
    bool: "true or false",
    int: "a number",
    float: "a number with a fraction",
    list: "a list",
    dict: "an object",
    str: "a text",
}
_ONE_A_LINE = 'expected one JSON object a line, such as {"id": "1", "text": "…"}'


def list_records(source: Source, files: Iterator[Listed], settings: Settings) -> Iterator[Listed]:
    """The records of each listed file in turn. Raises SourceError for a file that cannot be read, or not to its end:
    the records that it may hold would pass for deleted ones."""
    several = source.kind == "glob"
    line = 0
    for file in files:
        if file.version == UNREADABLE:
            raise SourceError(f"cannot read records from {file.uri}: {file.problem}")
        if file.location is None:
            yield file
            continue
        prefix = f"{file.path}:" if several else ""
        rows = (
            _parquet(source, file, settings)
            if file.path.lower().endswith(".parquet")
            else _json_lines(source, file, settings)
        )
        number = 0
        try:
            for number, row in rows:
                line += 1
                yield _listed(row, f"{prefix}line:{number}", line, source.uri, settings.source)
        except (OSError, EOFError, ValueError, NotImplementedError, zlib.error) as error:
            why = " ".join(str(error).split()) or type(error).__name__
            raise SourceError(f"cannot read records from {file.uri} after line {number}: {why}") from error


def _listed(row: object, place: str, line: int, uri: str, settings: SourceSettings) -> Listed:
    """`row` is a dict, or the reason that it is none. A problem names what is wrong and what is expected, and where:
    the file and line, or the record's id, which is known by it wherever it stands (a record that only moves to another
    line is unchanged, its reason too)."""
    at = told_place(uri, place)
    if not isinstance(row, dict):
        return _refused(place, line, uri, f"{at}: {row}", str(row))
    key = _plain_id(row.get(settings.id_column))
    if key is None:
        what = f"{_lacking(row, settings.id_column)}; expected an id, a text or a whole number"
        problem = f"{at}: {what} (source.id_column is {settings.id_column!r})"
        return _refused(place, line, uri, problem, _json(row))
    roles = [settings.id_column, settings.text_column, settings.title_column, settings.labels_column]
    version = hash_text(_json([row, roles]))
    where = f"{uri}#{key}"
    text = row.get(settings.text_column)
    if not isinstance(text, str):
        what = f"{_lacking(row, settings.text_column)}; expected a text"
        problem = f"record {key!r}: {what} (source.text_column is {settings.text_column!r})"
        return Listed(key, where, version, problem=problem, line=line, place=place)
    size = len(text.encode("utf-8", "replace"))
    if size > settings.max_bytes:
        what = f"column {settings.text_column!r} has {size} bytes; expected at most {settings.max_bytes}"
        problem = f"record {key!r}: {what} (source.max_bytes)"
        return Listed(key, where, version, size, problem=problem, line=line, place=place)
    stored, _ = normalised(text)
    title = row.get(settings.title_column) if settings.title_column else None
    rest = {name: value for name, value in row.items() if name not in roles}
    record = Record(
        text=stored,
        title=normalised(title)[0].strip() or None if isinstance(title, str) else None,
        metadata=_json(rest),
        labels=_labels(row.get(settings.labels_column) if settings.labels_column else None),
    )
    return Listed(key, where, version, size, record=record, line=line, place=place)


def told_place(uri: str, place: str) -> str:
    """`a.jsonl, line 7`, of a source's URI and a place in it (`line:7`; of several files `a.jsonl:line:7`)."""
    file, _, number = place.rpartition("line:")
    name = file.removesuffix(":") or unquote(uri.rstrip("/").rsplit("/", 1)[-1])
    return f"{name}, {'row' if name.lower().endswith('.parquet') else 'line'} {number}"


def _lacking(row: dict[Any, object], column: str) -> str:
    """What is wrong with a column that has no value of use."""
    if column not in row:
        have = ", ".join(sorted(map(repr, map(str, row)))) or "none"
        return f"no column {column!r} (columns: {have if len(have) <= 200 else have[:200] + ' …'})"
    value = row[column]
    if isinstance(value, str):
        return f"column {column!r} is blank"
    return f"column {column!r} is {_KINDS.get(type(value), type(value).__name__)}"


def _refused(place: str, line: int, uri: str, problem: str, content: str) -> Listed:
    return Listed(place, f"{uri}#{place}", hash_text(content), problem=problem, line=line)


def _plain_id(value: object) -> str | None:
    if isinstance(value, bool) or not isinstance(value, str | int):
        return None
    return normalised(str(value))[0].strip() or None


def _labels(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    values = value if isinstance(value, list) else [value]
    return tuple(sorted({normalised(str(item))[0] for item in values if item is not None}))


def _json(value: object) -> str:
    """Canonical JSON of what a record may hold; what JSON has no form for is written as its text."""
    plain = json.loads(json.dumps(value, default=str), parse_constant=str)
    return normalised(canonical_json(plain))[0]


def _json_lines(source: Source, file: Listed, settings: Settings) -> Iterator[tuple[int, object]]:
    """(line number from 1, object or what is wrong) of each line that is not blank; one line in memory at a time."""
    longest = settings.source.max_bytes + (1 << 20)
    with _open(source, file, settings) as raw:
        stream: Any = gzip.GzipFile(fileobj=raw) if file.path.lower().endswith(".gz") else raw
        number = 0
        while line := stream.readline(longest):
            number += 1
            if len(line) >= longest and not line.endswith(b"\n"):
                while (more := stream.readline(longest)) and not more.endswith(b"\n"):
                    pass
                yield number, f"longer than {settings.source.max_bytes} bytes, which source.max_bytes allows"
            elif line.strip():
                yield number, _parsed(line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line)


def _parsed(line: bytes) -> object:
    """The object on a line, or what is wrong with it."""
    try:
        value = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        return f"not UTF-8 (byte {error.start + 1} of the line is 0x{line[error.start]:02x}); {_ONE_A_LINE} in UTF-8"
    except json.JSONDecodeError as error:
        whole = " (is the file one JSON array? write each of its objects on a line)" if line.strip() in b"[]" else ""
        return f"not JSON ({error.msg}, at character {error.pos + 1} of the line); {_ONE_A_LINE}{whole}"
    except RecursionError:
        return f"JSON that is nested too deeply; {_ONE_A_LINE}"
    return value if isinstance(value, dict) else f"JSON, but {_KINDS[type(value)]}; {_ONE_A_LINE}"


def _parquet(source: Source, file: Listed, settings: Settings) -> Iterator[tuple[int, object]]:
    import pyarrow.parquet as pq

    with _open(source, file, settings) as raw:
        number = 0
        for batch in pq.ParquetFile(raw).iter_batches(batch_size=_PARQUET_ROWS):
            for row in batch.to_pylist():
                number += 1
                yield number, row


def _open(source: Source, file: Listed, settings: Settings) -> Any:
    if source.kind in ("prefix", "object"):
        from corpusmill.store.s3 import S3Store

        store = S3Store("s3://" + source.location.removeprefix("s3://").partition("/")[0], settings.store)
        return store.open(file.location or "")
    return io.BufferedReader(io.FileIO(file.location or ""), 1 << 20)
