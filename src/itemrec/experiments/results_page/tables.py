"""The tables of a suite, from stored results: one line per row, with seeds, tests and remarks."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from itemrec.settings.resolve import changes
from itemrec.experiments.results_page.formatting import title
from itemrec.experiments.suites.overrides import Entry
from itemrec.experiments.suites.paired_tests import Ids, is_current
from itemrec.experiments.suites.store import Line as StoredLine
from itemrec.experiments.suites.store import Result, Store
from itemrec.experiments.suites.suite import Cell, Suite, load_suite

LEVEL = 0.05  # differences with a smaller p-value are marked


@dataclass(frozen=True)
class Line:
    """A row of a table: the results of all seeds, paired tests and remarks."""

    cell: Cell
    results: list[Result]
    p: dict[str, tuple[float, float]] = field(default_factory=dict)  # metric → p, difference
    notes: tuple[str, ...] = ()

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

    def part(self, name: str, metric: str) -> float:
        """What a part of the model reaches alone, mean over seeds, × 100."""
        return 100 * statistics.fmean(r["parts"][name][metric] for r in self.results)

    def better_part(self, metric: str) -> str:
        """The best of the parts; raises `LookupError` if the model has none."""
        names: list[str] = list(self.results[0]["parts"])
        return max(names, key=lambda name: self.part(name, metric))

    def mark(self, metric: str) -> str:
        """▲ or ▼ if the row differs significantly from the baseline."""
        p, difference = self.p.get(metric, (1.0, 0.0))
        return "" if p >= LEVEL else " ▲" if difference > 0 else " ▼"

    def epoch_seconds(self) -> float:
        """Seconds of training per epoch, mean over seeds."""
        return statistics.fmean(_epoch_seconds(result) for result in self.results)

    def best_seconds(self) -> float:
        """Seconds of training until the best epoch, mean over seeds."""
        return statistics.fmean(_epoch_seconds(r) * (r["best_epoch"] or 1) for r in self.results)


BOUND = "with an upper bound of the variance"  # `crossed_bound`


@dataclass(frozen=True)
class Table:
    """All rows of a suite on one data set."""

    entry: Entry
    lines: list[Line]
    notes: list[str]
    compared_over: str = "users and seeds"


def suite_of(results: Path, name: str) -> Suite:
    """The suite that results belong to: the copy next to them, or the shipped one of that name."""
    copy = results / f"{name}.toml"
    return load_suite(copy if copy.exists() else name)


def read_tables(suite: Suite, store: Store) -> list[Table]:
    """The results of a suite in the order of its file; data sets it does not list come last."""
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
    suite: Suite, entry: Entry, found: dict[str, list[Result]], tests: StoredLine
) -> Table:
    """The rows of one data set, with the paired tests if they compare the same results."""
    notes, lines, stale = [], [], []
    ids = {row: {int(r["seed"]): r["id"] for r in results} for row, results in found.items()}
    for cell in suite.cells([entry.key]):
        if results := sorted(found.get(cell.row, []), key=lambda result: int(result["seed"])):
            rows = tests.get("rows", {}).get(cell.row, {})
            if rows and not is_current(tests, cell.row, suite.baseline_of(cell.row), ids):
                stale.append(cell.row)
                rows = {}
            p = {m: (t["p_t"], t["difference"]) for m, t in rows.items() if isinstance(t, dict)}
            lines.append(Line(cell, results, p, tuple(_remarks(cell, results))))
    if stale:
        names = ", ".join(f"*{row}*" for row in stale)
        notes.append(f"No paired tests of {names}: the results are newer than the stored tests.")
    left_out = sorted(set(found) - set(suite.rows))
    if left_out:
        notes.append(f"Left out because the suite no longer has them: {', '.join(left_out)}.")
    return Table(entry, lines, notes, compared_over(suite, tests, ids))


def compared_over(suite: Suite, tests: StoredLine, ids: Ids) -> str:
    """Users and seeds; of some rows users alone, some seeds only, or a bound of the variance."""
    found = {
        row: (test.get("seeds", 1), test.get("bound", False))
        for row, tested in tests.get("rows", {}).items()
        for test in tested.values()
        if isinstance(test, dict)
    }
    if max((count for count, _ in found.values()), default=1) == 1:
        return "users"
    groups: dict[str, list[str]] = {}
    for row, (count, bound) in found.items():
        both = len(ids.get(row, {}).keys() & ids.get(suite.baseline_of(row), {}).keys())
        if count == 1:
            groups.setdefault("over users alone", []).append(f"*{row}*")
        elif count < both:
            groups.setdefault(f"over {count} of {both} seeds", []).append(f"*{row}*")
        elif bound:
            groups.setdefault(BOUND, []).append(f"*{row}*")
    if list(groups) == [BOUND] and len(groups[BOUND]) == len(found):
        return f"users and seeds, {BOUND}"
    names = [f"{what} for {', '.join(rows)}" for what, rows in groups.items()]
    return ", ".join(["users and seeds", *names])


def _remarks(cell: Cell, results: list[Result]) -> Iterable[str]:
    other = [key for r in results for key in changes(r["config"], cell.seeded(r["seed"]))]
    if other:
        yield f"run with another value of {', '.join(dict.fromkeys(other))}"
    for metric, (low, high) in cell.band.items():
        value = statistics.fmean(result["test"][metric] for result in results)
        if not low <= value <= high:
            span = f"{100 * low:.2f} to {100 * high:.2f}"
            yield f"{title(metric)} is outside the expected range {span}"
    if any(_hit_the_limit(result) for result in results):
        yield "stopped at the maximum number of epochs, not by patience; longer training may help"
    if early := sum(_first_look_won(result) for result in results):
        where = "" if len(results) == 1 else f" in {early} of {len(results)} runs"
        yield f"the first validation was the best{where}; a better epoch may lie before it"
    if len(results) < cell.seeds:
        yield f"{len(results)} of {cell.seeds} seeds so far"


def _hit_the_limit(result: Result) -> bool:
    chosen = result.get("chosen", {}).get("train", {})
    return bool({**result["config"]["train"], **chosen}["epochs"] <= result["epochs"])


def _first_look_won(result: Result) -> bool:
    """Whether the best epoch is the first one that was validated, of several."""
    train, best = result["config"]["train"], result["best_epoch"]
    first = 1 if train.get("eval_early") else train["eval_every"]
    return bool(0 < best <= first and best < result["epochs"])


def _epoch_seconds(result: Result) -> float:
    """Over all epochs, including the refit; a closed form counts as one epoch."""
    again = result["best_epoch"] if result["refit"] else 0
    return float(result["seconds"]["train"] / max(int(result["epochs"]) + int(again), 1))
