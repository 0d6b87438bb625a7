"""Normal forms of entity names: a blocking key, not an identity (two things of one name stay two)."""

import re
import unicodedata
from functools import lru_cache

_ASCII_DROPPED = re.compile(r"[^0-9a-z]+")


@lru_cache(maxsize=65_536)
def normal_form(name: str) -> str:
    """NFKC, casefold, punctuation and symbols to spaces, white space collapsed. For every script; may be empty."""
    if name.isascii():  # the same by other means: NFKC changes nothing, and all but letters and digits is P, S, Z or C
        return _ASCII_DROPPED.sub(" ", name.lower()).strip()
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    kept = (ch if unicodedata.category(ch)[0] not in "PSZC" else " " for ch in folded)
    return " ".join("".join(kept).split())


def display_name(forms: dict[str, int]) -> str:
    """The most frequent surface form; ties go to the least by code point."""
    return min(forms, key=lambda form: (-forms[form], form))
