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

from corpusmill.errors import SourceError
from corpusmill.hashing import canonical_json, hash_text
from corpusmill.settings import Settings, SourceSettings
from corpusmill.sources.encodings import normalised
from corpusmill.sources.listing import UNREADABLE, Listed, Record, Source

_PARQUET_ROWS = 256


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
    """`row` is a dict, or the reason that it is none."""
    if not isinstance(row, dict):
        return _refused(place, line, uri, row if isinstance(row, str) else "not a JSON object", str(row))
    key = _plain_id(row.get(settings.id_column))
    if key is None:
        have = ", ".join(sorted(map(str, row)))[:200]
        return _refused(place, line, uri, f"no id in column {settings.id_column!r}; columns: {have}", _json(row))
    roles = [settings.id_column, settings.text_column, settings.title_column, settings.labels_column]
    version = hash_text(_json([row, roles]))
    where = f"{uri}#{key}"
    text = row.get(settings.text_column)
    if not isinstance(text, str):
        what = (
            f"no text in column {settings.text_column!r}"
            if text is None
            else f"column {settings.text_column!r} is not a text"
        )
        return Listed(key, where, version, problem=what, line=line, place=place)
    size = len(text.encode("utf-8", "replace"))
    if size > settings.max_bytes:
        what = f"{size} bytes, more than source.max_bytes ({settings.max_bytes})"
        return Listed(key, where, version, size, problem=what, line=line, place=place)
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
                yield number, f"the line is longer than source.max_bytes ({settings.source.max_bytes})"
            elif line.strip():
                yield number, _parsed(line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line)


def _parsed(line: bytes) -> object:
    try:
        value = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        return f"not a line of JSON: {error}"
    return value if isinstance(value, dict) else "not a JSON object"


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
