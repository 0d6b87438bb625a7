"""Check the licence of every locked dependency: permissive, or copyleft by the file only."""

import re
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALLOWED = re.compile(
    r"apache|\bmit\b|bsd|isc|python software foundation|\bpsf\b|psf-2|mpl|mozilla|unlicense|public domain|zlib|hpnd|"
    r"cc0|0bsd|historical permission|blueoak|zpl|cnri|unicode",
    re.IGNORECASE,
)
FORBIDDEN = re.compile(r"\b(a?gpl|lgpl|gnu|sspl|commons clause|busl|cc-by-nc|proprietary)", re.IGNORECASE)
# Packages whose metadata says nothing or too much, looked up by hand.
BY_HAND: dict[str, str] = {"hdbscan": "BSD-3-Clause"}


def licence(name: str) -> str:
    meta = distribution(name).metadata
    classifiers = [c.split("::")[-1].strip() for c in meta.get_all("Classifier", []) if c.startswith("License ::")]
    text = meta.get("License-Expression") or " / ".join(classifiers) or (meta.get("License") or "").strip()
    return text.splitlines()[0][:120] if text else ""


def verdict(name: str) -> str | None:
    """What is wrong with the licence of `name`, or None."""
    found = BY_HAND.get(name) or licence(name)
    if not found:
        return f"{name}: no licence in its metadata; look it up and add it to BY_HAND"
    alternatives = re.split(r"\s+OR\s+| / ", found, flags=re.IGNORECASE)
    if not any(ALLOWED.search(a) and not FORBIDDEN.search(a) for a in alternatives):
        return f"{name}: licence {found!r} is not permissive"
    return None


def main() -> int:
    names = [
        line.split("==")[0].split("[")[0]
        for line in (ROOT / "requirements.lock").read_text().splitlines()
        if re.match(r"[\w.-]+==", line)
    ]
    problems = []
    for name in names:
        try:
            problem = verdict(name)
        except PackageNotFoundError:
            continue  # a marker excludes it on this platform
        if problem:
            problems.append(problem)
    print("\n".join(problems) if problems else f"licences of {len(names)} packages are permissive")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
