"""The page of a suite: what it compares, a plot, an overview, and one table per data set."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable

from itemrec.experiments.results_page.curves import curve_notes, curve_plot, curve_table
from itemrec.experiments.results_page.formatting import (
    GENERATED,
    distinct,
    grid,
    heading,
    probability,
    title,
)
from itemrec.experiments.results_page.plot import Point, panels
from itemrec.experiments.results_page.tables import LEVEL, Line, Table
from itemrec.experiments.suites.store import ENDING, Result
from itemrec.experiments.suites.suite import Suite

Column = tuple[str, Callable[[Line], str]]  # its heading, and its cell for a line


def page(suite: Suite, tables: list[Table], home: str) -> str:
    """The whole page as Markdown."""
    name = suite.name if suite.shipped else f"{home}/{suite.name}.toml"
    parts = [f"# {suite.title}", "[All results](../RESULTS.md)", suite.description]
    parts.append(
        f"Reproduce it: `itemrec reproduce {name}`. Every run: "
        f"[{suite.name}{ENDING}]({suite.name}{ENDING})."
    )
    parts.append(f"![{suite.title}](plots/{suite.name}.svg)")
    if suite.curve:
        for table in tables:
            parts += [curve_table(suite, table, figure), curve_notes(suite, table)]
    else:
        parts.append(f"Dashed: *{suite.baseline}*; filled: significantly different; ×: published.")
    if len(tables) > 1:
        parts += [f"**{title(suite.columns[-1])} × 100**", overview(suite, tables)]
    parts += [details(suite, table, name) for table in tables]
    if suite.notes:
        remarks = [f"- *{row}*: {note}" for row, note in suite.notes.items()]
        parts += ["## Settings of the rows", "\n".join(remarks)]
    return "\n\n".join(part for part in (*parts, GENERATED) if part) + "\n"


def overview(suite: Suite, tables: list[Table]) -> str:
    """Rows by data sets, on the metric that is plotted."""
    metric = suite.columns[-1]
    lines = {(table.entry, line.cell.row): line for table in tables for line in table.lines}
    body = []
    for row in suite.rows:
        own = [lines.get((table.entry, row)) for table in tables]
        if any(own):
            body.append([row, *("–" if line is None else figure(line, metric) for line in own)])
    return grid(["", *(heading(table.entry) for table in tables)], body)


def details(suite: Suite, table: Table, name: str) -> str:
    """One data set: all metrics, published figures, p-values, seconds, and the hardware."""
    columns = list(_columns(suite, table))
    body = [[cell(line) for _, cell in columns] for line in table.lines]
    parts = [f"## {heading(table.entry)}", grid([head for head, _ in columns], body)]
    parts.append(" ".join(_legend(suite, table, name)))
    remarks: dict[str, list[str]] = {}
    for line in table.lines:
        for note in line.notes:
            remarks.setdefault(note, []).append(f"*{line.cell.row}*")
    notes = [f"- {note}" for note in table.notes]
    notes += [f"- {', '.join(rows)}: {note}." for note, rows in remarks.items()]
    return "\n\n".join(part for part in (*parts, "\n".join(notes)) if part)


def plot(suite: Suite, tables: list[Table]) -> str:
    """The rows of each data set on the metrics that the suite plots."""
    if suite.curve:
        return curve_plot(suite, tables)
    data: dict[str, list[Point]] = {}
    several = len(suite.plotted) > 1
    for table, metric in ((table, metric) for table in tables for metric in suite.plotted):
        what = f": {title(metric)}" if several else ""
        rows = data.setdefault(heading(table.entry) + what, [])
        for line in table.lines:
            mean, paper = line.mean(metric), line.cell.paper.get(metric)
            if mean is not None:
                shown = None if paper is None else 100 * paper
                marked = bool(line.mark(metric))
                rows.append(Point(line.cell.row, mean, line.spread(metric) or 0.0, marked, shown))
    label = "value" if several else title(suite.plotted[0])
    return panels(suite.title, label, data, suite.baseline)


def figure(line: Line, metric: str) -> str:
    """Mean ± standard deviation, and the mark of a significant difference."""
    mean, spread = line.mean(metric), line.spread(metric)
    if mean is None:
        return "–"
    return f"{mean:.2f}" + ("" if spread is None else f" ± {spread:.2f}") + line.mark(metric)


# --- columns -------------------------------------------------------------------------------------


def _columns(suite: Suite, table: Table) -> Iterable[Column]:
    yield "", lambda line: line.cell.row
    for metric in suite.columns:
        yield _metric_column(metric, table)
    if _published(table):
        yield "published", lambda line: _published_figures(suite, line)
    last = suite.columns[-1]
    if _tested(table):
        yield (
            f"p ({title(last)})",
            lambda line: probability(line.p[last][0]) if last in line.p else "",
        )
    if suite.cost:
        yield "s per epoch", lambda line: f"{line.epoch_seconds():.2f}"
        yield "s to the best epoch", lambda line: f"{line.best_seconds():.1f}"
    yield "epoch", lambda line: f"{statistics.fmean(r['best_epoch'] for r in line.results):.0f}"
    yield (
        "seconds",
        lambda line: f"{statistics.fmean(r['seconds']['train'] for r in line.results):.1f}",
    )
    yield "seeds", lambda line: str(len(line.results))
    if any(line.cell.tuned is not None for line in table.lines):
        yield "tuned trials", lambda line: "" if line.cell.tuned is None else str(line.cell.tuned)


def _metric_column(metric: str, table: Table) -> Column:
    best = max((line.mean(metric) or 0.0 for line in table.lines), default=0.0)

    def cell(line: Line) -> str:
        text = figure(line, metric)
        return f"**{text}**" if line.mean(metric) == best else text

    return title(metric), cell


def _published_figures(suite: Suite, line: Line) -> str:
    if not line.cell.paper:
        return ""
    figures = [line.cell.paper.get(metric) for metric in suite.columns]
    return " / ".join("–" if f is None else f"{100 * f:.2f}" for f in figures)


def _published(table: Table) -> bool:
    return any(line.cell.paper for line in table.lines)


def _tested(table: Table) -> bool:
    return any(line.p for line in table.lines)


# --- legend --------------------------------------------------------------------------------------


def _legend(suite: Suite, table: Table, name: str) -> Iterable[str]:
    results = [result for line in table.lines for result in line.results]
    yield "× 100, mean ± standard deviation over seeds; seconds of training."
    if _tested(table):
        yield (
            f"▲ ▼: above, below {_baselines(suite, table)}, p < {LEVEL:g} (paired t-test over "
            f"{table.compared_over}, Holm's correction over the rows and metrics of the data set)."
        )
    if _published(table):
        names = " / ".join(title(m) for m in suite.columns)
        sources = dict.fromkeys(line.cell.source for line in table.lines if line.cell.paper)
        yield f"Published: {names}" + "".join(f"; {source}" for source in sources if source) + "."
    if any(line.cell.tuned is not None for line in table.lines):
        yield "Tuned trials: settings tried on this data before the row's; empty: not recorded."
    row = table.lines[-1].cell.row
    yield f"One row: `itemrec reproduce {name} --datasets {table.entry.key} --rows {row}`."
    yield f"{distinct(map(_fingerprint, results))}; {distinct(map(_machine, results))}."


def _baselines(suite: Suite, table: Table) -> str:
    """The baseline of the rows of a table, as text."""
    rows = [line.cell.row for line in table.lines if line.p]
    pairs = {row: suite.baseline_of(row) for row in rows}
    if set(pairs.values()) <= {suite.baseline}:
        return f"*{suite.baseline}*"
    return ", ".join(f"*{base}* (*{row}*)" for row, base in pairs.items())


def _fingerprint(result: Result) -> str:
    """The data of a result, as text."""
    data = result["dataset"]
    counts = f"{data['users']:,} users, {data['items']:,} items, {data['interactions']:,}"
    return f"Data: {counts} interactions, fingerprint `{data['fingerprint']}`"


def _machine(result: Result) -> str:
    """The hardware of a result, as text."""
    found = result["hardware"]
    cpu = f"{found['cpu']}, {found['cores']} cores"
    where = cpu if found["device"] == "CPU" else f"{found['device']} ({cpu})"
    parallel = f", {found['jobs']} runs in parallel" if found["jobs"] > 1 else ""
    return f"{where}, torch {found['torch']}{parallel}"
