"""Tables of a suite's results: figures over seeds, p-values, and the figures stored before."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from itemfold.cli.tables.formats import Cell, Figure, ResultTable
from itemfold.evaluation.intervals import Interval
from itemfold.experiments.suites.overrides import Entry
from itemfold.experiments.suites.results import ResultRow, metric_title, read_tables
from itemfold.experiments.suites.results import ResultTable as StoredTable
from itemfold.experiments.suites.store import Result, Store
from itemfold.experiments.suites.suite import Suite

DEVIATIONS = 2  # standard deviations over seeds that a repeated figure may differ by
ROUNDING = 0.01  # the last digit shown, × 100: closed forms have no deviation over seeds
BeforeRuns = Mapping[tuple[str, str, int], Result]  # data set, row, seed → the run stored before


@dataclass(frozen=True)
class Repetition:
    """A figure of this call beside the one that was stored for the same seeds, both × 100."""

    stored: float
    now: float
    band: tuple[float, float] | None  # None: one stored seed, and no band in the suite

    @property
    def verdict(self) -> str:
        """Whether the figure is in its band; without one, the relative difference."""
        if self.band is None:
            return f"{self.now / self.stored - 1:+.1%}" if self.stored else ""
        return "inside" if self.band[0] <= self.now <= self.band[1] else "outside"


def runs_before(store: Store, suite: Suite) -> BeforeRuns:
    """The runs of a suite that are stored, to compare later ones with."""
    if suite.name not in store.files:
        return {}
    return {(r["data"], r["row"], int(r["seed"])): r for r in store.results(suite.name)}


def main_metric(suite: Suite) -> str:
    """The metric that is tested and compared: NDCG, or else the first column."""
    return next((m for m in suite.columns if m.startswith("ndcg")), suite.columns[0])


def suite_tables(
    suite: Suite, store: Store, chosen: Collection[Entry], before: BeforeRuns
) -> list[ResultTable]:
    """One table for each chosen data set, as on the page of results."""
    found = (table for table in read_tables(suite, store) if table.entry in chosen)
    return [_table(suite, table, before) for table in found]


def suite_panels(
    suite: Suite, store: Store, chosen: Collection[Entry]
) -> dict[str, dict[str, Interval]]:
    """The main metric of every row on each data set: mean and deviation over seeds, for a plot."""
    metric, panels = main_metric(suite), {}
    for table in read_tables(suite, store):
        if table.entry in chosen:
            rows = {}
            for row in table.rows:
                if (mean := row.mean(metric)) is not None:
                    spread = row.spread(metric) or 0.0
                    rows[row.cell.row] = Interval(mean, mean - spread, mean + spread)
            panels[f"{table.entry.title}, {metric_title(metric)} × 100"] = rows
    return panels


def _table(suite: Suite, table: StoredTable, before: BeforeRuns) -> ResultTable:
    metric = main_metric(suite)
    repeated = {row.cell.row: repetition(row, metric, before) for row in table.rows}
    has_repeated = any(repeated.values())
    has_tests = any(row.p for row in table.rows)
    rows = []
    for row in table.rows:
        cells: list[Cell] = [row.cell.row, *(_figure(row, name) for name in suite.columns)]
        if has_tests:
            cells.append(Figure.p(row.p[metric][0]) if metric in row.p else "")
        cells.append(len(row.results))
        if has_repeated:
            again = repeated[row.cell.row]
            cells += ["", ""] if again is None else [Figure.number(again.stored, ".2f")]
            cells += [] if again is None else [again.verdict]
        rows.append(tuple(cells))
    columns = ["row", *map(metric_title, suite.columns), *["p"] * has_tests, "seeds"]
    notes = ["× 100 on test data, mean ± standard deviation over seeds"]
    if has_tests:
        notes.append(
            f"▲ ▼: better or worse than the baseline ({suite.baseline}), p < .05; p: paired t-test "
            f"of {metric_title(metric)} against it, Holm correction"
        )
    if has_repeated:
        columns += ["stored", "band"]
        notes.append(
            f"stored: {metric_title(metric)} of the same seeds before this call; inside: the new "
            f"one is in the suite's band, or within {DEVIATIONS} standard deviations over seeds; "
            "with one stored seed and no band, the difference in per cent"
        )
    return ResultTable(tuple(columns), tuple(rows), title=table.entry.title, notes=tuple(notes))


def _figure(row: ResultRow, metric: str) -> Cell:
    mean = row.mean(metric)
    if mean is None:
        return "–"
    return Figure(row.text(metric), (("", mean), (" deviation", row.spread(metric))))


def repetition(row: ResultRow, metric: str, before: BeforeRuns) -> Repetition | None:
    """The figure of a row beside the stored one of the same seeds; None if no run is new."""
    data, name = row.cell.entry.key, row.cell.row
    own = {int(r["seed"]): r for r in row.results if metric in r["test"]}
    known = {
        s: r for (d, n, s), r in before.items() if (d, n) == (data, name) and metric in r["test"]
    }
    shared = sorted(own.keys() & known.keys())
    if not shared or all(own[seed] == known[seed] for seed in shared):
        return None
    now, stored = (
        statistics.fmean(100 * runs[seed]["test"][metric] for seed in shared)
        for runs in (own, known)
    )
    if metric in row.cell.band:
        low, high = row.cell.band[metric]
        return Repetition(stored, now, (100 * low, 100 * high))
    if len(known) < 2:
        return Repetition(stored, now, None)
    spread = DEVIATIONS * statistics.stdev(100 * run["test"][metric] for run in known.values())
    spread = max(spread, ROUNDING)
    return Repetition(stored, now, (stored - spread, stored + spread))
