"""Paired tests of a suite: every row against its baseline, over users and seeds, by Holm's rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from itemfold.data.array_types import Floats
from itemfold.evaluation.significance import PairedTest, crossed_bound, crossed_test, holm
from itemfold.experiments.suites.store import Line, Store, append_lines, path_of
from itemfold.experiments.suites.suite import Suite
from itemfold.experiments.suites.user_values import (
    UserValues,
    check_means,
    read_values,
    values_path,
)

METHOD = "banerjee"  # of tests over several seeds; earlier ones estimated degrees of freedom
RunIds = dict[str, dict[int, str]]  # row → seed → id of the run
RunValues = dict[str, dict[int, UserValues]]  # row → seed → values of its users
Means = dict[str, dict[int, dict[str, float]]]  # row → seed → metric → mean over users


@dataclass(frozen=True)
class RowComparison:
    """A row compared with its baseline on one metric."""

    row: str
    metric: str
    seeds: list[int]
    test: PairedTest
    bound: bool = False  # by `crossed_bound`, without the values of single users


def write_tests(suite: Suite, data: str, store: Store, values: Path) -> list[str]:
    """Store the paired tests of a data set; returns notes on rows that are not retested.

    A row and its baseline are compared over the seeds that both have by `crossed_test`, with one
    seed over users alone. If per-user values of the row or of its baseline are missing, a stored
    test of the same runs stays (one over users alone, or by an earlier method, becomes one over
    users and seeds by `crossed_bound`).
    Without such a test, the row is compared over the seeds that have values, if these are two or
    more. All p-values of the data set, over rows and metrics, are corrected together.
    """
    ids, found, means = _read_runs(suite, data, store, values)
    stored = store.tests(suite.name, data)
    new, old, without = [], [], []
    for row in suite.rows:
        base = suite.baseline_of(row)
        if row == base or not ids[row] or not ids[base]:
            continue
        needed = {row: ids[row].keys(), base: ids[row].keys() & ids[base].keys()}
        if all(seeds <= found[name].keys() for name, seeds in needed.items()):
            new += _compare(suite, row, found)
        elif is_current(stored, row, base, ids):
            old += _stored_comparisons(stored, row, means[row], means[base])
            without.append(row)
        elif len(found[row].keys() & found[base].keys()) > 1:
            new += _compare(suite, row, found)
        else:
            without.append(row)
    if new or old:
        line = _tests_line(suite, data, ids, [*new, *old])
        if line != stored:
            append_lines(store.folder, suite.name, line)
    if not without:
        return []
    return [
        f"{data}: the paired tests are left unchanged for {', '.join(without)}: {values} does not "
        "have the per-user values of their runs or of their baseline's"
    ]


def is_current(tests: Line, row: str, base: str, ids: RunIds) -> bool:
    """Whether stored tests compared a row with its baseline in exactly these runs."""
    tested: RunIds = {row: {}, base: {}}
    for key, run in tests.get("runs", {}).items():
        name, _, seed = key.rpartition("-")
        if name in tested:
            tested[name][int(seed)] = run
    return bool(tested[row]) and all(tested[name] == ids.get(name) for name in (row, base))


def _read_runs(
    suite: Suite, data: str, store: Store, values: Path
) -> tuple[RunIds, RunValues, Means]:
    """The finished runs of a data set, their per-user values where available, and all means."""
    ids: RunIds = {row: {} for row in suite.rows}
    found: RunValues = {row: {} for row in suite.rows}
    means: Means = {row: {} for row in suite.rows}
    for result in store.results(suite.name) if suite.name in store.files else ():
        if result["data"] != data or result["row"] not in ids:
            continue
        seed = int(result["seed"])
        ids[result["row"]][seed], means[result["row"]][seed] = result["id"], result["test"]
        kept = read_values(values_path(values, result["id"]))
        if kept is not None and kept.run == result["id"]:
            check_means(result["test"], kept, f"{path_of(store.folder, suite.name)}")
            found[result["row"]][seed] = kept
    return ids, found, means


def _compare(suite: Suite, row: str, found: RunValues) -> list[RowComparison]:
    """Compare a row with its baseline on every column that has per-user values."""
    own, base = found[row], found[suite.baseline_of(row)]
    seeds = sorted(set(own) & set(base))
    if own is base or not seeds:
        return []
    out = []
    for metric in suite.columns:
        if not all(metric in run.metrics for run in (*own.values(), *base.values())):
            continue  # a metric of the catalogue, not of users
        runs = [(own[seed], base[seed]) for seed in seeds]
        test = crossed_test(_differences(runs, metric))
        out.append(RowComparison(row, metric, seeds, test))
    return out


def _differences(runs: Sequence[tuple[UserValues, UserValues]], metric: str) -> Floats:
    """Differences from the baseline in every pair of runs, ``[runs, users]``; NaN if missing."""
    users = list(dict.fromkeys(user for own, _ in runs for user in own.users))
    column = {user: n for n, user in enumerate(users)}
    out = np.full((len(runs), len(users)), np.nan)
    for row, (own, base) in enumerate(runs):
        theirs = dict(zip(base.users, base.metrics[metric].tolist(), strict=True))
        for user, value in zip(own.users, own.metrics[metric].tolist(), strict=True):
            out[row, column[user]] = value - theirs.get(user, math.nan)
    return out


def _stored_comparisons(
    tests: Line, row: str, own: dict[int, dict[str, float]], base: dict[int, dict[str, float]]
) -> list[RowComparison]:
    """The stored comparisons of a row, before Holm's correction."""
    seeds = tests["rows"].get(row, {}).get("seeds", [])
    out = []
    for metric, figures in tests["rows"].get(row, {}).items():
        if not isinstance(figures, dict):
            continue
        effect, bound = figures["effect_size"], figures.get("bound", False)
        test = PairedTest(
            n=figures["users"],
            difference=figures["difference"],
            t=math.nan,
            p_t=figures["uncorrected"]["p_t"],
            p_wilcoxon=figures["uncorrected"]["p_wilcoxon"],
            effect_size=math.inf if effect is None else effect,
            seeds=figures.get("seeds", 1),
        )
        renew = tests.get("method") != METHOD or "seeds" not in figures
        if renew and len(seeds) > 1:
            of_seeds = [own[seed][metric] - base[seed][metric] for seed in seeds]
            test, bound = crossed_bound(test, of_seeds), True
        out.append(RowComparison(row, metric, seeds, test, bound))
    return out


def _tests_line(suite: Suite, data: str, ids: RunIds, comparisons: list[RowComparison]) -> Line:
    """The line of the store."""
    p_t = holm([comparison.test.p_t for comparison in comparisons])
    p_wilcoxon = holm([comparison.test.p_wilcoxon for comparison in comparisons])
    rows: dict[str, Any] = {}
    for n, comparison in enumerate(comparisons):
        row, test = comparison.row, comparison.test
        figures = {
            "users": test.n,
            "seeds": test.seeds,
            "difference": test.difference,
            "effect_size": test.effect_size,
            "p_t": float(p_t[n]),
            "p_wilcoxon": float(p_wilcoxon[n]),
            "uncorrected": {"p_t": test.p_t, "p_wilcoxon": test.p_wilcoxon},
            **({"bound": True} if comparison.bound else {}),
        }
        base = suite.baseline_of(row)
        own = {} if base == suite.baseline else {"baseline": base}
        entry = rows.setdefault(row, {"seeds": comparison.seeds, **own})
        entry[comparison.metric] = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in figures.items()  # JSON has no infinity
        }
    compared = {row for c in comparisons for row in (c.row, suite.baseline_of(c.row))}
    runs = {  # the runs compared, to detect newer results
        f"{row}-{seed}": ids[row][seed] for row in ids if row in compared for seed in ids[row]
    }
    about = {"kind": "tests", "data": data, "baseline": suite.baseline, "method": METHOD}
    return {**about, "rows": rows, "runs": runs}
