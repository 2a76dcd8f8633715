"""Run the study of ranking losses, one data set after the other, and compare the losses."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from rich.console import Console

from itemfold.evaluation.rank_tests import RankTest, rank_test
from itemfold.experiments.suites.options import Options
from itemfold.experiments.suites.overrides import Entry
from itemfold.experiments.suites.ranking_losses import (
    METRIC,
    NOISE_OF,
    STUDY,
    TAU_OF,
    TRIALS_OF,
    Row,
    Study,
    chosen_rows,
    noise_rows,
    tau_rows,
    trial_rows,
    write_suite,
)
from itemfold.experiments.suites.reproduce import run_suite
from itemfold.experiments.suites.results import ResultTable, read_tables
from itemfold.experiments.suites.store import read_store
from itemfold.experiments.suites.suite import load_suite

CURVES = {  # suites of curves: what their numbers are, and their titles
    TRIALS_OF: ("trial", "Ranking losses: every trial"),
    TAU_OF: ("% of the best temperature", "Ranking losses: sensitivity to the temperature"),
    NOISE_OF: ("% false negatives", "Ranking losses: robustness to false negatives"),
}


@dataclass(frozen=True)
class MeanRanks:
    """Mean ranks of losses over the data sets that have all of them, best first."""

    data: tuple[str, ...]
    ranks: dict[str, float]
    test: RankTest | None  # None for a single data set


def run_study(study: Study, options: Options, console: Console) -> MeanRanks | None:
    """Run what is not done yet, data set by data set, and compare the losses over those done."""
    started, done = time.monotonic(), []

    def run(name: str, rows: Sequence[Row], of: Study, data: str, **table: Any) -> bool:
        """Run a suite on a data set; whether it is complete."""
        if name in CURVES:
            table |= dict(zip(("curve", "title"), CURVES[name], strict=True))
        suite = load_suite(write_suite(options.home, name, of, rows, **table))
        left = options.time_limit
        if left is not None:
            left = max(left - (time.monotonic() - started), 0.0)
        entry = Entry.parse(data).key
        own = replace(options, datasets=[entry], time_limit=left)
        outcome = run_suite(suite, own, console)
        console.print(f"{name}, {entry}: {outcome}", highlight=False, markup=False)
        return not outcome.left and not outcome.absent

    for data in study.data:
        if not run(TRIALS_OF, trial_rows(study), study, data, seeds=1):
            continue
        done.append(data)
        finished = replace(study, data=tuple(done))
        rows = chosen_rows(finished, read_store(options.home).results(TRIALS_OF))
        run(STUDY, rows, finished, data, cost=True)
        run(TAU_OF, tau_rows(study, rows), finished, data)
        run(NOISE_OF, noise_rows(study, rows), finished, data)
    if STUDY not in read_store(options.home).files:
        return None
    suite = load_suite(options.home / f"{STUDY}.toml")
    found = mean_ranks(read_tables(suite, read_store(options.home)))
    if found is not None:
        _show(found, console)
    return found


def on_shared_seeds(table: ResultTable) -> ResultTable:
    """A table with the seeds that all rows have: another seed is another split."""
    seeds = [{result["seed"] for result in row.results} for row in table.rows]
    shared = set.intersection(*seeds) if seeds else set()
    rows = [
        replace(row, results=[r for r in row.results if r["seed"] in shared]) for row in table.rows
    ]
    return replace(table, rows=rows)


def mean_ranks(tables: Sequence[ResultTable]) -> MeanRanks | None:
    """Rank the rows of the data sets that have them all; None without such a data set."""
    tables = [table for table in map(on_shared_seeds, tables) if all(r.results for r in table.rows)]
    values = {t.entry.key: {row.cell.row: row.mean(METRIC) for row in t.rows} for t in tables}
    names = list(dict.fromkeys(name for found in values.values() for name in found))
    whole = {data: found for data, found in values.items() if set(found) == set(names)}
    if not whole or not names:
        return None
    table = np.array([[found[name] for name in names] for found in whole.values()])
    test = rank_test(table) if len(whole) > 1 and len(names) > 2 else None
    ranks = (-table).argsort(1).argsort(1).mean(0) + 1 if test is None else test.ranks
    order = np.argsort(ranks, kind="stable")
    return MeanRanks(tuple(whole), {names[n]: float(ranks[n]) for n in order}, test)


def _show(found: MeanRanks, console: Console) -> None:
    console.print(f"mean ranks over {', '.join(found.data)}", highlight=False, markup=False)
    if found.test is not None:
        console.print(
            f"Friedman χ² = {found.test.statistic:.2f}, p = {found.test.p:.3g}; mean ranks further "
            f"apart than {found.test.critical_difference:.2f} differ",
            highlight=False,
        )
    for name, rank in found.ranks.items():
        console.print(f"{rank:6.2f}  {name}", highlight=False, markup=False)
