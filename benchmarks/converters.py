"""How much of each document's words the converters find, measured against the second converter.

    python -m benchmarks.converters [FOLDER]     (default: the shared set `documents`)

Prints, for each document, the share of the second converter's words that our text has too; ends with 1 if one has less
than 95 %. Left out, since they are no words of the document, is what that converter adds itself: slide numbers in
comments, `nan` and `Unnamed` in sheets, whole numbers written as 1.0, `(cid:n)` for glyphs it cannot name, link
targets, numbers of list items. Words of a PDF are compared as letters, because the two divide them differently and,
right to left, order them differently.
"""

import argparse
import os
import re
import sys
import unicodedata
from collections import Counter
from pathlib import Path

from corpusmill.settings import Settings
from corpusmill.sources import media
from corpusmill.sources.convert import convert
from corpusmill.sources.outcomes import ConversionError
from corpusmill.sources.sandbox import Sandbox

_ADDED = re.compile(
    r"<!--.*?-->|\]\((?:[^()\n]|\([^()\n]*\))*\)|\(cid:\d+\)|\bnan\b|\bUnnamed: \d+|data:image\S+|(?<=\d)\.0\b"
    r"|^[ \t]*(?:[*+-][ \t]+)?\d+\.[ \t]",
    re.DOTALL | re.IGNORECASE | re.MULTILINE,
)
_WORD = re.compile(r"\w+")


def main() -> int:
    default = (
        Path(os.environ.get("CORPUSMILL_SHARED", Path(__file__).resolve().parents[2] / "shared" / "data")) / "documents"
    )
    parser = argparse.ArgumentParser(prog="benchmarks.converters", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=default)
    folder = parser.parse_args().folder
    settings = Settings()
    indexed = low = compared = 0
    with Sandbox(settings.convert) as sandbox:
        paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
        for path in paths:
            raw = path.read_bytes()
            try:
                found = convert(raw, path.name, settings, sandbox)
            except ConversionError as error:
                print(f"{path.name:45} {error}")
                continue
            indexed += 1
            other = second(raw, found.media_type)
            if other is None:
                continue
            share = words_kept(other, found.text, found.media_type)
            compared += 1
            low += share < 0.95
            print(f"{path.name:45} {share:7.1%}" + ("   below 95 %" if share < 0.95 else ""))
    print(f"{indexed} of {len(paths)} documents have a text; {compared} compared, {low} below 95 % of the words")
    return 1 if low else 0


def second(raw: bytes, media_type: str) -> str | None:
    """The text by the second converter alone; None if it has none for the type, or fails."""
    from corpusmill.sources.converters import second_converter

    if media_type in (media.CSV, media.TSV):
        return raw.decode("utf-8", "replace")
    if media_type in (media.PLAIN, media.MARKDOWN):
        return None
    try:
        return second_converter(raw, media_type)[0]
    except Exception as error:  # noqa: BLE001 - a measurement goes on; what failed is printed
        print(f"  the second converter fails: {type(error).__name__}: {str(error).splitlines()[0][:90]}")
        return None


def words_kept(other: str, ours: str, media_type: str) -> float:
    """The share of the other text's words (letters, for a PDF) that ours has as often."""
    parts = _letters if media_type == media.PDF else _words
    wanted, have = parts(other), parts(ours)
    total = sum(wanted.values())
    return 1.0 if not total else 1 - sum((wanted - have).values()) / total


def _words(text: str) -> Counter[str]:
    return Counter(_WORD.findall(_ADDED.sub(" ", text).replace("\\", "").casefold()))


def _letters(text: str) -> Counter[str]:
    return Counter(ch for ch in unicodedata.normalize("NFKC", _ADDED.sub(" ", text)).casefold() if ch.isalpha())


if __name__ == "__main__":
    sys.exit(main())
