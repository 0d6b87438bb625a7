"""The truncated sliding window (section 2): which chunks precede a chunk in its extraction call."""


def window_start(i: int, g_max: int, g_overlap: int) -> int:
    """s(i) = max(1, floor((i - 1 - g_overlap) / (g_max - g_overlap)) * (g_max - g_overlap) + 1), 1-based.

    Raises ValueError unless i >= 1 and 0 <= g_overlap < g_max.
    """
    if not 0 <= g_overlap < g_max:
        raise ValueError(f"a window needs 0 <= g_overlap < g_max, got g_overlap {g_overlap} and g_max {g_max}")
    if i < 1:
        raise ValueError(f"chunks are counted from 1, got {i}")
    step = g_max - g_overlap
    return max(1, (i - 1 - g_overlap) // step * step + 1)


def prefix(i: int, g_max: int, g_overlap: int) -> range:
    """PreC_i: the 1-based numbers of the chunks before chunk i in its window, at most g_max - 1 of them."""
    return range(window_start(i, g_max, g_overlap), i)
