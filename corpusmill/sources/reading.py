"""One listed document: its bytes, its text, its row of `documents`, whatever goes wrong."""

from collections.abc import Mapping
from dataclasses import dataclass

from corpusmill.errors import StoreError
from corpusmill.hashing import content_id, hash_bytes, hash_text
from corpusmill.settings import Settings
from corpusmill.sources.convert import convert, converter_fingerprint, limits_fingerprint
from corpusmill.sources.listing import Listed, Opener
from corpusmill.sources.outcomes import ConversionError, Converted
from corpusmill.sources.sandbox import Sandbox

NO_METADATA = "{}"
RECORD_TYPE = "application/x-record"


@dataclass(frozen=True)
class ReadDocument:
    """A row of schemas.DOCUMENTS, and the text if the document has one."""

    row: Mapping[str, object]
    text: str | None


class DocumentReader:
    """Reads documents of one source; holds the fingerprints that their rows name."""

    def __init__(self, source_id: str, settings: Settings, opener: Opener, sandbox: Sandbox) -> None:
        self._source_id = source_id
        self._settings = settings
        self._open = opener
        self._sandbox = sandbox
        self._converter = converter_fingerprint()
        self._limits = limits_fingerprint(settings)

    def read(self, doc_id: str, listed: Listed) -> ReadDocument:
        """The outcome of one document: `indexed`, `empty` or `quarantined` with a reason. Never raises for its sake."""
        if listed.problem is not None:
            return self._quarantined(doc_id, listed, listed.problem, None)
        if listed.record is not None:
            found = Converted(listed.record.text, RECORD_TYPE, listed.record.title)
            return self._read(doc_id, listed, found, hash_text(listed.record.text))
        limit = self._settings.source.max_bytes
        if listed.size is not None and listed.size > limit:
            problem = f"{listed.size} bytes, more than source.max_bytes ({limit})"
            return self._quarantined(doc_id, listed, problem, None)
        try:
            raw = self._bytes(listed.location or "")
        except (OSError, StoreError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
            problem = f"cannot be read: {reason}; {self._settings.convert.attempts} attempts"
            return self._quarantined(doc_id, listed, problem, None, self._settings.convert.attempts)
        raw_hash = hash_bytes(raw)
        try:
            found = convert(raw, listed.path, self._settings, self._sandbox)
        except ConversionError as error:
            return self._quarantined(doc_id, listed, str(error), raw_hash, error.attempts)
        return self._read(doc_id, listed, found, raw_hash)

    def _bytes(self, location: str) -> bytes:
        for _ in range(self._settings.convert.attempts - 1):
            try:
                return self._open(location)
            except (OSError, StoreError):
                continue
        return self._open(location)

    def _read(self, doc_id: str, listed: Listed, found: Converted, raw_hash: str) -> ReadDocument:
        blank = not found.text.strip()
        row = {
            **self._row(doc_id, listed),
            "title": found.title,
            "media_type": found.media_type,
            "raw_hash": raw_hash,
            "converter": self._converter,
            "text_hash": None if blank else hash_text(found.text),
            "chars": len(found.text),
            "outcome": "empty" if blank else "indexed",
            "reason": found.reason,
            "attempts": 1,
        }
        return ReadDocument(row, None if blank else found.text)

    def _quarantined(
        self, doc_id: str, listed: Listed, reason: str, raw_hash: str | None, attempts: int = 1
    ) -> ReadDocument:
        row = {
            **self._row(doc_id, listed),
            "raw_hash": raw_hash,
            "converter": self._limits,
            "outcome": "quarantined",
            "reason": reason,
            "attempts": attempts,
        }
        return ReadDocument(row, None)

    def _row(self, doc_id: str, listed: Listed) -> dict[str, object]:
        metadata = listed.record.metadata if listed.record is not None else NO_METADATA
        labels = list(listed.record.labels) if listed.record is not None else []
        return {
            "doc_id": doc_id,
            "source_id": self._source_id,
            "path": listed.path,
            "uri": listed.uri,
            "title": None,
            "media_type": None,
            "size": listed.size,
            "version": listed.version,
            "text_hash": None,
            "chars": None,
            "metadata": metadata,
            "metadata_hash": content_id("metadata", metadata, *labels),
            "labels": labels,
        }
