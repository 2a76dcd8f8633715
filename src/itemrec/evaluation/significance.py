"""Significance of differences: paired tests over users, Holm's correction, bootstrap."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from itemrec.errors import ItemrecError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PairedTest:
    """A paired comparison of a with b over n users."""

    n: int  # users with a finite value in both
    difference: float  # mean of a − b
    t: float
    p_t: float  # two-sided paired t-test
    p_wilcoxon: float  # two-sided Wilcoxon signed-rank test
    effect_size: float  # Cohen's d_z: mean ÷ standard deviation of the differences


@dataclass(frozen=True)
class Interval:
    """A mean with its percentile bootstrap interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class ComparisonRow:
    """One system against the baseline on one metric; the p-values are corrected over the table."""

    metric: str
    system: str
    interval: Interval
    baseline_mean: float
    test: PairedTest
    p_t: float
    p_wilcoxon: float


@dataclass(frozen=True)
class Comparison:
    """Every other system against the baseline on every metric."""

    baseline: str
    rows: tuple[ComparisonRow, ...]

    def row(self, system: str, metric: str) -> ComparisonRow:
        """The row of one system and metric."""
        for row in self.rows:
            if (row.system, row.metric) == (system, metric):
                return row
        known = ", ".join(f"{row.system}/{row.metric}" for row in self.rows)
        raise ItemrecError(f"the comparison has no row {system}/{metric}: choose from {known}")


def _values(x: npt.ArrayLike, name: str) -> Floats:
    values = np.asarray(x, dtype=np.float64)
    if values.ndim != 1:
        raise ItemrecError(f"'{name}' must have one value per user, got shape {values.shape}")
    return values


def _finite_mean(x: npt.ArrayLike) -> float:
    values = _values(x, "x")
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else math.nan


def paired_test(a: npt.ArrayLike, b: npt.ArrayLike) -> PairedTest:
    """Paired t-test and Wilcoxon signed-rank test of per-user values, in the same order of users.

    Users with NaN or ∞ in either are left out. Without evidence (fewer than two users, or no
    difference anywhere) both p-values are 1, and t and the effect size are 0. If every user differs
    by the same amount, the t-test is certain: t and the effect size are ±∞ and p_t is 0.
    """
    import scipy.stats  # half a second, which most commands can do without

    a, b = _values(a, "a"), _values(b, "b")
    if len(a) != len(b):
        raise ItemrecError(f"'b' must have as many users as 'a', {len(a)}, got {len(b)}")
    kept = np.isfinite(a) & np.isfinite(b)
    d = a[kept] - b[kept]
    mean = float(d.mean()) if len(d) else math.nan
    if len(d) < 2 or not d.any():
        return PairedTest(len(d), mean, 0.0, 1.0, 1.0, 0.0)

    p_wilcoxon = float(scipy.stats.wilcoxon(d).pvalue)
    # Equal differences may differ by rounding errors, which do not count as variance.
    if np.ptp(d) <= 1e-12 * np.abs(d).max():
        certain = math.copysign(math.inf, mean)
        return PairedTest(len(d), mean, certain, 0.0, p_wilcoxon, certain)
    effect = mean / float(d.std(ddof=1))
    t = effect * math.sqrt(len(d))
    p_t = 2 * float(scipy.stats.t.sf(abs(t), len(d) - 1))
    return PairedTest(len(d), mean, t, p_t, p_wilcoxon, effect)


def holm(p_values: npt.ArrayLike) -> Floats:
    """Holm's step-down correction: p₍ᵢ₎ → max_{j≤i} min(1, (m − j + 1)·p₍ⱼ₎), in the given order.

    NaN stays NaN and does not count as a comparison.

    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    p = _values(p_values, "p_values")
    if ((p < 0) | (p > 1)).any():
        raise ItemrecError(f"'p_values' must be between 0 and 1, got {p.tolist()}")
    adjusted = p.copy()
    order = np.argsort(p)[: np.count_nonzero(~np.isnan(p))]  # NaN sorts last
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * p[order]), 1.0)
    return adjusted


def bootstrap_interval(
    x: npt.ArrayLike,
    seed: int | np.random.Generator = 0,
    *,
    level: float = 0.95,
    resamples: int = 1000,
) -> Interval:
    """Percentile bootstrap interval of the mean over users; NaN and ∞ are left out.

    One user gives an interval of zero width; without users the mean and the interval are NaN.
    """
    if not 0 < level < 1:
        raise ItemrecError(f"'level' must be between 0 and 1, got {level}")
    if resamples < 1:
        raise ItemrecError(f"'resamples' must be a positive integer, got {resamples}")
    values = _values(x, "x")
    values = values[np.isfinite(values)]
    n = len(values)
    if n == 0:
        return Interval(math.nan, math.nan, math.nan)
    generator = np.random.default_rng(seed)
    block = max(1, 4_000_000 // n)  # resamples per block: tens of MB for any number of users
    means = [
        values[generator.integers(0, n, (min(block, resamples - done), n), dtype=np.int32)].mean(1)
        for done in range(0, resamples, block)
    ]
    tail = (1 - level) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail])
    return Interval(float(values.mean()), float(low), float(high))


def compare(
    values: Mapping[str, Mapping[str, npt.NDArray[np.floating[Any]]]],
    baseline: str,
    *,
    seed: int = 0,
) -> Comparison:
    """Compare each system's per-user values ({system: {metric: [users]}}) with the baseline's.

    Holm's correction runs over all rows of the table, for each of the two tests. Metrics that a
    system shares with the baseline are compared; arrays must follow the same order of users.
    """
    if baseline not in values:
        raise ItemrecError(f"'baseline' must be one of {', '.join(values)}, got '{baseline}'")
    base = values[baseline]
    keys = [(s, m) for s in values if s != baseline for m in base if m in values[s]]
    tests = [paired_test(values[s][m], base[m]) for s, m in keys]
    p_t = holm([test.p_t for test in tests])
    p_wilcoxon = holm([test.p_wilcoxon for test in tests])
    rows = [
        ComparisonRow(
            metric=m,
            system=s,
            interval=bootstrap_interval(values[s][m], seed),
            baseline_mean=_finite_mean(base[m]),
            test=test,
            p_t=float(p_t[i]),
            p_wilcoxon=float(p_wilcoxon[i]),
        )
        for i, ((s, m), test) in enumerate(zip(keys, tests, strict=True))
    ]
    return Comparison(baseline, tuple(rows))
