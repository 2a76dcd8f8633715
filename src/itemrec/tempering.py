"""From PageRank values to the weights of a draw: what an entry has above the items not stored."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from itemrec.errors import ItemrecError
from itemrec.ppr import PPRScores


def rest_mean(scores: PPRScores, free: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Mean PageRank ``[n_users]`` of the non-positive items that were not stored."""
    left = free - np.diff(scores.indptr)
    return np.where(left > 0, scores.dropped / np.maximum(left, 1), 0.0)


def excess(
    indptr: npt.NDArray[np.int64],
    values: npt.NDArray[np.float64],
    temperature: npt.NDArray[np.float64],
    free: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """exp(value / T) − 1, scaled to a largest of 1 a row, and its share beside one a free item."""
    x = values / np.repeat(temperature, np.diff(indptr))
    with np.errstate(divide="ignore"):  # a value of 0 has no excess: log 0
        log = x + np.log(-np.expm1(-x))
    peak = row_peaks(indptr, log)  # [n_users]
    weights = np.exp(log - np.repeat(peak, np.diff(indptr)))
    mass = row_sums(indptr, weights)
    return weights, mass / (mass + free * np.exp(-np.maximum(peak, -700.0)))


def scale_free_temperature(
    indptr: npt.NDArray[np.int64],
    values: npt.NDArray[np.float64],
    free: npt.NDArray[np.int64],
    share: float,
) -> npt.NDArray[np.float64]:
    """The T of every user ``[n_users]`` at which Σ_i (exp(x_i / T) − 1) has the given share.

    The sparse part then has mass share / (1 − share) · free, whatever the size and density of the
    data and the user's number of items. The mass falls with T; with n entries and the largest x it
    is between exp(x/T) − 1 and n times that, which brackets T for a bisection.
    """
    if not 0 < share < 1:
        raise ItemrecError(f"'share' must be in (0, 1) with temperature 'auto', got {share}")
    size = np.diff(indptr)
    target = share / (1 - share) * free  # [n_users]
    largest = np.maximum(row_peaks(indptr, values), 1e-300)
    low = np.log1p(target / np.maximum(size, 1)) / largest  # of 1 / T
    high = np.log1p(target) / largest
    for _ in range(30):
        middle = (low + high) / 2
        mass = row_sums(indptr, np.expm1(values * np.repeat(middle, size)))
        low, high = np.where(mass < target, middle, low), np.where(mass < target, high, middle)
    heat: npt.NDArray[np.float64] = 1 / np.maximum((low + high) / 2, 1e-300)
    return heat


def row_sums(
    indptr: npt.NDArray[np.int64], values: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Sum of every CSR row, 0 for an empty one."""
    return _reduced(np.add, indptr, values, 0.0)


def row_peaks(
    indptr: npt.NDArray[np.int64], values: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Largest value of every CSR row, 0 for an empty one or one without a finite value."""
    peaks = _reduced(np.maximum, indptr, values, 0.0)
    return np.where(np.isfinite(peaks), peaks, 0.0)


def _reduced(
    how: np.ufunc, indptr: npt.NDArray[np.int64], values: npt.NDArray[np.float64], empty: float
) -> npt.NDArray[np.float64]:
    out = np.full(len(indptr) - 1, empty)
    some = np.diff(indptr) > 0
    if some.any():
        out[some] = how.reduceat(values, indptr[:-1][some])
    return out
