"""Plots as SVG that takes its colours from the page, for light and dark mode."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import numpy.typing as npt

from itemfold.cli.tables.details import selected_candidate
from itemfold.evaluation.activity import ByActivity, merged_group
from itemfold.evaluation.intervals import Interval, bootstrap_interval
from itemfold.evaluation.tradeoff import Sweep
from itemfold.serving.served_items import ServedItems
from itemfold.training.run import Run

# Placeholder colours for matplotlib; in the SVG they become variables of the page.
INK, DIM, LINE = "#010101", "#020202", "#030303"
COLOURS = [f"#0{n}0a0{n}" for n in range(6)]
VARIABLES = {INK: "--ink", DIM: "--dim", LINE: "--line"}
VARIABLES |= {colour: f"--c{n}" for n, colour in enumerate(COLOURS)}
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",  # text stays text: small, sharp, searchable
    "font.family": "sans-serif",
    "font.size": 13,  # legible at half of the page's width
    "axes.edgecolor": DIM,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": DIM,
    "ytick.color": DIM,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": LINE,
    "legend.frameon": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
}


def learning_curves(runs: Mapping[str, Run]) -> str:
    """The validation metric by epoch, with a dot at the selected epoch.

    Networks that a run tried and did not choose are dotted lines.
    """

    def draw(axes: Any) -> None:
        for colour, (name, run) in zip(cycle(COLOURS), runs.items(), strict=False):
            metric = run.config["train"].get("metric", "ndcg@20")
            taken = selected_candidate(run)
            for candidate, points in _curves(run, metric).items():
                if points[-1][0] == 0:  # a closed form has no epochs: a horizontal line
                    level = {"color": colour, "linewidth": 1.5, "linestyle": "--"}
                    axes.axhline(points[-1][1], label=name, **level)
                    continue
                x, y = zip(*points, strict=True)
                mark = {"marker": "o", "markersize": 3} if len(points) < 3 else {}
                if candidate != taken:
                    axes.plot(x, y, ":", color=colour, linewidth=1.5, **mark)
                    continue
                axes.plot(x, y, color=colour, linewidth=1.8, label=name, **mark)
                best = max(points, key=lambda point: point[1])
                axes.plot(*best, "o", color=colour, markersize=6)
        axes.set_xlabel("epoch")
        metrics = {run.config["train"].get("metric", "ndcg@20") for run in runs.values()}
        axes.set_ylabel(
            f"validation {metrics.pop() if len(metrics) == 1 else 'metric of each run'}"
        )
        axes.set_ylim(bottom=0)

    return _svg(draw, "learning curves")


def _curves(run: Run, metric: str) -> dict[int, list[tuple[int, float]]]:
    """Epochs and validation metrics of each network that a run trained."""
    out: dict[int, list[tuple[int, float]]] = {}
    for row in run.history:
        if metric in row:
            out.setdefault(row.get("candidate", 0), []).append((row["epoch"], row[metric]))
    return out


def means(found: Mapping[str, Interval], metric: str) -> str:
    """The mean of a metric of each system as a bar with its interval and its value."""

    def draw(axes: Any) -> None:
        at = np.arange(len(found))
        values, spread = _bars(found.values())
        axes.barh(at, values, 0.62, color=[COLOURS[n % len(COLOURS)] for n in range(len(found))])
        axes.errorbar(values, at, xerr=spread, fmt="none", ecolor=INK, elinewidth=1.5)
        for place, interval in zip(at, found.values(), strict=True):
            text = {"textcoords": "offset points", "va": "center", "color": INK}
            axes.annotate(f"{interval.mean:.4f}", (interval.high, place), (6, 0), **text)
        axes.set_yticks(at, list(found))
        axes.invert_yaxis()
        axes.tick_params(axis="y", colors=INK, length=0)
        axes.margins(x=0.16)
        axes.grid(visible=False)
        axes.set_xlim(left=0)
        axes.set_xlabel(metric)

    return _svg(draw, "mean of each system", legend=False, size=(7.2, 1.0 + 0.42 * len(found)))


def by_activity(runs: Mapping[str, ByActivity], metric: str = "ndcg@20") -> str:
    """Mean of a metric in each group of users, a bar for each run."""
    names = list(dict.fromkeys(group.name for found in runs.values() for group in found))
    labels = [f"{name}\n{merged_group(name, runs.values()).items}" for name in names]

    def draw(axes: Any) -> None:
        width = 0.8 / len(runs)
        for n, (name, found) in enumerate(runs.items()):
            bars = {group.name: values[metric] for group, values in found.items()}
            at = np.array([names.index(group) for group in bars])
            at = at + (n - (len(runs) - 1) / 2) * width
            means, spread = _bars(bars.values())
            axes.bar(at, means, width * 0.9, color=COLOURS[n % len(COLOURS)], label=name)
            axes.errorbar(at, means, spread, fmt="none", ecolor=INK, elinewidth=1)
        axes.set_xticks(range(len(names)), labels)
        axes.set_xlabel("group, and items in the history")
        axes.set_ylabel(metric)

    return _svg(draw, "by activity", legend=len(runs) > 1)


def windows_of(runs: Mapping[str, Run]) -> dict[str, dict[int, Run]]:
    """Runs on rolling time windows: model and loss → window → run."""
    out: dict[str, dict[int, Run]] = {}
    for run in runs.values():
        split, loss = run.config["split"], run.config["loss"].get("name", "none")
        if split.get("strategy") == "rolling" and "ndcg@20" in run.per_user:
            model = str(run.config["model"]["name"])
            name = model if loss == "none" or model == "hybrid" else f"{model}, {loss}"
            out.setdefault(name, {})[int(split["window"])] = run
    return {name: dict(sorted(points.items())) for name, points in out.items() if len(points) > 1}


def by_window(curves: Mapping[str, Mapping[int, Run]]) -> str:
    """The mean NDCG@20 of the test users of each time window, a curve for each model."""

    def draw(axes: Any) -> None:
        for n, (name, points) in enumerate(curves.items()):
            values = (run.per_user["ndcg@20"] for run in points.values())
            means, spread = _bars(map(bootstrap_interval, values))
            at = np.array(list(points)) + 0.04 * (n - (len(curves) - 1) / 2)
            colour = COLOURS[n % len(COLOURS)]
            style = {"color": colour, "linewidth": 1.8, "elinewidth": 1, "label": name}
            axes.errorbar(at, means, spread, marker="o", markersize=4, **style)
        axes.set_xticks(sorted({number for points in curves.values() for number in points}))
        axes.set_xlabel("time window")
        axes.set_ylabel("NDCG@20")
        axes.set_ylim(bottom=0)

    return _svg(draw, "by time window")


def popularity(
    runs: Mapping[str, Run], lists: Mapping[str, npt.NDArray[np.int32]], groups: int = 10
) -> str:
    """The fraction of recommendations by item popularity, beside that of interactions."""

    def shares(run: Run, rows: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        degree = np.bincount(run.interactions.indices, minlength=len(ServedItems.of(run).ids))
        place = np.empty(len(degree), dtype=np.int64)
        place[np.argsort(-degree, kind="stable")] = np.arange(len(degree))
        tenth = place[rows[rows >= 0]] * groups // len(degree)
        counts = np.bincount(tenth, minlength=groups)
        out: npt.NDArray[np.float64] = counts / max(counts.sum(), 1)
        return out

    def draw(axes: Any) -> None:
        x = np.arange(groups) + 1
        first = next(iter(runs.values()))
        base = shares(first, first.interactions.indices)
        axes.bar(x, base, 0.9, color=LINE, label="training interactions")
        for colour, (name, run) in zip(cycle(COLOURS), runs.items(), strict=False):
            share = shares(run, lists[name])
            axes.plot(x, share, "o-", color=colour, linewidth=1.8, markersize=4, label=name)
        axes.set_xticks(x)
        axes.set_xlabel("tenth of the catalogue, by popularity")
        axes.set_ylabel("share")

    return _svg(draw, "popularity")


def tradeoff_curves(
    sweeps: Mapping[str, Mapping[str, Sweep]], panels: Sequence[tuple[str, str]]
) -> str:
    """NDCG against what a slider changes, a panel for each slider and metric."""
    shown = [
        (slider, metric)
        for slider, metric in panels
        if any(slider in found and found[slider].measures(metric) for found in sweeps.values())
    ]
    n_rows = -(-len(shown) // 2)

    def draw(figure: Any) -> None:
        grid = figure.subplots(n_rows, 2, squeeze=False).flatten()
        for axes, (slider, metric) in zip(grid, shown, strict=False):
            points = [
                _tradeoff(axes, found[slider], metric, colour, name)
                for colour, (name, found) in zip(cycle(COLOURS), sweeps.items(), strict=False)
                if slider in found and found[slider].measures(metric)
            ]
            axes.set_title(slider, loc="left", fontsize=13)
            axes.set_xlabel(metric.replace("_", " "))
            axes.set_ylabel("NDCG@20")
            axes.margins(0.12, 0.16)
            axes.locator_params(nbins=4)
            _label(axes, points[:1])
        for axes in grid[len(shown) :]:
            axes.set_axis_off()
        if len(sweeps) > 1:
            handles = grid[0].get_legend_handles_labels()
            figure.legend(*handles, loc="outside lower center", ncols=3, fontsize=12)

    return _rendered(draw, "the cost of re-ranking", (7.6, 3.1 * n_rows + 0.5))


LABEL = (0.16, 0.14)  # space of a label, as a share of a panel's width and height
Points = list[tuple[float, float, str, str]]  # x, y, label, colour


def _tradeoff(axes: Any, sweep: Sweep, metric: str, colour: str, name: str) -> Points:
    """Draw one curve, from the list without re-ranking on; returns the points to label."""
    y = np.array(sweep.series("ndcg"))
    kept = y >= 0.75 * y[0]
    x, y = np.array(sweep.series(metric))[kept], y[kept]
    values = np.array([point.value for point in sweep.points])[kept]
    axes.plot(x, y, "o-", color=colour, linewidth=1.8, markersize=3, label=name)
    axes.plot(x[0], y[0], "o", color=colour, markersize=7)
    return [(x[n], y[n], f"{values[n]:g}", colour) for n in range(2, len(values), 2)]


def _label(axes: Any, curves: Sequence[Points]) -> None:
    """Label curves with the values of the slider, where there is space between the labels."""
    axes.autoscale_view()
    taken: list[tuple[float, float]] = []
    for points in curves:
        for x, y, text, colour in points:
            place, above = axes.transAxes.inverted().transform(axes.transData.transform((x, y)))
            at = (float(place), float(above))
            if all(abs(at[0] - a) > LABEL[0] or abs(at[1] - b) > LABEL[1] for a, b in taken):
                taken.append(at)
                style = {"textcoords": "offset points", "fontsize": 12, "color": colour}
                axes.annotate(text, (x, y), xytext=(5, 4), ha="left", **style)


def _bars(intervals: Iterable[Interval]) -> tuple[Any, Any]:
    """Heights of bars, [bars], and the distances to both ends of their intervals, [2, bars]."""
    found = list(intervals)
    means = np.array([f.mean for f in found])
    return means, np.array([[f.mean - f.low for f in found], [f.high - f.mean for f in found]])


def _svg(
    draw: Any, name: str, *, legend: bool = True, size: tuple[float, float] = (7.2, 3.8)
) -> str:
    """Draw on one pair of axes; returns an SVG element for an HTML page."""

    def on_axes(figure: Any) -> None:
        axes = figure.add_subplot()
        draw(axes)
        handles, labels = axes.get_legend_handles_labels()
        if legend and handles:  # above the plot, where it hides nothing
            figure.legend(handles, labels, loc="outside upper left", ncols=4, fontsize=12)

    return _rendered(on_axes, name, size)


def _rendered(draw: Any, name: str, size: tuple[float, float]) -> str:
    """Draw on a figure; returns an SVG element for an HTML page."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        file = io.StringIO()
        FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None})
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    for placeholder, variable in VARIABLES.items():
        text = text.replace(placeholder, f"var({variable})")
    return text.replace("<svg ", f'<svg role="img" aria-label="{name}" ', 1)
