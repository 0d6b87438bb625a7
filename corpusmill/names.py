"""Normal forms of entity names: a blocking key, not an identity (two things of one name stay two)."""

import unicodedata


def normal_form(name: str) -> str:
    """NFKC, casefold, punctuation and symbols to spaces, white space collapsed. Works for every script; may be empty."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    kept = (ch if unicodedata.category(ch)[0] not in "PSZC" else " " for ch in folded)
    return " ".join("".join(kept).split())


def display_name(forms: dict[str, int]) -> str:
    """The most frequent surface form; ties go to the least by code point."""
    return min(forms, key=lambda form: (-forms[form], form))
