"""Grouping hash-ordered items so that a change of one item changes few groups.

Items are cut where a binary trie over their hashes holds at most `fan_in` of them; groups of the next level are cut
from the same trie, with the groups below as items. Where a group begins and ends depends on the hashes near it alone,
never on positions, so adding or removing one item changes its own path and, where a group overflows or two halves join,
their neighbours: O(log n) groups, each of at most `fan_in` items. Groups are about two thirds full.
"""

from collections.abc import Sequence


def trie_groups(hashes: Sequence[str], fan_in: int) -> list[range]:
    """Places of each group of `hashes` (distinct lower-case hex, sorted, of one length), in order."""
    if fan_in < 2:
        raise ValueError(f"fan_in must be at least 2, got {fan_in}")
    numbers = [int(text, 16) for text in hashes]
    groups: list[range] = []
    stack = [(0, len(numbers), 4 * len(hashes[0]) - 1)] if hashes else []
    while stack:
        start, end, bit = stack.pop()
        if end - start <= fan_in:
            if end > start:
                groups.append(range(start, end))
            continue
        middle = _first_with(numbers, start, end, bit)
        stack.append((middle, end, bit - 1))
        stack.append((start, middle, bit - 1))
    return groups


def _first_with(numbers: Sequence[int], start: int, end: int, bit: int) -> int:
    """The first place in start..end whose number has `bit` set; all higher bits are equal there."""
    while start < end:
        middle = (start + end) // 2
        if numbers[middle] >> bit & 1:
            end = middle
        else:
            start = middle + 1
    return start
