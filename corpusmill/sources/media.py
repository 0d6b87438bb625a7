"""What kind of document some bytes are: by content first, by the extension only between kinds of text."""

import io
import zipfile
import zlib
from pathlib import PurePosixPath

from corpusmill.sources.outcomes import ConversionRefused

_OFFICE = "application/vnd.openxmlformats-officedocument."
DOCX = _OFFICE + "wordprocessingml.document"
PPTX = _OFFICE + "presentationml.presentation"
XLSX = _OFFICE + "spreadsheetml.sheet"
EPUB = "application/epub+zip"
PDF = "application/pdf"
HTML = "text/html"
RTF = "application/rtf"
MARKDOWN = "text/markdown"
CSV = "text/csv"
TSV = "text/tab-separated-values"
PLAIN = "text/plain"

_LEGACY = {
    ".doc": "application/msword",
    ".xls": "application/vnd.ms-excel",
    ".ppt": "application/vnd.ms-powerpoint",
    ".msg": "application/vnd.ms-outlook",
}
_TEXT_BY_EXTENSION = {
    ".md": MARKDOWN,
    ".markdown": MARKDOWN,
    ".mdown": MARKDOWN,
    ".csv": CSV,
    ".tsv": TSV,
    ".htm": HTML,
    ".html": HTML,
    ".xhtml": HTML,
}
_NEVER_TEXT = (".pdf", ".docx", ".pptx", ".xlsx", ".epub", ".odt", ".ods", ".odp")
_BLANK = b"\xef\xbb\xbf \t\r\n"
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"BM", "image/bmp"),
)
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED_OFFICE = "EncryptedPackage".encode("utf-16-le")
_PARTS = (("word/", DOCX), ("ppt/", PPTX), ("xl/", XLSX))


def media_type(raw: bytes, path: str) -> str:
    """The media type of a document. Raises ConversionRefused for pictures, archives, protected office files, and a
    name of a document format over a content of none."""
    extension = PurePosixPath(path).suffix.lower()
    head = raw[:1024]
    if head.lstrip(_BLANK).startswith(b"%PDF") or (b"%PDF-" in head and b" obj" in raw):
        return PDF
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _zipped(raw)
    if head.startswith(_OLE):
        if _ENCRYPTED_OFFICE in raw:
            raise ConversionRefused("password-protected office document")
        return _LEGACY.get(extension, _LEGACY[".doc"])
    if head.startswith(b"{\\rtf"):
        return RTF
    for magic, kind in _IMAGES:
        if head.startswith(magic) and (magic != b"BM" or b"\x00" in head):
            raise ConversionRefused(f"{kind}: a picture, and no text recognition is configured")
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        raise ConversionRefused("image/webp: a picture, and no text recognition is configured")
    if head.lstrip(_BLANK).lower().startswith((b"<!doctype html", b"<html")):
        return HTML
    if raw.strip() and extension in _NEVER_TEXT:
        raise ConversionRefused(f"broken, or no {extension} document: its content does not begin as one")
    return _TEXT_BY_EXTENSION.get(extension, PLAIN)


def _zipped(raw: bytes) -> str:
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            names = archive.namelist()
            declared = archive.read("mimetype")[:100].decode("ascii", "replace").strip() if "mimetype" in names else ""
    except (zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError, ValueError, EOFError, zlib.error) as error:
        raise ConversionRefused(f"broken zip container: {error}") from error
    if declared == EPUB or declared.startswith("application/vnd.oasis.opendocument"):
        return declared
    for prefix, kind in _PARTS:
        if any(name.startswith(prefix) for name in names):
            return kind
    if "META-INF/container.xml" in names:
        return EPUB
    raise ConversionRefused("a zip archive that is no known document format")
