"""A plot of recall with its intervals, one row a system."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from corpusmill.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from corpusmill.evaluation.report import EvaluationResult

FORMATS = (".svg", ".png", ".pdf")
_COLOURS = ("#1f5fa8", "#c2571a", "#2e7d4f", "#7b4ba0", "#8a6d1d")
_STYLE = {"svg.hashsalt": "corpusmill", "svg.fonttype": "none", "font.size": 10.0}


def checked_plot(path: Path) -> Path:
    """The path, if a plot can be written there. Raises UsageError naming the formats, or the folder that is missing."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"cannot plot to {path}: the name must end in one of {', '.join(FORMATS)}")
    if not path.parent.is_dir():
        raise UsageError(f"cannot plot to {path}: there is no folder {path.parent}")
    return path


def plot_recall(result: "EvaluationResult", path: Path) -> None:
    """Write recall at each cut, and the share of questions with all gold found, with intervals. Equal results give
    equal SVG files. Raises UsageError where the file cannot be written."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(cast(Any, _STYLE)):
        figure = Figure(figsize=(8.0, 1.5 + 0.4 * len(result.systems) * max(1.0, len(result.cuts) / 2)))
        figure.set_layout_engine("constrained")
        shared = None
        for column, name in enumerate(("recall", "all_gold"), start=1):
            axes = figure.add_subplot(1, 2, column, sharey=shared)
            shared = shared or axes
            _draw(axes, result, name)
            axes.tick_params(labelleft=column == 1)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        figure.suptitle(f"{result.dataset}: {result.questions} questions, {result.confidence:.0%} intervals")
        try:
            figure.savefig(path, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
        except OSError as error:
            raise UsageError(f"the plot {path} cannot be written: {error}") from error


def _draw(axes: "Axes", result: "EvaluationResult", name: str) -> None:
    names = [system.name for system in result.systems]
    for number, k in enumerate(result.cuts):
        offset = (number - (len(result.cuts) - 1) / 2) * 0.6 / len(result.cuts)
        figures = [figure for system in result.systems if (figure := system.figures[f"{name}@{k}"]) is not None]
        values = [figure.value for figure in figures]
        below = [figure.value - figure.low if figure.low is not None else 0.0 for figure in figures]
        above = [figure.high - figure.value if figure.high is not None else 0.0 for figure in figures]
        places = [row + offset for row in range(len(names))]
        colour = _COLOURS[number % len(_COLOURS)]
        axes.errorbar(values, places, xerr=[below, above], fmt="o", color=colour, capsize=3, label=f"first {k}")
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel({"recall": "recall", "all_gold": "questions with all gold"}[name])
    axes.grid(axis="x", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
