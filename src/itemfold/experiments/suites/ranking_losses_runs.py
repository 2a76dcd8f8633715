"""Run the study of ranking losses, one data set after the other, and compare the losses."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from itemfold.errors import ItemfoldError
from itemfold.evaluation.rank_tests import RankTest, rank_test
from itemfold.experiments.suites.options import Options
from itemfold.experiments.suites.overrides import Entry
from itemfold.experiments.suites.pool import Pool
from itemfold.experiments.suites.ranking_losses import (
    FIRST_MODEL,
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
from itemfold.experiments.suites.reproduce import make_runs, store_tests
from itemfold.experiments.suites.results import ResultTable, read_tables
from itemfold.experiments.suites.store import read_store
from itemfold.experiments.suites.suite import load_suite
from itemfold.models import MODELS
from itemfold.settings.toml_file import read_toml
from itemfold.validation import lookup

CURVES = {  # suites of curves: what their numbers are, and the ends of their titles
    TRIALS_OF: ("trial", "every trial"),
    TAU_OF: ("% of the best temperature", "sensitivity to the temperature"),
    NOISE_OF: ("% false negatives", "robustness to false negatives"),
}


@dataclass(frozen=True)
class MeanRanks:
    """Mean ranks of losses over the data sets that are complete, best first."""

    data: tuple[str, ...]
    ranks: dict[str, float]
    test: RankTest | None  # None for a single data set
    of_data: dict[str, list[float]]  # the rank of each loss on every data set


def run_study(
    study: Study, options: Options, console: Console, trials_limit: float | None = None
) -> MeanRanks | None:
    """Run the missing jobs, and compare the losses over the complete data sets.

    First the trials of a data set and the seeds of its best settings, one data set after the other,
    then temperatures and false negatives. An interrupted study has complete data sets, and at most
    one with some trials of all losses; the same call continues it. Paired tests come last.

    After ``trials_limit`` seconds of a data set no trial starts there; the trials that all losses
    have made by then count. Temperatures and false negatives are varied on LightGCN only.
    """
    started, done = time.monotonic(), dict[str, list[Row]]()
    with Pool(options.jobs) as pool:

        def run(
            name: str, rows: Sequence[Row], data: str, limit: float = math.inf, **table: Any
        ) -> int:
            """Run a suite on a data set; returns how many of its runs have not been started."""
            if name in CURVES:
                curve, title = CURVES[name]
                table |= {"curve": curve, "title": f"{study.title}: {title}"}
            name, of_data = study.suite(name), replace(study, data=(data,))
            suite = load_suite(write_suite(options.home, name, of_data, rows, **table))
            entry, end = Entry.parse(data).key, options.time_limit
            if end is not None:
                limit = min(limit, max(end - (time.monotonic() - started), 0.0))
            own = replace(
                options,
                datasets=[entry],
                rows=[row["name"] for row in rows],
                time_limit=limit if limit < math.inf else None,
            )
            outcome = make_runs(suite, own, console, pool, reuse=True)
            console.print(f"{name}, {entry}: {outcome}", highlight=False, markup=False)
            return len(rows) if outcome.absent else outcome.left

        for data in study.data:
            rows, limit = trial_rows(study), math.inf if trials_limit is None else trials_limit
            left = run(TRIALS_OF, rows, data, limit, seeds=1)
            if trials := (len(rows) - left) // len(study.losses):  # they were made in turns
                results = read_store(options.home).results(study.suite(TRIALS_OF))
                tried = replace(study, data=(data,), trials=trials)
                if trials == study.trials or trials_limit is not None:
                    done[data] = chosen_rows(tried, results)
                    run(STUDY, done[data], data, cost=True)
        for data, rows in done.items() if study.model == FIRST_MODEL else ():
            run(TAU_OF, tau_rows(study, rows), data)
            run(NOISE_OF, noise_rows(study, rows), data)
    name = study.suite(STUDY)
    if name not in read_store(options.home).files:
        return None
    suite = load_suite(options.home / f"{name}.toml")
    store_tests(suite, [cell.entry.key for cell in suite.cells()], options, console)
    found = mean_ranks(read_tables(suite, read_store(options.home)))
    if found is not None:
        _show(found, console)
    return found


def study_of(
    study: Study, model: str, folder: Path, losses: tuple[str, ...] | None = None
) -> Study:
    """The study of a model, with some losses, on the data that it can score.

    Without ``losses``, a model other than the first has those that were better on the first. They
    are selected once: the losses of trials that are stored in ``folder`` stay.
    """
    lookup(MODELS, "models", model)
    found = replace(study, model=model, losses=losses or study.losses)
    if model == study.model:
        return found
    entries = [Entry.parse(data) for data in study.data]
    if not MODELS[model].inductive:
        entries = [entry for entry in entries if entry.protocol == "transductive"]
    if not entries:
        reason = MODELS[model].why_not_inductive
        raise ItemfoldError(f"{model} cannot score unseen users: {reason}")
    if losses is None:
        known = folder / f"{found.suite(TRIALS_OF)}.toml"
        losses = stored_losses(known) if known.exists() else better_half(folder)
    return replace(found, data=tuple(entry.key for entry in entries), losses=losses)


def stored_losses(trials: Path) -> tuple[str, ...]:
    """The losses of a stored suite of trials."""
    rows = read_toml(trials)["row"]
    return tuple(dict.fromkeys(row["name"].rpartition("-")[0] for row in rows))


def better_half(folder: Path) -> tuple[str, ...]:
    """The losses in the better half of the mean ranks on LightGCN, with ties."""
    path = folder / f"{STUDY}.toml"
    found = mean_ranks(read_tables(load_suite(path), read_store(folder))) if path.exists() else None
    if found is None:
        raise ItemfoldError(f"{folder} has no data set with all losses; run {FIRST_MODEL} first")
    ranks = list(found.ranks.values())
    last = ranks[(len(ranks) - 1) // 2]
    return tuple(name for name, rank in found.ranks.items() if rank <= last)


def on_shared_seeds(table: ResultTable) -> ResultTable:
    """A table restricted to the seeds that all rows share, because a seed is a split."""
    seeds = [{result["seed"] for result in row.results} for row in table.rows]
    shared = set.intersection(*seeds) if seeds else set()
    rows = [
        replace(row, results=[r for r in row.results if r["seed"] in shared]) for row in table.rows
    ]
    return replace(table, rows=rows)


def mean_ranks(tables: Sequence[ResultTable]) -> MeanRanks | None:
    """Rank the rows on the largest complete subset of the tables; None without results."""
    from scipy.stats import rankdata

    tables = [on_shared_seeds(table) for table in tables]
    values = {
        table.entry.key: {r.cell.row: r.mean(METRIC) for r in table.rows if r.results}
        for table in tables
    }
    data, names = complete_part(values)
    if not names:
        return None
    table = np.array([[values[key][name] for name in names] for key in data])
    places = rankdata(-table, axis=1)  # [data, names]; equal values share their mean
    ranks, order = places.mean(0), np.argsort(places.mean(0), kind="stable")
    return MeanRanks(
        data,
        {names[n]: float(ranks[n]) for n in order},
        rank_test(table) if len(data) > 1 and len(names) > 2 else None,
        {names[n]: places[:, n].tolist() for n in order},
    )


def complete_part(known: Mapping[str, Collection[str]]) -> tuple[tuple[str, ...], list[str]]:
    """The data sets of the largest complete subset, and the names that all of them have.

    >>> complete_part({"a": ["x", "y", "z"], "b": ["x", "y"], "c": ["x"]})
    (('a', 'b'), ['x', 'y'])
    """
    parts = [
        (data, [name for name in known[data[0]] if all(name in known[key] for key in data)])
        for size in range(1, len(known) + 1)
        for data in combinations(known, size)
    ]
    return max(
        parts, key=lambda part: (len(part[0]) * len(part[1]), len(part[0])), default=((), [])
    )


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
