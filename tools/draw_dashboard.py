"""Draw infra/monitoring/dashboard.json from a Prometheus, where no Grafana is at hand.

    python tools/draw_dashboard.py http://localhost:9090 dashboard.png --minutes 30

Every query of every panel is asked as Grafana would ask it; one that Prometheus refuses ends the program with exit 1,
and panels without data are named.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import httpx

DASHBOARD = Path(__file__).resolve().parent.parent / "infra" / "monitoring" / "dashboard.json"
COLUMNS = 24  # of Grafana's grid
POINTS = 240


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def query(prometheus: str, expression: str, start: float, end: float) -> list[dict[str, Any]]:
    """Series of an expression over a time. Raises SystemExit with Prometheus' own words where it refuses."""
    asked = {"query": expression, "start": start, "end": end, "step": max(1.0, (end - start) / POINTS)}
    answer = httpx.get(f"{prometheus}/api/v1/query_range", params=asked, timeout=30).json()
    if answer["status"] != "success":
        raise SystemExit(f"{answer.get('error')}\n  in {expression}")
    found: list[dict[str, Any]] = answer["data"]["result"]
    return found


def legend(template: str, labels: dict[str, str]) -> str:
    for name, value in labels.items():
        template = template.replace("{{" + name + "}}", value)
    return template


def draw(prometheus: str, out: Path, minutes: float, session: str) -> list[str]:
    """The picture; titles of panels without data."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    dashboard = json.loads(DASHBOARD.read_text("utf-8"))
    end = time.time()
    start = end - 60 * minutes
    height = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in dashboard["panels"])
    figure = pyplot.figure(figsize=(18, height * 0.34), layout="constrained")
    grid = figure.add_gridspec(height, COLUMNS)
    empty = []
    for panel in panels(dashboard):
        at = panel["gridPos"]
        axes = figure.add_subplot(grid[at["y"] : at["y"] + at["h"], at["x"] : at["x"] + at["w"]])
        axes.set_title(f"{panel['title']} ({panel['fieldConfig']['defaults']['unit']})", fontsize=9, loc="left")
        some = False
        for target in panel["targets"]:
            for series in query(prometheus, target["expr"].replace("$session", session), start, end):
                minutes_in = [(float(when) - start) / 60 for when, _ in series["values"]]
                values = [float(value) for _, value in series["values"]]
                name = legend(target["legendFormat"], series["metric"])
                axes.plot(minutes_in, values, linewidth=1, marker=".", markersize=2, label=name)
                some = True
        axes.set_xlim(0, minutes)
        axes.set_ylim(bottom=0)
        axes.tick_params(labelsize=7)
        if some:
            axes.legend(fontsize=6, loc="upper left")
        else:
            empty.append(panel["title"])
    figure.savefig(out, dpi=80)
    return empty


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prometheus", help="its address, http://HOST:9090")
    parser.add_argument("out", type=Path, help="a .png, .svg or .pdf file")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--session", default=".*", help="a Ray session's name; default: all")
    args = parser.parse_args()
    if empty := draw(args.prometheus.rstrip("/"), args.out, args.minutes, args.session):
        print(f"without data: {', '.join(empty)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
