"""What is said of an entity, without its name."""

import re

_STAND_IN = "it"


def without_name(text: str, name: str) -> str:
    """`text` with every mention of `name` (any case, whole words where the script has them) replaced by "it"."""
    words = name.split()
    if not words or words[0].casefold() not in text.casefold():
        return text
    pattern = r"\s+".join(re.escape(word) for word in words)
    if name[0].isascii() and name[0].isalnum():
        pattern = rf"(?<!\w){pattern}"
    if name[-1].isascii() and name[-1].isalnum():
        pattern = rf"{pattern}(?!\w)"
    return re.sub(pattern, _STAND_IN, text, flags=re.IGNORECASE)
