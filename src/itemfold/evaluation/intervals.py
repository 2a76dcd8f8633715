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
CELLS = 4_000_000  # drawn users that are held at a time: tens of MB for any number of users


@dataclass(frozen=True)
class Interval:
    """A mean with its percentile bootstrap 95 % interval."""

    mean: float
    low: float
    high: float


def bootstrap_interval(x: npt.ArrayLike, seed: int | np.random.Generator = 0) -> Interval:
    """Percentile bootstrap 95 % interval of the mean over users; NaN and ∞ are left out.

    One user gives an interval of zero width; without users the mean and the interval are NaN.
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
    n, generator = len(table), np.random.default_rng(seed)
    if not n:
        return [Interval(math.nan, math.nan, math.nan)] * table.shape[1]
    block, means = max(1, CELLS // n), []
    for done in range(0, RESAMPLES, block):
        size = min(block, RESAMPLES - done)
        drawn = generator.integers(0, n, (size, n), dtype=np.int32)
        cells = (drawn + n * np.arange(size)[:, None]).ravel()
        counts = np.bincount(cells, minlength=size * n).reshape(size, n)  # times a user is drawn
        means.append(counts.astype(np.float64) @ table / n)
    low, high = np.quantile(np.concatenate(means), LEVELS, axis=0)
    bounds = zip(table.mean(0).tolist(), low.tolist(), high.tolist(), strict=True)
    return [Interval(*each) for each in bounds]
