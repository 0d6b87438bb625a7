"""From a document's bytes to its text: by ourselves for what is text already, in the sandbox for the rest."""

import csv
import io
import re
from collections.abc import Callable
from importlib.metadata import version

from corpusmill.hashing import fingerprint
from corpusmill.settings import Settings
from corpusmill.sources import media
from corpusmill.sources.encodings import decode, normalised
from corpusmill.sources.outcomes import ConversionError, ConversionRefused, Converted
from corpusmill.sources.sandbox import Sandbox

RULES_VERSION = 2
_CHARSET = re.compile(rb"<meta[^>]+charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]+)", re.IGNORECASE)
_HEADING = re.compile(r"^#[ \t]+(.+?)[ \t#]*$", re.MULTILINE)
_SNIFFED = 64 * 1024


def converter_fingerprint() -> str:
    """Identity of what turns bytes into text: a document converted by another is converted again."""
    return fingerprint(
        {"rules": RULES_VERSION, **{name: version(name) for name in ("kreuzberg", "markitdown", "charset-normalizer")}}
    )


def limits_fingerprint(settings: Settings) -> str:
    """The same with the limits, for quarantined documents: wider limits are worth another try."""
    return fingerprint(
        {"converter": converter_fingerprint(), "limits": settings.convert, "max_bytes": settings.source.max_bytes}
    )


def convert(raw: bytes, path: str, settings: Settings, sandbox: Sandbox) -> Converted:
    """The text of a document, newlines as \\n.

    Raises ConversionRefused at once for what no second try can change, and the last error after
    `settings.convert.attempts` tries that crashed, hung or overflowed.
    """
    if len(raw) > settings.source.max_bytes:
        raise ConversionRefused(f"{len(raw)} bytes, more than source.max_bytes ({settings.source.max_bytes})")
    if not raw:
        return Converted("", media.media_type(raw, path), None, "the document is empty")
    kind = media.media_type(raw, path)
    if kind in (media.PLAIN, media.MARKDOWN, media.CSV, media.TSV):
        return _decoded(raw, kind)
    if kind == media.HTML:
        raw = _html_as_utf8(raw)
    found = _tried(lambda: sandbox.convert(raw, kind), settings.convert.attempts)
    text, note = normalised(found.text)
    reason = "; ".join(part for part in (found.reason, note) if part) or None
    return Converted(text, found.media_type, found.title, reason)


def _tried(call: Callable[[], Converted], attempts: int) -> Converted:
    for attempt in range(1, attempts + 1):
        try:
            return call()
        except ConversionRefused:
            raise
        except ConversionError as error:
            if attempt == attempts:
                final = type(error)(f"{error}; {attempts} attempts")
                final.attempts = attempts
                raise final from error
    raise AssertionError("attempts is at least 1")


def _decoded(raw: bytes, kind: str) -> Converted:
    decoded = decode(raw)
    if kind in (media.CSV, media.TSV):
        return Converted(_table_text(decoded.text), kind, None, decoded.note)
    heading = _HEADING.search(decoded.text, 0, 20_000) if kind == media.MARKDOWN else None
    return Converted(decoded.text, kind, heading.group(1).strip()[:300] if heading else None, decoded.note)


def _table_text(text: str) -> str:
    """A row a line, cells between bars: a Markdown table but for its rule. What is no table stays as it is."""
    try:
        dialect = csv.Sniffer().sniff(text[:_SNIFFED], delimiters=",;\t|")
        rows = list(csv.reader(io.StringIO(text, newline=""), dialect))
    except csv.Error:
        return text
    lines = ["| " + " | ".join(" ".join(cell.split()) for cell in row) + " |" for row in rows if any(row)]
    return "\n".join(lines)


def _html_as_utf8(raw: bytes) -> bytes:
    """HTML in UTF-8, by its declared encoding where that fits, else by its bytes."""
    declared = _CHARSET.search(raw[:4096])
    if declared is not None:
        try:
            text = raw.decode(declared.group(1).decode("ascii"))
        except (LookupError, UnicodeDecodeError):
            text = decode(raw).text
    else:
        text = decode(raw).text
    return _CHARSET.sub(
        lambda found: found.group(0).replace(found.group(1), b"utf-8"), text.encode("utf-8", "replace"), count=1
    )
