"""Rows that are points of curves, such as a model on one time window after another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from itemfold.experiments.suites.results import ResultRow, ResultTable, metric_title
from itemfold.experiments.suites.suite import Suite
from results_page.formatting import grid
from results_page.plot import STYLE, Point, digest, svg_of

COLOURS = ("#1f5fa8", "#c0392b", "#2e8b57", "#8a56ac", "#b8860b", "#555555")
MARKS = "osD^v<"

Curves = dict[str, dict[int, ResultRow]]  # name of a curve → its points, by number


def curves_of(table: ResultTable) -> Curves:
    """The curves of a table; a row is called NAME-NUMBER."""
    out: Curves = {}
    for row in table.rows:
        name, _, number = row.cell.row.rpartition("-")
        out.setdefault(name, {})[int(number)] = row
    return out


def curve_table(suite: Suite, table: ResultTable) -> str:
    """A table of curves by numbers, on the metric that is plotted."""
    metric, curves = suite.plotted[-1], curves_of(table)
    numbers = sorted({number for points in curves.values() for number in points})
    head = [f"{metric_title(metric)} × 100", *(f"{suite.curve} {number}" for number in numbers)]
    body = [
        [name, *(points[n].text(metric) if n in points else "–" for n in numbers)]
        for name, points in curves.items()
    ]
    return grid(head, body)


def curve_notes(suite: Suite, table: ResultTable) -> str:
    """The test users of each number, and the notes on its data."""
    points = next(iter(curves_of(table).values()))
    out = []
    for number, row in sorted(points.items()):
        result = row.results[0]
        notes = " ".join(result.get("notes", ()))
        out.append(f"- {suite.curve} {number}: {result['judged']:,} test users. {notes}".rstrip())
    return "\n".join(out)


def curve_plot(suite: Suite, tables: Sequence[ResultTable]) -> str:
    """An SVG: a panel for each data set, a line with the spread over seeds for each curve."""
    import matplotlib
    from matplotlib.figure import Figure

    metric = suite.plotted[-1]
    with matplotlib.rc_context({**STYLE, "axes.grid.axis": "y", "axes.spines.left": True}):
        figure = Figure(figsize=(5.2 * len(tables), 3.2), layout="constrained")
        for axes, table in zip(
            figure.subplots(1, len(tables), squeeze=False)[0], tables, strict=True
        ):
            _panel(axes, suite, table, metric)
        text = svg_of(figure, suite.title)
    return f"{text}<!-- figures {digest(metric_title(metric), _points(tables, metric))} -->\n"


def _panel(axes: Any, suite: Suite, table: ResultTable, metric: str) -> None:
    for place, (name, points) in enumerate(curves_of(table).items()):
        numbers = [number for number in sorted(points) if points[number].mean(metric) is not None]
        axes.errorbar(
            numbers,
            [points[number].mean(metric) for number in numbers],
            yerr=[points[number].spread(metric) or 0.0 for number in numbers],
            label=name,
            color=COLOURS[place % len(COLOURS)],
            marker=MARKS[place % len(MARKS)],
            markersize=5,
            linewidth=1.6,
            elinewidth=1.0,
        )
        axes.set_xticks(numbers)
    axes.set_title(table.entry.title, fontsize=9, loc="left")
    axes.set_xlabel(suite.curve)
    axes.set_ylabel(f"{metric_title(metric)} × 100")
    axes.set_ylim(bottom=0)
    many = len(curves_of(table)) > len(COLOURS)
    axes.legend(frameon=False, **({"fontsize": 6, "ncols": 3} if many else {}))


def _points(tables: Sequence[ResultTable], metric: str) -> dict[str, list[Point]]:
    """What is plotted, for the hash of the figures."""
    return {
        table.entry.title: [
            Point(row.cell.row, row.mean(metric) or 0.0, row.spread(metric) or 0.0, False)
            for row in table.rows
        ]
        for table in tables
    }
