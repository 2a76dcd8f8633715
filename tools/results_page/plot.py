"""The plot of a suite: one panel per data set, one dot per row, as SVG with reproducible bytes."""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

STYLE: dict[str, Any] = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "itemfold",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "x",
    "grid.color": "#dddddd",
    "axes.axisbelow": True,
}
COLOUR, BASE, PAPER = "#1f5fa8", "#555555", "#c0392b"
ACROSS = 3  # panels per line
NARROW = 14  # letters of a name that fit into a panel of the usual width


@dataclass(frozen=True)
class Point:
    """A row in a panel, × 100."""

    name: str
    mean: float
    spread: float
    marked: bool  # differs from the baseline significantly
    paper: float | None = None


def digest(metric: str, data: Mapping[str, Sequence[Point]]) -> str:
    """A hash of what is plotted: the same for the same figures, whatever draws them."""
    rows = {name: [asdict(point) for point in points] for name, points in data.items()}
    text = json.dumps([metric, rows], default=str)
    return hashlib.sha256(re.sub(r"(\.\d{6})\d+", r"\1", text).encode()).hexdigest()[:16]


def panels(title: str, metric: str, data: Mapping[str, Sequence[Point]], baseline: str = "") -> str:
    """An SVG: dots with the spread over seeds, filled if significant; crosses are published."""
    import matplotlib
    from matplotlib.figure import Figure

    across = min(ACROSS, len(data))
    down = -(-len(data) // across)
    tallest = max(len(points) for points in data.values())
    longest = max((len(point.name) for points in data.values() for point in points), default=0)
    width = 3.4 + 0.09 * max(longest - NARROW, 0)
    with matplotlib.rc_context(STYLE):
        size = (width * across, (0.8 + 0.24 * tallest) * down + 0.2)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(down, across, squeeze=False)
        for n, axes in enumerate(grid.flat):
            if n >= len(data):
                axes.set_axis_off()
        for axes, (name, points) in zip(grid.flat, data.items(), strict=False):
            _panel(axes, points, baseline)
            axes.set_title(name, fontsize=9, loc="left")
            axes.set_xlabel(f"{metric} × 100")
        text = svg_of(figure, title)
    return f"{text}<!-- figures {digest(metric, data)} -->\n"


def svg_of(figure: Any, title: str) -> str:
    """A figure as SVG whose bytes depend on the figure alone."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    file = io.StringIO()
    FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None})
    text = file.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = text.replace("<svg ", f'<svg role="img" aria-label="{_plain(title)}" ', 1)
    return f"{text.rstrip()}\n"


def _panel(axes: Any, points: Sequence[Point], baseline: str) -> None:
    for y, point in enumerate(points):
        colour = BASE if point.name == baseline else COLOUR
        axes.errorbar(
            point.mean,
            y,
            xerr=point.spread,
            fmt="o",
            color=colour,
            markerfacecolor=colour if point.marked else "white",
            markersize=5.5,
            elinewidth=1.2,
        )
        if point.paper is not None:
            axes.plot(point.paper, y, "x", color=PAPER, markersize=5)
        if point.name == baseline:
            axes.axvline(point.mean, color=BASE, linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(points)), [point.name for point in points])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(points) - 0.5, -0.5)
    axes.margins(x=0.12)


def _plain(text: str) -> str:
    return re.sub(r'[<>&"]', " ", text)
