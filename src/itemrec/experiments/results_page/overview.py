"""The picture of RESULTS.md and README.md: the main systems on all splits, one panel per split."""

from __future__ import annotations

from collections.abc import Mapping

from itemrec.experiments.results_page.formatting import heading, title
from itemrec.experiments.results_page.plot import Point, panels
from itemrec.experiments.results_page.tables import Table
from itemrec.experiments.suites.suite import Suite

SUITES = ("inductive", "transductive")
SYSTEMS = {"lightgcn": "BPR", "item": "ITEM", "item-log": "item-log", "ease": "EASE"}
METRIC = "ndcg@20"


def overview(suites: Mapping[str, tuple[Suite, list[Table]]]) -> str:
    """An SVG; nothing where the main suites have no results."""
    data: dict[str, list[Point]] = {}
    for table in (table for name in SUITES if name in suites for table in suites[name][1]):
        lines = {line.cell.row: line for line in table.lines}
        for row, name in SYSTEMS.items():
            if row in lines and (mean := lines[row].mean(METRIC)) is not None:
                spread = lines[row].spread(METRIC) or 0.0
                point = Point(name, mean, spread, marked=True)
                data.setdefault(heading(table.entry), []).append(point)
    return panels("The main systems on all splits", title(METRIC), data, "BPR") if data else ""
