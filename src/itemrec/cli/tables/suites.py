"""The table of a suite on a terminal, from stored results."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from itemrec.cli.tables.layout import add_row, new_table
from itemrec.experiments.suites.results import ResultTable, metric_title
from itemrec.experiments.suites.suite import Suite


def suite_table(suite: Suite, table: ResultTable) -> RenderableType:
    """The rows of a suite on one data set, as on its page of results."""
    numbers = (*map(metric_title, suite.columns), "seeds")
    shown = new_table("row", *numbers, numbers=numbers)
    for row in table.rows:
        figures = (row.text(metric) for metric in suite.columns)
        add_row(shown, row.cell.row, *figures, str(len(row.results)))
    notes = ["× 100 on test data, mean ± standard deviation over seeds"]
    if any(row.mark(metric) for row in table.rows for metric in suite.columns):
        notes.append("▲ ▼: better or worse than the baseline, p < .05")
    return Group(Text(table.entry.title, style="bold"), shown, Text("; ".join(notes), "dim"))
