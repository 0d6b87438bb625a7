"""Plots as inline SVG that takes its colours from the page, so that one file suits a light and a dark screen."""

import io
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from corpusmill.hashing import content_id

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Colours that are replaced by the page's own after drawing.
INK, MUTED, ACCENT, SECOND = "#010203", "#040506", "#070809", "#0a0b0c"
_PAGE_COLOURS = {INK: "var(--ink)", MUTED: "var(--muted)", ACCENT: "var(--accent)", SECOND: "var(--second)"}
_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "corpusmill",
    "font.family": "sans-serif",
    "font.size": 10.0,
    "text.color": INK,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "grid.color": MUTED,
    "grid.alpha": 0.2,
    "axes.axisbelow": True,
}
WIDTH, ROW = 6.4, 0.3  # inches


def bars(values: Mapping[str, float], label: Callable[[float], str], axis: str = "") -> str:
    """Horizontal bars in the given order, each with its value written beside it."""

    def draw(axes: "Axes") -> None:
        names = list(values)
        drawn = axes.barh(names, [values[name] for name in names], color=ACCENT, height=0.62)
        axes.bar_label(drawn, [label(values[name]) for name in names], padding=4, color=INK)
        axes.invert_yaxis()
        axes.margins(x=0.16)
        axes.set_xlabel(axis)
        axes.spines["left"].set_visible(False)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.tick_params(axis="x", labelsize=9)

    return svg(draw, height=ROW * len(values) + 0.75)


def histogram(counts: Mapping[int, int], axis: str, marks: Mapping[str, float] | None = None, bins: int = 40) -> str:
    """A histogram of value -> how many; `marks` are labelled upright lines."""

    def draw(axes: "Axes") -> None:
        drawn = min(bins, max(1, len(counts)))
        axes.hist(list(counts), bins=drawn, weights=list(counts.values()), color=ACCENT, rwidth=0.92)
        axes.grid(axis="y")
        axes.set_xlabel(axis)
        axes.set_ylabel("how many")
        for number, (name, at) in enumerate((marks or {}).items()):
            axes.axvline(at, color=SECOND, linestyle="--", linewidth=1.2)
            axes.text(
                at,
                1.02 + 0.07 * (number % 2),
                f" {name}",
                transform=axes.get_xaxis_transform(),
                color=SECOND,
                ha="center",
            )

    return svg(draw, height=2.9)


def log_log(counts: Mapping[int, int], axis: str, counted: str) -> str:
    """How many things have each size, on two logarithmic axes."""

    def draw(axes: "Axes") -> None:
        sizes = sorted(size for size in counts if size > 0)
        axes.loglog(sizes, [counts[size] for size in sizes], "o", color=ACCENT, markersize=4.5, alpha=0.85)
        _plain_ticks(axes, max(sizes, default=1), max(counts.values(), default=1))
        axes.grid(which="major")
        axes.set_xlabel(axis)
        axes.set_ylabel(counted)

    return svg(draw, height=2.9)


def _plain_ticks(axes: "Axes", widest: float, highest: float) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

    for which, most in ((axes.xaxis, widest), (axes.yaxis, highest)):
        which.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        which.set_minor_formatter(NullFormatter())
        if most < 10:
            which.set_major_locator(FixedLocator([1, 2, 3, 5, 8]))
    axes.set_xlim(0.8, max(widest * 1.4, 2))
    axes.set_ylim(0.7, max(highest * 1.6, 2))


def svg(draw: Callable[["Axes"], None], height: float) -> str:
    """What `draw` puts on axes, as an `<svg>` element; the same drawing gives the same text."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context(cast(Any, _STYLE)):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        FigureCanvasSVG(figure)
        figure.patch.set_alpha(0)
        axes = figure.add_subplot()
        axes.patch.set_alpha(0)
        draw(axes)
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return _for_page(buffer.getvalue())


def _for_page(text: str) -> str:
    """Only the element, in the page's colours, with ids that no other figure of the page has."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r'\1 width="100%" role="img"', text, count=1)
    for drawn, page in _PAGE_COLOURS.items():
        text = text.replace(drawn, page)
    own = content_id("figure", re.sub(r"\b[pm][0-9a-f]{10}\b", "", text))[:8]
    text = re.sub(r'\bid="([^"]+)"', rf'id="{own}-\1"', text)
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{own}-", text)
