"""The page of a suite: what it compares, a plot, an overview, and one table per data set."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable

from itemfold.experiments.suites.results import LEVEL, ResultRow, ResultTable, metric_title
from itemfold.experiments.suites.store import ENDING, Result
from itemfold.experiments.suites.suite import Suite
from results_page.curves import curve_notes, curve_plot, curve_table
from results_page.formatting import BACK, GENERATED, grid, probability
from results_page.plot import Point, panels
from results_page.remarks import best_seconds, compared_over, epoch_seconds, table_remarks

Column = tuple[str, Callable[[ResultRow], str]]  # its heading, and its cell for a row


def suite_page(suite: Suite, tables: list[ResultTable], home: str) -> str:
    """The whole page as Markdown."""
    name = suite.name if suite.shipped else f"{home}/{suite.name}.toml"
    parts = [f"# {suite.title}", BACK, suite.description]
    parts.append(
        f"Reproduce it: `itemfold reproduce {name}`. Every run: "
        f"[{suite.name}{ENDING}]({suite.name}{ENDING})."
    )
    parts.append(f"![{suite.title}](plots/{suite.name}.svg)")
    if suite.curve:
        for table in tables:
            parts += [curve_table(suite, table), curve_notes(suite, table)]
    else:
        parts.append(f"Dashed: *{suite.baseline}*; filled: significantly different; ×: published.")
    if len(tables) > 1:
        parts += [f"**{metric_title(suite.columns[-1])} × 100**", _overview(suite, tables)]
    parts += [table_details(suite, table, name) for table in tables]
    if suite.notes:
        remarks = [f"- *{row}*: {note}" for row, note in suite.notes.items()]
        parts += ["## Settings of the rows", "\n".join(remarks)]
    return "\n\n".join(part for part in (*parts, GENERATED) if part) + "\n"


def _overview(suite: Suite, tables: list[ResultTable]) -> str:
    """Rows by data sets, on the metric that is plotted."""
    metric = suite.columns[-1]
    rows = {(table.entry, row.cell.row): row for table in tables for row in table.rows}
    body = []
    for name in suite.rows:
        own = [rows.get((table.entry, name)) for table in tables]
        if any(own):
            body.append([name, *("–" if row is None else row.text(metric) for row in own)])
    return grid(["", *(table.entry.title for table in tables)], body)


def table_details(suite: Suite, table: ResultTable, name: str) -> str:
    """One data set: all metrics, published figures, p-values, seconds, and the hardware."""
    columns = list(_columns(suite, table))
    body = [[cell(row) for _, cell in columns] for row in table.rows]
    parts = [f"## {table.entry.title}", grid([head for head, _ in columns], body)]
    parts.append(" ".join(_legend(suite, table, name)))
    parts.append("\n".join(table_remarks(table)))
    return "\n\n".join(part for part in parts if part)


def suite_plot(suite: Suite, tables: list[ResultTable]) -> str:
    """An SVG of the rows of each data set, on the metrics that the suite plots."""
    if suite.curve:
        return curve_plot(suite, tables)
    data: dict[str, list[Point]] = {}
    several = len(suite.plotted) > 1
    for table, metric in ((table, metric) for table in tables for metric in suite.plotted):
        what = f": {metric_title(metric)}" if several else ""
        points = data.setdefault(table.entry.title + what, [])
        for row in table.rows:
            mean, paper = row.mean(metric), row.cell.paper.get(metric)
            if mean is not None:
                shown = None if paper is None else 100 * paper
                marked = bool(row.mark(metric))
                points.append(Point(row.cell.row, mean, row.spread(metric) or 0.0, marked, shown))
    label = "value" if several else metric_title(suite.plotted[0])
    return panels(suite.title, label, data, suite.baseline)


# --- columns -------------------------------------------------------------------------------------


def _columns(suite: Suite, table: ResultTable) -> Iterable[Column]:
    yield "", lambda row: row.cell.row
    for metric in suite.columns:
        yield _metric_column(metric, table)
    if _published(table):
        yield "published", lambda row: _published_figures(suite, row)
    last = suite.columns[-1]
    if _tested(table):
        yield (
            f"p ({metric_title(last)})",
            lambda row: probability(row.p[last][0]) if last in row.p else "",
        )
    if suite.cost:
        yield "s per epoch", lambda row: f"{epoch_seconds(row):.2f}"
        yield "s to the best epoch", lambda row: f"{best_seconds(row):.1f}"
    yield "epoch", lambda row: f"{statistics.fmean(r['best_epoch'] for r in row.results):.0f}"
    yield (
        "seconds",
        lambda row: f"{statistics.fmean(r['seconds']['train'] for r in row.results):.1f}",
    )
    yield "seeds", lambda row: str(len(row.results))
    if _tuned(table):
        yield "tuned trials", lambda row: "" if row.cell.tuned is None else str(row.cell.tuned)


def _metric_column(metric: str, table: ResultTable) -> Column:
    best = max((row.mean(metric) or 0.0 for row in table.rows), default=0.0)

    def cell(row: ResultRow) -> str:
        text = row.text(metric)
        return f"**{text}**" if row.mean(metric) == best else text

    return metric_title(metric), cell


def _published_figures(suite: Suite, row: ResultRow) -> str:
    if not row.cell.paper:
        return ""
    figures = [row.cell.paper.get(metric) for metric in suite.columns]
    return " / ".join("–" if f is None else f"{100 * f:.2f}" for f in figures)


def _published(table: ResultTable) -> bool:
    return any(row.cell.paper for row in table.rows)


def _tested(table: ResultTable) -> bool:
    return any(row.p for row in table.rows)


def _tuned(table: ResultTable) -> bool:
    return any(row.cell.tuned is not None for row in table.rows)


# --- legend --------------------------------------------------------------------------------------


def _legend(suite: Suite, table: ResultTable, name: str) -> Iterable[str]:
    results = [result for row in table.rows for result in row.results]
    yield "× 100, mean ± standard deviation over seeds; seconds of training."
    if _tested(table):
        over = compared_over(suite, table.tests, table.run_ids)
        yield (
            f"▲ ▼: above, below {_baselines(suite, table)}, p < {LEVEL:g} (paired t-test over "
            f"{over}, Holm's correction over the rows and metrics of the data set)."
        )
    if _published(table):
        names = " / ".join(metric_title(m) for m in suite.columns)
        sources = dict.fromkeys(row.cell.source for row in table.rows if row.cell.paper)
        yield f"Published: {names}" + "".join(f"; {source}" for source in sources if source) + "."
    if _tuned(table):
        yield "Tuned trials: settings tried on this data before the row's; empty: not recorded."
    last = table.rows[-1].cell.row
    yield f"One row: `itemfold reproduce {name} --datasets {table.entry.key} --rows {last}`."
    present = {row.cell.row for row in table.rows}
    absent = [c.row for c in suite.cells() if c.entry == table.entry and c.row not in present]
    if absent:
        command = f"itemfold reproduce {name} --datasets {table.entry.key}"
        yield f"Not run yet: `{command} --rows {','.join(absent)}`."
    data, machines = (dict.fromkeys(map(text, results)) for text in (_fingerprint, _machine))
    yield f"{'; '.join(data)}; {'; '.join(machines)}."


def _baselines(suite: Suite, table: ResultTable) -> str:
    pairs = {row.cell.row: suite.baseline_of(row.cell.row) for row in table.rows if row.p}
    if set(pairs.values()) <= {suite.baseline}:
        return f"*{suite.baseline}*"
    return ", ".join(f"*{base}* (*{row}*)" for row, base in pairs.items())


def _fingerprint(result: Result) -> str:
    data = result["dataset"]
    counts = f"{data['users']:,} users, {data['items']:,} items, {data['interactions']:,}"
    return f"Data: {counts} interactions, fingerprint `{data['fingerprint']}`"


def _machine(result: Result) -> str:
    found = result["hardware"]
    cpu = f"{found['cpu']}, {found['cores']} cores"
    where = cpu if found["device"] == "CPU" else f"{found['device']} ({cpu})"
    parallel = f", {found['jobs']} runs in parallel" if found["jobs"] > 1 else ""
    return f"{where}, torch {found['torch']}{parallel}"
