"""Bytes to text: byte order marks, UTF-8, UTF-16 and UTF-32, other encodings by statistics; binary data is refused."""

import re
from dataclasses import dataclass

from corpusmill.sources.outcomes import ConversionRefused

_SAMPLE = 1 << 18  # bytes that statistics look at
_BOMS = (
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)
_CONTROLS = bytes(set(range(32)) - {9, 10, 12, 13, 27})  # NUL included
_MAX_CONTROLS = 0.02  # share of a text's bytes
_MAX_BROKEN = 0.001  # share of bytes that a UTF-8 text may have broken (cut files, pasted bytes)
_COMMON = "cp1252"
_TIE = 0.05  # in the detector's measure of mess
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Decoded:
    """`note` says what was lost or guessed, or is None."""

    text: str
    encoding: str
    note: str | None = None


def decode(raw: bytes) -> Decoded:
    """The text of `raw`, newlines as \\n, without NULs. Raises ConversionRefused if it is not text."""
    encoding, start = _certain(raw)
    if encoding is None:
        encoding = _guessed(raw)
    try:
        text, broken = raw[start:].decode(encoding), 0
    except UnicodeDecodeError:
        text = raw[start:].decode(encoding, "replace")
        broken = text.count("\ufffd")
    text, note = normalised(text)
    notes = [note, f"{broken} bytes are not {encoding}" if broken else None]
    return Decoded(text, encoding, "; ".join(part for part in notes if part) or None)


def normalised(text: str) -> tuple[str, str | None]:
    """Stored form of a text: \\n newlines, no NULs, no lone surrogates; and a note of what was taken out."""
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    notes = []
    if nuls := text.count("\x00"):
        text = text.replace("\x00", "")
        notes.append(f"{nuls} NUL characters removed")
    if _SURROGATE.search(text):
        text = _SURROGATE.sub("\ufffd", text)
        notes.append("lone surrogates replaced")
    return text, "; ".join(notes) or None


def looks_binary(raw: bytes) -> bool:
    """Whether too many control bytes stand in the first part for any 8-bit text (UTF-16 and UTF-32 look binary too)."""
    sample = raw[:_SAMPLE]
    return len(sample) - len(sample.translate(None, _CONTROLS)) > _MAX_CONTROLS * len(sample)


def _certain(raw: bytes) -> tuple[str | None, int]:
    """Encoding and where the text starts, from a byte order mark, from UTF-8 being valid, or from the NULs' places."""
    for mark, encoding in _BOMS:
        if raw.startswith(mark):
            return encoding, len(mark)
    if b"\x00" in raw[:_SAMPLE] and (wide := _wide(raw[:_SAMPLE])) is not None:
        return wide, 0
    if looks_binary(raw):
        raise ConversionRefused("binary data, not a text and no known document format")
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return ("utf-8", 0) if _nearly_utf8(raw) else (None, 0)
    return "utf-8", 0


def _wide(sample: bytes) -> str | None:
    """UTF-16 or UTF-32 without a mark, by where the NULs are."""
    sample = sample[: len(sample) // 4 * 4]
    if len(sample) < 4:
        return None
    nul = [sample[at::4].count(0) / (len(sample) // 4) for at in range(4)]
    if (min(nul[1:]) > 0.9 and nul[0] < 0.1) or (min(nul[2:]) > 0.95 and nul[0] < 0.1 and nul[1] < 0.9):
        return "utf-32-le"
    if (min(nul[:3]) > 0.9 and nul[3] < 0.1) or (min(nul[:2]) > 0.95 and nul[3] < 0.1 and nul[2] < 0.9):
        return "utf-32-be"
    even, odd = (nul[0] + nul[2]) / 2, (nul[1] + nul[3]) / 2
    if odd > 0.3 and even < 0.02:
        return "utf-16-le"
    if even > 0.3 and odd < 0.02:
        return "utf-16-be"
    return None


def _nearly_utf8(raw: bytes) -> bool:
    sample = raw[:_SAMPLE]
    text = sample.decode("utf-8", "replace")
    wide = sum(1 for ch in text if ch > "\x7f" and ch != "\ufffd")
    broken = text.count("\ufffd")
    return wide > 4 * broken and broken <= max(1, _MAX_BROKEN * len(sample))


def _guessed(raw: bytes) -> str:
    """By charset-normalizer. Of single-byte encodings that fit about as well, the most common one is taken."""
    from charset_normalizer import from_bytes

    matches = from_bytes(raw[:_SAMPLE])
    best = matches.best()
    if best is None:
        raise ConversionRefused("no encoding fits the bytes; not a text and no known document format")
    for match in matches:
        if _COMMON in match.could_be_from_charset and match.chaos <= best.chaos + _TIE:
            return _COMMON
    return best.encoding
