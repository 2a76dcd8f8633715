"""Bootstrap intervals of means over users."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from itemfold.data.array_types import Floats
from itemfold.errors import ItemfoldError

RESAMPLES = 1000
LEVELS = (0.025, 0.975)  # of a 95 % interval
MANY = 5000  # users from which on the limit of infinitely many resamples is used
NORMAL = 1.959963984540054  # the .975 quantile of the standard normal distribution


@dataclass(frozen=True)
class Interval:
    """A mean with its percentile bootstrap 95 % interval."""

    mean: float
    low: float
    high: float


def bootstrap_interval(x: npt.ArrayLike, seed: int | np.random.Generator = 0) -> Interval:
    """Percentile bootstrap 95 % interval of the mean over users; NaN and ∞ are left out.

    From 5,000 users on nothing is drawn: the quantiles follow from the moments of the values. One
    user gives an interval of zero width; without users the mean and the interval are NaN.
    """
    values = one_per_user(x, "x")
    (found,) = _intervals_of(values[np.isfinite(values), None], seed)
    return found


def bootstrap_intervals(columns: Mapping[str, npt.ArrayLike], seed: int = 0) -> dict[str, Interval]:
    """`bootstrap_interval` of several metrics of the same users; all share the drawn users.

    Drawing takes most of the time, so many metrics cost little more than one. A metric with NaN or
    ∞ is of other users and is drawn for alone.
    """
    values = {name: one_per_user(x, name) for name, x in columns.items()}
    whole = [name for name, x in values.items() if np.isfinite(x).all()]
    if len({len(values[name]) for name in whole}) > 1:
        raise ItemfoldError("'columns' must have the same number of users")
    found = {name: bootstrap_interval(x, seed) for name, x in values.items() if name not in whole}
    if whole:
        table = np.column_stack([values[name] for name in whole])
        found |= zip(whole, _intervals_of(table, seed), strict=True)
    return {name: found[name] for name in columns}


def one_per_user(x: npt.ArrayLike, name: str) -> Floats:
    """Values of users as numbers; raises if there is not one for each."""
    values = np.asarray(x, dtype=np.float64)
    if values.ndim != 1:
        raise ItemfoldError(f"'{name}' must have one value per user, got shape {values.shape}")
    return values


def _intervals_of(table: Floats, seed: int | np.random.Generator) -> list[Interval]:
    """The interval of each column, ``[users, metrics]``."""
    n = len(table)
    if not n:
        return [Interval(math.nan, math.nan, math.nan)] * table.shape[1]
    low, high = _limits(table) if n >= MANY else _drawn(table, np.random.default_rng(seed))
    bounds = zip(table.mean(0).tolist(), low.tolist(), high.tolist(), strict=True)
    return [Interval(*each) for each in bounds]


def _drawn(table: Floats, generator: np.random.Generator) -> Floats:
    """Quantiles of the means of resamples, ``[2, metrics]``."""
    n = len(table)
    drawn = generator.integers(0, n, (RESAMPLES, n), dtype=np.int32)
    cells = (drawn + n * np.arange(RESAMPLES)[:, None]).ravel()
    counts = np.bincount(cells, minlength=RESAMPLES * n).reshape(RESAMPLES, n)
    found: Floats = np.quantile(counts.astype(np.float64) @ table / n, LEVELS, axis=0)
    return found


def _limits(table: Floats) -> Floats:
    """The same quantiles for infinitely many resamples, by their Cornish–Fisher expansion.

    The mean of n draws from the values has their deviation over √n, their skewness over √n and
    their excess kurtosis over n; what is left out is of order n^−3/2.
    """
    n, mean, deviation = len(table), table.mean(0), table.std(0)
    unit = (table - mean) / np.where(deviation > 0, deviation, 1)
    skewness, kurtosis = (unit**3).mean(0) / math.sqrt(n), ((unit**4).mean(0) - 3) / n
    z = np.array([[-NORMAL], [NORMAL]])
    curve = (z**3 - 3 * z) * kurtosis / 24 - (2 * z**3 - 5 * z) * skewness**2 / 36
    quantile = z + (z**2 - 1) * skewness / 6 + curve
    found: Floats = mean + quantile * deviation / math.sqrt(n)
    return found
