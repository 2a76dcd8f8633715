"""The table of a suite on a terminal, from stored results."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from itemrec.cli.tables.layout import add_row, new_table
from itemrec.experiments.results_page.formatting import heading, title
from itemrec.experiments.results_page.suite_page import figure
from itemrec.experiments.results_page.tables import Table
from itemrec.experiments.suites.suite import Suite


def suite_table(suite: Suite, table: Table) -> RenderableType:
    """The rows of a suite on one data set, as on its page of results."""
    numbers = (*map(title, suite.columns), "seeds")
    shown = new_table("row", *numbers, numbers=numbers)
    for line in table.lines:
        figures = (figure(line, metric) for metric in suite.columns)
        add_row(shown, line.cell.row, *figures, str(len(line.results)))
    notes = ["× 100 on test data, mean ± standard deviation over seeds"]
    if any(line.mark(metric) for line in table.lines for metric in suite.columns):
        notes.append("▲ ▼: better or worse than the baseline, p < .05")
    return Group(Text(heading(table.entry), style="bold"), shown, Text("; ".join(notes), "dim"))
