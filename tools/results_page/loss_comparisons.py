"""Each loss against one of them, and the order of the losses on two encoders."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from itemfold.evaluation.significance import holm
from itemfold.experiments.suites.ranking_losses_runs import mean_ranks, on_shared_seeds
from itemfold.experiments.suites.results import ResultRow, ResultTable
from itemfold.experiments.suites.store import Result
from results_page.formatting import grid, probability

LEVEL = 0.05
Rows = Mapping[str, ResultRow]


@dataclass(frozen=True)
class Against:
    """A row against another on one data set."""

    ratio: float  # of the means
    p: float  # of a paired t-test over seeds
    corrected: float  # by Holm's method, over the rows of the data set

    @property
    def better(self) -> bool:
        """Whether the mean is higher."""
        return self.ratio > 1


def compare(tables: Sequence[ResultTable], metric: str, base: str) -> dict[str, dict[str, Against]]:
    """Every row against a base on each complete data set: name → data → comparison.

    The test is over seeds, each of which is a split for both rows. Per-user values, which a test
    over users needs, are not part of the store.
    """
    found = mean_ranks(tables)
    if found is None:
        raise LookupError("no data set has all rows")
    out: dict[str, dict[str, Against]] = {name: {} for name in found.ranks if name != base}
    for table in map(on_shared_seeds, tables):
        if table.entry.key in found.data:
            rows = {row.cell.row: row for row in table.rows}
            p = {name: _p(rows[name], rows[base], metric) for name in out}
            corrected = dict(zip(p, holm(list(p.values())), strict=True))
            for name, of_data in out.items():
                ratio = (rows[name].mean(metric) or 0.0) / (rows[base].mean(metric) or math.nan)
                of_data[table.entry.key] = Against(ratio, p[name], float(corrected[name]))
    return out


def _p(row: ResultRow, base: ResultRow, metric: str) -> float:
    """The p-value of a paired t-test over seeds; 1 with a single one."""
    from scipy.stats import ttest_rel

    ours, theirs = (
        [float(result["test"][metric]) for result in sorted(each.results, key=_seed)]
        for each in (row, base)
    )
    return float(ttest_rel(ours, theirs).pvalue) if len(ours) > 1 else 1.0


def _seed(result: Result) -> int:
    return int(result["seed"])


def against_table(tables: Sequence[ResultTable], metric: str, base: str) -> str:
    """Rows by the number of data sets on which they are better than a base."""
    found = compare(tables, metric, base)
    body = []
    for name, of_data in found.items():
        each = list(of_data.values())
        better = [one for one in each if one.better]
        worse = [one for one in each if not one.better]
        change = math.exp(sum(math.log(one.ratio) for one in each) / len(each))
        counts = [
            f"{sum(one.p < LEVEL for one in some)} ({sum(one.corrected < LEVEL for one in some)})"
            for some in (better, worse)
        ]
        changes = [_percent(one.ratio) + "*" * (one.p < LEVEL) for one in each]
        body.append((len(better), change, [name, str(len(better)), *counts, *changes]))
    data = list(next(iter(found.values())))
    titles = ["loss", "better on", "p < .05 (Holm)", "worse, p < .05 (Holm)", *data, "mean"]
    body.sort(key=lambda line: (-line[0], -line[1]))
    return grid(titles, [[*cells, _percent(change)] for _, change, cells in body])


def _percent(ratio: float) -> str:
    """A ratio as a change in per cent.

    >>> _percent(1.031), _percent(0.9)
    ('+3.1', '−10.0')
    """
    return f"{100 * (ratio - 1):+.1f}".replace("-", "−")


def ahead(tables: Sequence[ResultTable], metric: str, base: str, least: int) -> str:
    """The rows that are better than a base on at least so many data sets."""
    found = compare(tables, metric, base)
    counts = {name: sum(one.better for one in of.values()) for name, of in found.items()}
    names = sorted((n for n in counts if counts[n] >= least), key=lambda name: -counts[name])
    return ", ".join(f"*{name}*" for name in names) or "none"


def behind(tables: Sequence[ResultTable], metric: str, name: str) -> str:
    """How far a row is below the best one, in per cent, on the data set where it is furthest."""
    shares = []
    for table in map(on_shared_seeds, tables):
        means = {row.cell.row: row.mean(metric) or 0.0 for row in table.rows}
        shares.append(means[name] / max(means.values()))
    return f"{100 * (1 - min(shares)):.1f} %"


def agreement(
    one: Sequence[ResultTable], other: Sequence[ResultTable], metric: str, titles: Sequence[str]
) -> str:
    """How far the order of the rows that two suites share agrees, on each data set of both."""
    from scipy.stats import kendalltau, spearmanr

    tables = {table.entry.key: on_shared_seeds(table) for table in one}
    body = []
    for table in map(on_shared_seeds, other):
        if table.entry.key not in tables:
            continue
        first = {r.cell.row: r.mean(metric) for r in tables[table.entry.key].rows}
        second = {r.cell.row: r.mean(metric) for r in table.rows}
        names = [name for name in second if name in first]
        values = [[of[name] or 0.0 for name in names] for of in (first, second)]
        rho, tau = spearmanr(values[0], values[1]), kendalltau(values[0], values[1])
        best = [names[max(range(len(names)), key=of.__getitem__)] for of in values]
        cells = [_coefficient(rho.statistic), probability(float(rho.pvalue))]
        cells += [_coefficient(tau.statistic), probability(float(tau.pvalue))]
        body.append([table.entry.key, str(len(names)), *cells, *best])
    heads = ["data", "losses", "Spearman's ρ", "p", "Kendall's τ", "p"]
    return grid([*heads, *(f"first on {title}" for title in titles)], body)


def _coefficient(value: float) -> str:
    """A coefficient between −1 and 1 in two digits.

    >>> _coefficient(0.5), _coefficient(-0.251)
    ('.50', '−.25')
    """
    return f"{value:.2f}".replace("0.", ".").replace("-", "−")
