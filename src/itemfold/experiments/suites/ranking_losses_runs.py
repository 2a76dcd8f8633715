"""Run the study of ranking losses, one data set after the other, and compare the losses."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from rich.console import Console

from itemfold.evaluation.rank_tests import rank_test
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
from itemfold.experiments.suites.store import read_store, write_json
from itemfold.experiments.suites.suite import load_suite

RANKS = f"{STUDY}-ranks.json"
CURVES = {  # suites of curves: what their numbers are, and their titles
    TRIALS_OF: ("trial", "Ranking losses: every trial"),
    TAU_OF: ("% of the best temperature", "Ranking losses: sensitivity to the temperature"),
    NOISE_OF: ("% false negatives", "Ranking losses: robustness to false negatives"),
}


def run_study(study: Study, options: Options, console: Console) -> dict[str, Any]:
    """Run what is not done yet, data set by data set, and compare the losses over those done.

    Returns the content of ``ranking-losses-ranks.json``; empty if no data set is done.
    """
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
    return compare(study, options, console)


def compare(study: Study, options: Options, console: Console) -> dict[str, Any]:
    """Mean ranks over the data sets on which every loss has all seeds, printed and written."""
    path = options.home / f"{STUDY}.toml"
    if not path.exists():
        return {}
    names, suite = [name for name, _, _ in study.rows()], load_suite(path)
    figures: dict[tuple[str, str], list[float]] = {}
    store = read_store(options.home)
    for result in store.results(STUDY) if STUDY in store.files else ():
        figures.setdefault((result["data"], result["row"]), []).append(result["test"][METRIC])
    complete = {
        (cell.entry.key, cell.row)
        for cell in suite.cells()
        if len(figures.get((cell.entry.key, cell.row), ())) >= (options.seeds or cell.seeds)
    }
    data = [Entry.parse(each).key for each in study.data]
    data = [key for key in data if all((key, row) in complete for row in names)]
    if not data:
        return {}
    table = np.array([[np.mean(figures[key, row]) for row in names] for key in data])
    content = ranks_of(names, data, table)
    write_json(options.home / RANKS, content)
    _show(content, console)
    return content


def ranks_of(names: Sequence[str], data: Sequence[str], table: Any) -> dict[str, Any]:
    """Mean ranks, best first, with Friedman's test if there are several data sets."""
    ranks, tested = (-table).argsort(1).argsort(1).mean(0) + 1.0, {}
    if len(data) > 1:
        found = rank_test(table)
        ranks = found.ranks
        tested = {
            "statistic": found.statistic,
            "p": found.p,
            "critical_difference": found.critical_difference,
        }
    order = np.argsort(ranks, kind="stable")
    return {
        "metric": METRIC,
        "data": list(data),
        **tested,
        "ranks": {names[n]: float(ranks[n]) for n in order},
        "values": {names[n]: dict(zip(data, table[:, n].tolist(), strict=True)) for n in order},
    }


def _show(content: dict[str, Any], console: Console) -> None:
    if "p" in content:
        console.print(
            f"Friedman χ² = {content['statistic']:.2f}, p = {content['p']:.3g}; mean ranks further "
            f"apart than {content['critical_difference']:.2f} differ",
            highlight=False,
        )
    for name, rank in content["ranks"].items():
        console.print(f"{rank:6.2f}  {name}", highlight=False, markup=False)
