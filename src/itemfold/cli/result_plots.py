"""Plots of results as files: means with intervals, a panel for each metric or data set."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from itemfold.data.array_types import Floats
from itemfold.errors import ItemfoldError
from itemfold.evaluation.activity import ByActivity
from itemfold.evaluation.intervals import Interval, bootstrap_interval
from itemfold.files import atomic, check_file

KINDS = (".svg", ".png", ".pdf")
Panels = Mapping[str, Mapping[str, Interval]]  # title of a panel → label of a row → mean, interval
COLOUR, GREY = "#3465a4", "#d9dee6"
WIDE = 3  # most panels beside each other


def check_plot(path: Path | None) -> Path | None:
    """The file of a plot, checked before anything is computed."""
    return None if path is None else check_file(path, KINDS, "--plot")


def compared_plot(values: Mapping[str, Mapping[str, Floats]], path: Path) -> None:
    """Means of every run, a panel for each metric."""
    metrics = next(iter(values.values()))
    panels = {
        metric: {run: bootstrap_interval(own[metric]) for run, own in values.items()}
        for metric in metrics
    }
    write_plot(panels, path)


def activity_plot(found: ByActivity, path: Path) -> None:
    """Means of every group of users, a panel for each metric."""
    metrics = next(iter(found.values()))
    write_plot({m: {group.label: own[m] for group, own in found.items()} for m in metrics}, path)


def write_plot(panels: Panels, path: Path) -> None:
    """Draw means as dots and intervals as lines, in the form that the file's name asks for."""
    import matplotlib
    from matplotlib.figure import Figure

    if not any(panels.values()):
        raise ItemfoldError("'--plot' needs at least one figure, got none")
    columns = min(len(panels), WIDE)
    lines = -(-len(panels) // columns)
    tallest = max(len(rows) for rows in panels.values())
    longest = max(len(label) for rows in panels.values() for label in rows)
    size = (1.2 + 0.075 * longest + 2.6 * columns, lines * (0.9 + 0.34 * tallest))
    style = {"svg.fonttype": "none", "svg.hashsalt": "itemfold", "font.size": 11}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=size, layout="constrained")
        has_same_rows = len({tuple(rows) for rows in panels.values()}) == 1
        grid = figure.subplots(lines, columns, squeeze=False, sharey=has_same_rows)
        for axes, (title, rows) in zip(grid.flatten(), panels.items(), strict=False):
            _panel(axes, title, rows)
        for axes in grid.flatten()[len(panels) :]:
            axes.set_axis_off()
        with atomic(path) as draft:
            kind = path.suffix[1:].lower()
            undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}  # reproducible bytes
            figure.savefig(draft, format=kind, dpi=200, metadata=undated.get(kind))


def _panel(axes: Any, title: str, rows: Mapping[str, Interval]) -> None:
    at = range(len(rows))
    means = [found.mean for found in rows.values()]
    spread = [
        [found.mean - found.low for found in rows.values()],
        [found.high - found.mean for found in rows.values()],
    ]
    axes.errorbar(means, at, xerr=spread, fmt="o", color=COLOUR, elinewidth=1.8, markersize=6)
    axes.set_yticks(list(at), list(rows))
    axes.set_ylim(len(rows) - 0.5, -0.5)  # the first row is at the top
    axes.set_title(title, loc="left", fontsize=11)
    axes.locator_params(axis="x", nbins=4)
    axes.grid(axis="x", color=GREY)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(axis="y", length=0)
