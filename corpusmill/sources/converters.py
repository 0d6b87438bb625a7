"""The converters, run inside the sandbox only: kreuzberg first, markitdown where it fails or finds nothing."""

import html
import io
import re
import zipfile
from typing import Any

from corpusmill.sources.media import DOCX, EPUB, HTML, PDF, PPTX, XLSX
from corpusmill.sources.outcomes import ConversionRefused, Converted

_PASSWORD = re.compile(r"password|encrypt", re.IGNORECASE)
_HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t#]*$", re.MULTILINE)
_WORD = re.compile(r"\w+")
_EXTENSIONS = {PDF: ".pdf", HTML: ".html", EPUB: ".epub", DOCX: ".docx", PPTX: ".pptx", XLSX: ".xlsx"}
_STRICT = (DOCX, PPTX, XLSX, EPUB)  # the first converter takes some broken ones of these for empty


def convert_document(raw: bytes, media_type: str) -> Converted:
    """The text of a document as Markdown. Raises ConversionRefused with the reasons of both converters."""
    reasons: dict[str, str] = {}
    for converter in (first_converter, second_converter):
        try:
            text, title = converter(raw, media_type)
        except Exception as error:
            reasons[converter.__name__] = reason = f"{type(error).__name__}: {_short(error)}"
            if _PASSWORD.search(reason):
                raise ConversionRefused("password-protected") from error
            continue
        if text.strip():
            return Converted(text, media_type, title or _first_heading(text))
    said = "; ".join(reasons.values())
    if first_converter.__name__ in reasons or (reasons and media_type in _STRICT):
        raise ConversionRefused(f"cannot be converted: {said}")
    return Converted("", media_type, None, "no text found" + (f" ({said})" if said else ""))


def first_converter(raw: bytes, media_type: str) -> tuple[str, str | None]:
    from kreuzberg import ContentFilterConfig, ExtractionConfig, extract_bytes_sync

    def extract(output_format: str) -> Any:
        everything = ContentFilterConfig(
            include_headers=True, include_footers=True, strip_repeating_text=False, include_watermarks=True
        )
        config = ExtractionConfig(
            use_cache=False,
            disable_ocr=True,  # type: ignore[call-arg]  # the stub lacks it
            output_format=output_format,
            content_filter=everything,
        )
        return extract_bytes_sync(raw, media_type, config)

    result = extract("markdown")
    text = str(result.content)
    if media_type == PPTX:
        text = _with_left_out(text, str(extract("plain").content))
    elif media_type == XLSX:
        text = _with_left_out(text, _sheet_names(raw))
    title = result.metadata.get("title")
    return text, str(title).strip() or None if title else None


def _with_left_out(text: str, plain: str) -> str:
    """The Markdown form, followed by the lines of the plain form that it leaves out."""
    known = set(_WORD.findall(text))
    lines = [line for line in plain.splitlines() if (words := set(_WORD.findall(line))) and not words <= known]
    return "\n\n".join([text.rstrip(), *lines]) if lines else text


def _sheet_names(raw: bytes) -> str:
    """The names of a workbook's sheets, a line each: a sheet that is a chart has nothing else to say."""
    with zipfile.ZipFile(io.BytesIO(raw)) as workbook:
        found = re.findall(
            r'<sheet\b[^>]*?\bname="([^"]*)"', workbook.read("xl/workbook.xml").decode("utf-8", "replace")
        )
    return "\n".join(f"## {html.unescape(name)}" for name in found)


def second_converter(raw: bytes, media_type: str) -> tuple[str, str | None]:
    """One converter of markitdown, chosen by the type: left to itself it reads a broken document as plain text."""
    from markitdown import StreamInfo, converters

    kinds = {
        PDF: converters.PdfConverter,
        HTML: converters.HtmlConverter,
        EPUB: converters.EpubConverter,
        DOCX: converters.DocxConverter,
        PPTX: converters.PptxConverter,
        XLSX: converters.XlsxConverter,
    }
    if media_type not in kinds:
        raise ValueError(f"no second converter for {media_type}")
    info = StreamInfo(mimetype=media_type, extension=_EXTENSIONS[media_type])
    result = kinds[media_type]().convert(io.BytesIO(raw), info)
    return str(result.text_content), result.title or None


def _first_heading(text: str) -> str | None:
    found = _HEADING.search(text, 0, 20_000)
    return found.group(1).strip()[:300] if found else None


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
