"""Significance of differences: paired tests over users and seeds, with Holm's correction."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from itemfold.data.array_types import Bools, Floats
from itemfold.errors import ItemfoldError
from itemfold.evaluation.intervals import Interval, bootstrap_interval, one_per_user


@dataclass(frozen=True)
class PairedTest:
    """A paired comparison of a with b over n users, and over seeds if there are several."""

    n: int  # users with a finite value in both
    difference: float  # mean of a − b
    t: float
    p_t: float  # two-sided t-test: paired over users, or over users and seeds (`crossed_test`)
    p_wilcoxon: float  # two-sided Wilcoxon signed-rank test, over users alone
    effect_size: float  # Cohen's d_z: mean ÷ standard deviation of the users' differences
    seeds: int = 1


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

    @property
    def change(self) -> float:
        """The difference relative to the baseline; 0 if the baseline has 0."""
        return self.test.difference / self.baseline_mean if self.baseline_mean else 0.0


@dataclass(frozen=True)
class Comparison:
    """Every other system against the baseline on every metric."""

    baseline: str
    rows: tuple[ComparisonRow, ...]

    @property
    def paired_over(self) -> str:
        """A phrase for what the tests are paired over."""
        seeded = any(row.test.seeds > 1 for row in self.rows)
        return "paired over users and seeds (Wilcoxon: users)" if seeded else "paired over users"

    def row(self, system: str, metric: str) -> ComparisonRow:
        """The row of one system and metric."""
        for row in self.rows:
            if (row.system, row.metric) == (system, metric):
                return row
        known = ", ".join(f"{row.system}/{row.metric}" for row in self.rows)
        raise ItemfoldError(f"the comparison has no row {system}/{metric}: choose from {known}")


def paired_test(a: npt.ArrayLike, b: npt.ArrayLike, *, wilcoxon: bool = True) -> PairedTest:
    """Paired t-test and Wilcoxon signed-rank test of per-user values, in the same order of users.

    Users with NaN or ∞ in either are left out. Without evidence (fewer than two users, or no
    difference anywhere) both p-values are 1, and t and the effect size are 0. If every user differs
    by the same amount, the t-test is certain: t and the effect size are ±∞ and p_t is 0. Without
    `wilcoxon`, which takes half a second to import, its p-value is NaN.
    """
    import scipy.special

    a, b = one_per_user(a, "a"), one_per_user(b, "b")
    if len(a) != len(b):
        raise ItemfoldError(f"'b' must have as many users as 'a', {len(a)}, got {len(b)}")
    kept = np.isfinite(a) & np.isfinite(b)
    d = a[kept] - b[kept]
    mean = float(d.mean()) if len(d) else math.nan
    if len(d) < 2 or not d.any():
        return PairedTest(len(d), mean, 0.0, 1.0, 1.0, 0.0)

    p_wilcoxon = math.nan
    if wilcoxon:
        import scipy.stats

        p_wilcoxon = float(scipy.stats.wilcoxon(d).pvalue)
    # Equal differences may differ by rounding errors, which do not count as variance.
    if np.ptp(d) <= 1e-12 * np.abs(d).max():
        certain = math.copysign(math.inf, mean)
        return PairedTest(len(d), mean, certain, 0.0, p_wilcoxon, certain)
    effect = mean / float(d.std(ddof=1))
    t = effect * math.sqrt(len(d))
    p_t = 2 * float(scipy.special.stdtr(len(d) - 1, -abs(t)))
    return PairedTest(len(d), mean, t, p_t, p_wilcoxon, effect)


def crossed_test(differences: npt.ArrayLike) -> PairedTest:
    """Test a − b over users *and* seeds: would the result hold for other users and other seeds?

    A test over users alone treats the seeds that were run as all there are: if training varies from
    seed to seed, it finds differences between two runs of the same system. Here a difference is the
    sum of an effect of the user, an effect of the seed and a residual, as in studies where every
    reader judges every case (Obuchowski and Rockette, 1995). With the mean m_s of seed s over its
    users, S seeds, n users, and the covariance over users between two seeds:

        b = var(m_s)/S        c = mean of cov(m_s, m_t) over s ≠ t        t = mean of m_s / √(b + c)
        p: the level at which (mean of m_s)² = q²(S − 1)·b + q²(n − 1)·c

    b is the variance between seeds plus the residual, c the effect of users that is the same in
    every seed, and q(f) the two-sided quantile of Student's t with f degrees of freedom at level p.
    A few seeds estimate b badly, so degrees of freedom that are estimated from b (Satterthwaite;
    Hillis, 2007) reject 8 to 10 % of true null hypotheses at a nominal 5 % with two seeds. Each
    part has its own quantile here, which keeps the level for any ratio of the parts (Banerjee,
    1960). If no user occurs in two seeds, it is the t-test over the means of seeds; if seeds do not
    differ, or with one seed, it is `paired_test`.

    Args:
        differences: a − b, `[seeds, users]`, NaN where a user was not evaluated.

    Returns:
        The comparison; `p_wilcoxon` and `effect_size` are of the users' means over their seeds.

    Examples:
        >>> crossed_test([[0.3, 0.1, 0.2, 0.2]]).p_t < 0.05  # one seed: over users alone
        True
        >>> crossed_test([[0.3, 0.1, 0.2, 0.2], [-0.2, -0.1, -0.2, -0.2]]).p_t > 0.9
        True
    """
    values = np.asarray(differences, dtype=np.float64)
    if values.ndim != 2:
        raise ItemfoldError(f"'differences' must be [seeds, users], got shape {values.shape}")
    known = np.isfinite(values)
    values, known = values[known.any(1)][:, known.any(0)], known[known.any(1)][:, known.any(0)]
    seeds, users = values.shape
    over_users = paired_test(mean_over_seeds(values), np.zeros(users))
    if seeds < 2:
        return over_users
    means = np.array([row[here].mean() for row, here in zip(values, known, strict=True)])
    between = float(means.var(ddof=1)) / seeds
    variance = between + max(_shared_covariance(values, known), 0.0)
    mean = float(means.mean())
    if variance <= 1e-24 * max(mean * mean, 1e-300):  # equal everywhere, up to rounding
        return replace(over_users, difference=mean, seeds=seeds)
    t = mean / math.sqrt(variance)
    p = level_of(mean, (between, seeds - 1), (variance - between, users - 1))
    return replace(over_users, difference=mean, t=t, p_t=p, seeds=seeds)


def level_of(mean: float, *parts: tuple[float, int]) -> float:
    """Level p at which mean² = Σ q_p(f)²·v, for variances v estimated with f degrees of freedom.

    q_p(f) is the two-sided quantile of Student's t. For independent estimates whose expectations
    add up to the variance of a normal mean with expectation 0, P(level ≤ p) is at most p: by the
    concavity of the distribution function of Z², it is at most the mean, weighted by the true
    parts, of the levels of the single t-tests, which are p (Banerjee, 1960). With one part it is
    the t-test.

    >>> round(level_of(2.0, (1.0, 3)), 4)  # the t-test: t = 2
    0.1393
    """
    import scipy.optimize
    import scipy.special

    kept = [(v, max(f, 1)) for v, f in parts if v > 0]
    if mean == 0 or not kept:
        return 1.0 if mean == 0 else 0.0
    if len(kept) == 1:
        return 2 * float(scipy.special.stdtr(kept[0][1], -abs(mean) / math.sqrt(kept[0][0])))

    def excess(log_p: float) -> float:
        radius = math.hypot(
            *(math.sqrt(v) * float(scipy.special.stdtrit(f, math.exp(log_p) / 2)) for v, f in kept)
        )
        return math.log(max(radius, 1e-300)) - math.log(abs(mean))

    lowest = -700.0  # e^−700 is the least number that the quantile takes
    if excess(lowest) < 0:
        return math.exp(lowest)
    return math.exp(float(scipy.optimize.brentq(excess, lowest, 0.0, xtol=1e-12)))


def crossed_bound(test: PairedTest, of_seeds: npt.ArrayLike) -> PairedTest:
    """A conservative `crossed_test` without the values of single users.

    It needs a test over users, of their means over seeds, and the mean difference of every seed:

        v = (mean / effect size)² / n        b = var(m_s)/S        t = mean / √(v + b)
        p: the level at which mean² = q²(S − 1)·b + q²(n − 1)·v

    Both v and b contain a part of the residual, which v + b counts twice, so that it finds
    differences more rarely than `crossed_test`.

    Args:
        test: `paired_test` of the users' means over seeds.
        of_seeds: a − b of every seed, the mean over its users.

    Examples:
        >>> over_users = paired_test([0.3, 0.1, 0.2, 0.2], [0.0, 0.0, 0.0, 0.0])
        >>> [crossed_bound(over_users, seeds).p_t < 0.05 for seeds in ([0.2, 0.2], [0.0, 0.4])]
        [True, False]
    """
    means = one_per_user(of_seeds, "of_seeds")
    seeds, mean = len(means), test.difference
    if seeds < 2 or mean == 0 or not math.isfinite(test.effect_size):
        return replace(test, seeds=max(seeds, 1))
    of_users = (mean / test.effect_size) ** 2 / test.n
    between = float(means.var(ddof=1)) / seeds
    t = mean / math.sqrt(of_users + between)
    p = level_of(mean, (between, seeds - 1), (of_users, test.n - 1))
    return replace(test, t=t, p_t=p, seeds=seeds)


def _shared_covariance(values: Floats, known: Bools) -> float:
    """Mean over pairs of seeds of the covariance of their means that comes from common users."""
    total, pairs = 0.0, 0
    for one in range(len(values)):
        for two in range(one + 1, len(values)):
            both = known[one] & known[two]
            pairs += 1
            if both.sum() > 1:
                covariance = float(np.cov(values[one, both], values[two, both])[0, 1])
                total += covariance * both.sum() / (known[one].sum() * known[two].sum())
    return total / pairs


def holm(p_values: npt.ArrayLike) -> Floats:
    """Holm's step-down correction: p₍ᵢ₎ → max_{j≤i} min(1, (m − j + 1)·p₍ⱼ₎), in the given order.

    NaN stays NaN and does not count as a comparison.

    >>> holm([0.01, 0.04, 0.03])
    array([0.03, 0.06, 0.06])
    """
    p = one_per_user(p_values, "p_values")
    if ((p < 0) | (p > 1)).any():
        raise ItemfoldError(f"'p_values' must be between 0 and 1, got {p.tolist()}")
    adjusted = p.copy()
    order = np.argsort(p)[: np.count_nonzero(~np.isnan(p))]  # NaN sorts last
    factors = np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * p[order]), 1.0)
    return adjusted


def compare_values(
    values: Mapping[str, Mapping[str, npt.NDArray[np.floating[Any]]]],
    baseline: str,
) -> Comparison:
    """Compare each system's per-user values ({system: {metric: [users]}}) with the baseline's.

    Values ``[seeds, users]``, NaN where a user was not evaluated, are tested over both. For each of
    the two tests, Holm's correction is over all rows of the table. Metrics that a system shares
    with the baseline are compared; all arrays must have the same order of users (and seeds).
    """
    if baseline not in values:
        raise ItemfoldError(f"'baseline' must be one of {', '.join(values)}, got '{baseline}'")
    base = values[baseline]
    keys = [(s, m) for s in values if s != baseline for m in base if m in values[s]]
    tests = [
        crossed_test(values[s][m] - base[m])
        if np.ndim(values[s][m]) == 2
        else paired_test(values[s][m], base[m])
        for s, m in keys
    ]
    p_t = holm([test.p_t for test in tests])
    p_wilcoxon = holm([test.p_wilcoxon for test in tests])
    means = {metric: mean_over_seeds(of_users) for metric, of_users in base.items()}
    means = {metric: of_users[np.isfinite(of_users)] for metric, of_users in means.items()}
    rows = [
        ComparisonRow(
            metric=m,
            system=s,
            interval=bootstrap_interval(mean_over_seeds(values[s][m])),
            baseline_mean=float(means[m].mean()) if len(means[m]) else math.nan,
            test=test,
            p_t=float(p_t[i]),
            p_wilcoxon=float(p_wilcoxon[i]),
        )
        for i, ((s, m), test) in enumerate(zip(keys, tests, strict=True))
    ]
    return Comparison(baseline, tuple(rows))


def mean_over_seeds(values: npt.NDArray[np.floating[Any]]) -> Floats:
    """Each user's mean over the seeds in which the user was evaluated, ``[seeds, users]``.

    >>> mean_over_seeds(np.array([[1.0, np.nan], [3.0, np.nan]])).tolist()
    [2.0, nan]
    """
    found = np.asarray(values, dtype=np.float64)
    if found.ndim == 1:
        return found
    known = np.isfinite(found)
    count = known.sum(0)
    total = np.where(known, found, 0.0).sum(0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)
