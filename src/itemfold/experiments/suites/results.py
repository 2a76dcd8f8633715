"""The results of a suite as tables: figures over seeds and paired tests for each row."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from itemfold.experiments.suites.overrides import Entry
from itemfold.experiments.suites.paired_tests import RunIds, is_current
from itemfold.experiments.suites.store import Line, Result, Store
from itemfold.experiments.suites.suite import Cell, Suite

LEVEL = 0.05  # differences with a smaller p-value are marked
TITLES = {"capped_recall": "capped recall", "recall": "recall", "ndcg": "NDCG", "ap": "AP"}


@dataclass(frozen=True)
class ResultRow:
    """A row on one data set: the results of all its seeds, and its paired tests."""

    cell: Cell
    results: list[Result]  # by seed
    p: dict[str, tuple[float, float]] = field(default_factory=dict)  # metric → p, difference

    def values(self, metric: str) -> list[float]:
        """The metric × 100 for each seed; ``ndcg@20#0`` is that of seed 0 alone."""
        name, _, seed = metric.partition("#")
        chosen = [r for r in self.results if seed in ("", str(r["seed"])) and name in r["test"]]
        return [100 * r["test"][name] for r in chosen]

    def mean(self, metric: str) -> float | None:
        """Mean over seeds, × 100."""
        values = self.values(metric)
        return statistics.fmean(values) if values else None

    def spread(self, metric: str) -> float | None:
        """Standard deviation over seeds, × 100."""
        values = self.values(metric)
        return statistics.stdev(values) if len(values) > 1 else None

    def mark(self, metric: str) -> str:
        """▲ or ▼ if the row differs significantly from its baseline."""
        p, difference = self.p.get(metric, (1.0, 0.0))
        return "" if p >= LEVEL else " ▲" if difference > 0 else " ▼"

    def text(self, metric: str) -> str:
        """Mean ± standard deviation, and the mark of a significant difference."""
        mean, spread = self.mean(metric), self.spread(metric)
        if mean is None:
            return "–"
        return f"{mean:.2f}" + ("" if spread is None else f" ± {spread:.2f}") + self.mark(metric)


@dataclass(frozen=True)
class ResultTable:
    """The rows of a suite that have results on one data set."""

    entry: Entry
    rows: list[ResultRow]
    tests: Line  # the stored paired tests
    outdated: list[str]  # rows whose results are newer than the stored tests
    removed: list[str]  # rows with results that the suite no longer has

    @property
    def run_ids(self) -> RunIds:
        """The runs behind each row."""
        return {row.cell.row: _ids(row.results) for row in self.rows}


def read_tables(suite: Suite, store: Store) -> list[ResultTable]:
    """One table per data set in the order of the suite; data sets it does not list come last."""
    found: dict[Entry, dict[str, list[Result]]] = {}
    for result in store.results(suite.name):
        entry = Entry.parse(result["data"])
        found.setdefault(entry, {}).setdefault(result["row"], []).append(result)
    listed = dict.fromkeys(cell.entry for cell in suite.cells())
    order = [entry for entry in listed if entry in found]
    order += [entry for entry in found if entry not in listed]
    return [
        _read_table(suite, entry, found[entry], store.tests(suite.name, entry.key))
        for entry in order
    ]


def _read_table(
    suite: Suite, entry: Entry, found: dict[str, list[Result]], tests: Line
) -> ResultTable:
    """The rows of one data set, with the paired tests that compare the same results."""
    rows, outdated = [], []
    ids = {row: _ids(results) for row, results in found.items()}
    for cell in suite.cells([entry.key]):
        if results := sorted(found.get(cell.row, []), key=lambda result: int(result["seed"])):
            tested = tests.get("rows", {}).get(cell.row, {})
            if tested and not is_current(tests, cell.row, suite.baseline_of(cell.row), ids):
                outdated.append(cell.row)
                tested = {}
            p = {m: (t["p_t"], t["difference"]) for m, t in tested.items() if isinstance(t, dict)}
            rows.append(ResultRow(cell, results, p))
    return ResultTable(entry, rows, tests, outdated, sorted(set(found) - set(suite.rows)))


def _ids(results: list[Result]) -> dict[int, str]:
    return {int(result["seed"]): result["id"] for result in results}


def metric_title(metric: str) -> str:
    """A metric as the heading of a column.

    >>> metric_title("capped_recall@20"), metric_title("ndcg@20")
    ('capped recall@20', 'NDCG@20')
    """
    name, at, k = metric.partition("@")
    return TITLES.get(name, name) + at + k
