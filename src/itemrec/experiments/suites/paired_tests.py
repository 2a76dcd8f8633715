"""Paired tests of a suite: every row against its baseline, over users and seeds, by Holm's rule."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from itemrec.evaluation.significance import PairedTest, crossed_test, holm
from itemrec.experiments.suites.store import Line, Store, append
from itemrec.experiments.suites.suite import Suite
from itemrec.experiments.suites.values import Values, differences, read_values, values_path

Runs = dict[str, dict[int, Values]]  # row → seed → values of its users


@dataclass(frozen=True)
class Comparison:
    """A row compared with its baseline on one metric."""

    row: str
    metric: str
    seeds: list[int]
    test: PairedTest


def write_tests(suite: Suite, data: str, store: Store, values: Path) -> list[str]:
    """Store the paired tests of a data set; returns notes if that is not possible.

    A row and its baseline are compared over the seeds that both have by `crossed_test`, with one
    seed over users alone. All p-values of the data set, over rows and metrics, are corrected
    together. Nothing is written unless the values of all finished
    runs are available, so that a machine with only some of them cannot overwrite complete tests.
    """
    found, missing = _read_runs(suite, data, store, values)
    if missing:
        return [
            f"{data}: the paired tests are left unchanged because the per-user values of {missing} "
            f"runs are not in {values}"
        ]
    comparisons = [comparison for row in found for comparison in _compare(suite, row, found)]
    if comparisons:
        line = _line(suite, data, found, comparisons)
        if line != store.tests(suite.name, data):
            append(store.folder, suite.name, line)
    return []


def _read_runs(suite: Suite, data: str, store: Store, values: Path) -> tuple[Runs, int]:
    """The per-user values of the finished runs of a data set, and how many runs lack them."""
    found: Runs = {row: {} for row in suite.rows}
    missing = 0
    for result in store.results(suite.name) if suite.name in store.files else ():
        if result["data"] != data or result["row"] not in found:
            continue
        kept = read_values(values_path(values, result["id"]))
        if kept is None or kept.run != result["id"]:
            missing += 1
        else:
            found[result["row"]][int(result["seed"])] = kept
    return found, missing


def _compare(suite: Suite, row: str, found: Runs) -> list[Comparison]:
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
        test = crossed_test(differences(runs, metric))
        out.append(Comparison(row, metric, seeds, test))
    return out


def _line(suite: Suite, data: str, found: Runs, comparisons: list[Comparison]) -> Line:
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
        }
        base = suite.baseline_of(row)
        own = {} if base == suite.baseline else {"baseline": base}
        entry = rows.setdefault(row, {"seeds": comparison.seeds, **own})
        entry[comparison.metric] = _finite(figures)
    runs = {  # the runs compared, to detect newer results
        f"{row}-{seed}": run.run for row, seeds in found.items() for seed, run in seeds.items()
    }
    return {"kind": "tests", "data": data, "baseline": suite.baseline, "rows": rows, "runs": runs}


def _finite(figures: dict[str, Any]) -> dict[str, Any]:
    """Replace infinity, which JSON does not have, by None."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in figures.items()
    }
