"""Child processes of a test, found by what their command line says."""

import psutil


def children_named(part: str) -> set[int]:
    """Pids of living descendants whose command line holds `part`; one that ends while it is looked at is none."""
    found = set()
    for child in psutil.Process().children(recursive=True):
        try:
            if part in " ".join(child.cmdline()):
                found.add(child.pid)
        except psutil.Error:  # it ended, or is a zombie
            continue
    return found
