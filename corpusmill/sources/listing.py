"""What a source is, and the stream of documents that it lists.

A folder, one file, a glob, JSON lines or Parquet with id and text columns, or an `s3://` prefix. A listing holds no
document's bytes, except for records, which come whole. A document's id depends on the source and its path in it alone.
"""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from glob import escape
from typing import Literal
from urllib.parse import quote, unquote

from corpusmill.errors import SourceError
from corpusmill.hashing import content_id
from corpusmill.settings import Settings

Kind = Literal["folder", "file", "glob", "prefix", "object"]
Opener = Callable[[str], bytes]  # a location to its bytes; raises OSError, or StoreUnavailableError for an object
RECORD_SUFFIXES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz", ".parquet")
UNREADABLE = "unreadable"  # the version of a file that could not even be looked at
_GLOB = re.compile(r"[*?\[]")


@dataclass(frozen=True)
class Record:
    """A document that its source holds inline: text in stored form, metadata as canonical JSON, sorted labels."""

    text: str
    title: str | None
    metadata: str
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Listed:
    """One document of a source.

    `path` identifies it in the source (relative path, or the id column's value); `location` is where its bytes are (a
    local path or an object key), None for a record. `problem` says why it cannot be read. `line` orders records of
    equal id: the first counts, others are named by their `place`.
    """

    path: str
    uri: str
    version: str
    size: int | None = None
    location: str | None = None
    record: Record | None = None
    problem: str | None = None
    line: int = 0
    place: str | None = None


@dataclass(frozen=True)
class Source:
    """A parsed source. `uri` is canonical and absolute; parsing it again gives the same source."""

    uri: str
    kind: Kind
    location: str  # absolute local path or pattern, or s3:// URI
    records: bool

    @classmethod
    def parse(cls, text: str, settings: Settings) -> "Source":
        """The source that `text` names. Raises SourceError if there is none such, or its scheme is unknown."""
        if text.startswith("s3://"):
            return _parse_s3(text, settings)
        if re.match(r"[a-z][a-z0-9+.-]*://", text) and not text.startswith("file://"):
            raise SourceError(f"cannot read the source {text!r}; a path, a glob, file:// or s3://")
        path = unquote(text.removeprefix("file://"), errors="surrogateescape") if text.startswith("file://") else text
        return _parse_local(os.path.abspath(os.path.expanduser(path)), text)

    def listing(self, settings: Settings) -> Iterator[Listed]:
        """All documents, in a fixed order. Raises SourceError, also midway, if it cannot be told what they are."""
        from corpusmill.sources import files, records

        if self.kind in ("prefix", "object"):
            from corpusmill.sources import objects

            found = objects.list_objects(self, settings)
        else:
            found = files.list_files(self, settings)
        if not self.records:
            return found
        return records.list_records(self, found, settings)

    def opener(self, settings: Settings) -> Opener:
        if self.kind in ("prefix", "object"):
            from corpusmill.sources import objects

            return objects.opener(self, settings)
        from corpusmill.sources import files

        return files.read_file


def without_index(source: Source, index: str, settings: Settings) -> Settings:
    """The settings with the index's own files left out, where it lies in the source. `index`: its store's URI (of a
    local one the path).

    Raises SourceError where source and index are one place.
    """
    if source.kind == "folder":
        place, own = os.path.realpath(source.location), os.path.realpath(index.removeprefix("file://"))
    elif source.kind == "prefix":
        place, own = source.uri.rstrip("/"), index.rstrip("/")
    else:
        return settings
    if own == place:
        raise SourceError(f"the source and the index are one place ({place}); give the index a folder of its own")
    if not own.startswith(place + "/"):
        return settings
    pattern = f"{escape(own.removeprefix(place + '/'))}/*"
    if pattern in settings.source.exclude:
        return settings
    chosen = settings.source.model_copy(update={"exclude": (*settings.source.exclude, pattern)})
    return settings.model_copy(update={"source": chosen})


def document_id(source_id: str, path: str) -> str:
    """The key of a document: the same base name in another folder, or the same path in another source, differs."""
    return content_id("document", source_id, path)


def is_record_file(path: str) -> bool:
    return path.lower().endswith(RECORD_SUFFIXES)


def file_uri(path: str) -> str:
    """A local path as a file:// URI (names that are not UTF-8 keep their bytes, percent-encoded)."""
    return "file://" + quote(os.fsencode(path), safe="/*?[]!-_.~,+@=()")


def _parse_local(path: str, text: str) -> Source:
    if os.path.isdir(path):
        return Source(file_uri(path), "folder", path, records=False)
    if os.path.exists(path):
        return Source(file_uri(path), "file", path, records=is_record_file(path))
    if _GLOB.search(path):
        return Source(file_uri(path), "glob", path, records=is_record_file(path))
    raise SourceError(f"no source at {text!r}: no such file or folder ({path})")


def _parse_s3(text: str, settings: Settings) -> Source:
    from corpusmill.sources.objects import is_object

    bucket, _, key = text.removeprefix("s3://").partition("/")
    if not bucket:
        raise SourceError(f"{text!r} names no bucket; expected s3://bucket/prefix")
    uri = f"s3://{bucket}/{key.strip('/')}".rstrip("/")
    if key.strip("/") and not text.endswith("/") and is_object(uri, settings):
        return Source(uri, "object", uri, records=is_record_file(uri))
    return Source(uri, "prefix", uri, records=False)
