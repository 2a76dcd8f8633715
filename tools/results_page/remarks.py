"""Remarks below a table of results, and figures of rows that only the pages show."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator

from itemfold.experiments.suites.paired_tests import RunIds
from itemfold.experiments.suites.results import ResultRow, ResultTable, metric_title
from itemfold.experiments.suites.store import Line, Result
from itemfold.experiments.suites.suite import Suite
from itemfold.settings.changes import changes

BOUND = "with an upper bound of the variance"  # `crossed_bound`


def table_remarks(table: ResultTable) -> Iterator[str]:
    """Remarks on a table as a list, each once with the rows that it is about."""
    if table.outdated:
        names = ", ".join(f"*{row}*" for row in table.outdated)
        yield f"- No paired tests of {names}: the results are newer than the stored tests."
    if table.removed:
        yield f"- Left out because the suite no longer has them: {', '.join(table.removed)}."
    rows: dict[str, list[str]] = {}
    for row in table.rows:
        for remark in row_remarks(row):
            rows.setdefault(remark, []).append(f"*{row.cell.row}*")
    yield from (f"- {', '.join(names)}: {remark}." for remark, names in rows.items())


def row_remarks(row: ResultRow) -> Iterable[str]:
    """What a reader must know about the figures of a row."""
    cell, results = row.cell, row.results
    other = [key for r in results for key in changes(r["config"], cell.seeded(r["seed"]))]
    if other:
        yield f"run with another value of {', '.join(dict.fromkeys(other))}"
    for metric, (low, high) in cell.band.items():
        value = statistics.fmean(result["test"][metric] for result in results)
        if not low <= value <= high:
            span = f"{100 * low:.2f} to {100 * high:.2f}"
            yield f"{metric_title(metric)} is outside the expected range {span}"
    if any(_reached_epoch_limit(result) for result in results):
        yield "stopped at the maximum number of epochs, not by patience; longer training may help"
    if early := sum(_first_validation_best(result) for result in results):
        where = "" if len(results) == 1 else f" in {early} of {len(results)} runs"
        yield f"the first validation was the best{where}; a better epoch may lie before it"
    if len(results) < cell.seeds:
        yield f"{len(results)} of {cell.seeds} seeds so far"


def _reached_epoch_limit(result: Result) -> bool:
    chosen = result.get("chosen", {}).get("train", {})
    return bool({**result["config"]["train"], **chosen}["epochs"] <= result["epochs"])


def _first_validation_best(result: Result) -> bool:
    """Whether the best epoch is the first one that was validated, of several."""
    train, best = result["config"]["train"], result["best_epoch"]
    first = 1 if train.get("eval_early") else train["eval_every"]
    return bool(0 < best <= first and best < result["epochs"])


def compared_over(suite: Suite, tests: Line, ids: RunIds) -> str:
    """What the paired tests are over: "users and seeds", with the rows that are exceptions."""
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


def epoch_seconds(row: ResultRow) -> float:
    """Seconds of training per epoch, mean over seeds."""
    return statistics.fmean(_epoch_seconds(result) for result in row.results)


def best_seconds(row: ResultRow) -> float:
    """Seconds of training until the best epoch, mean over seeds."""
    return statistics.fmean(_epoch_seconds(r) * (r["best_epoch"] or 1) for r in row.results)


def _epoch_seconds(result: Result) -> float:
    """Over all epochs, including the refit; a closed form counts as one epoch."""
    again = result["best_epoch"] if result["refit"] else 0
    return float(result["seconds"]["train"] / max(int(result["epochs"]) + int(again), 1))
