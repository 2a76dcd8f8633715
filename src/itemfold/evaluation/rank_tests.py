"""Comparison of several systems over data sets: Friedman's test and Nemenyi's critical difference.

Demšar, "Statistical Comparisons of Classifiers over Multiple Data Sets", JMLR 2006.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from itemfold.data.array_types import Floats
from itemfold.errors import ItemfoldError

LEVEL = 0.05  # of the critical difference


@dataclass(frozen=True)
class RankTest:
    """Mean ranks of systems over data sets, 1 for the best, and how sure their differences are."""

    ranks: Floats  # [systems]
    statistic: float  # Friedman's χ², corrected for ties
    p: float
    critical_difference: float  # two mean ranks that are further apart differ (Nemenyi)


def rank_test(values: npt.ArrayLike) -> RankTest:
    """Compare systems by their ranks on every data set.

    With N data sets and k systems, mean ranks R_j and equal values sharing their mean rank:

        χ² = 12N/(k(k + 1)) · (Σ_j R_j² − k(k + 1)²/4) / ties        k − 1 degrees of freedom
        critical difference: q · √(k(k + 1)/(6N)),  q the studentised range ÷ √2

    Args:
        values: The figure of every system on every data set, `[data sets, systems]`; higher is
            better.


    Returns:
        Mean ranks, Friedman's test and the critical difference.

    Raises:
        ItemfoldError: There are fewer than two data sets or three systems, or a value is missing.

    Examples:
        >>> found = rank_test([[0.3, 0.2, 0.1], [0.5, 0.4, 0.3], [0.9, 0.7, 0.8]])
        >>> found.ranks.round(2).tolist(), round(found.critical_difference, 2)
        ([1.0, 2.33, 2.67], 1.91)
    """
    import scipy.stats

    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] < 2 or table.shape[1] < 3:
        raise ItemfoldError(
            "'values' must have two data sets and three systems or more, got shape "
            f"{tuple(table.shape)}"
        )
    if not np.isfinite(table).all():
        raise ItemfoldError("'values' must have a number for every system on every data set")
    n, k = table.shape
    ranks = scipy.stats.rankdata(-table, axis=1)

    statistic, p = 0.0, 1.0
    if np.ptp(ranks, axis=1).any():  # otherwise all systems are alike on all data sets
        statistic, p = map(float, scipy.stats.friedmanchisquare(*table.T))
    q = float(scipy.stats.studentized_range.isf(LEVEL, k, np.inf)) / math.sqrt(2)
    return RankTest(ranks.mean(0), statistic, p, q * math.sqrt(k * (k + 1) / (6 * n)))
