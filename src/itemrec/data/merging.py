"""Rows of the same user and item become one pair: highest rating, latest time, merged weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from itemrec.data.columns import RawTable
from itemrec.data.weights import Weighting, pair_weights

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pairs:
    """Unique pairs ordered by user and item, and the number of rows that were merged into others.

    The columns have the types of those of `Interactions`.
    """

    users: npt.NDArray[np.int32]
    items: npt.NDArray[np.int32]
    ratings: npt.NDArray[np.float32] | None
    times: npt.NDArray[np.float64] | None
    held_out: npt.NDArray[np.bool_] | None
    weights: npt.NDArray[np.float64] | None
    duplicates: int


def merge_rows(
    users: Ints,
    items: Ints,
    n_items: int,
    table: RawTable,
    weighting: Weighting,
    latest: float | None = None,
) -> Pairs:
    """The pairs of rows, whose users and items are numbered.

    ``latest`` is the time from which recency counts, that of the last row by default.
    """
    key = users * n_items + items  # [rows]
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    pick = order[starts]  # [n]

    def merged(values: npt.NDArray[Any] | None, best: np.ufunc) -> Any:
        return None if values is None else best.reduceat(values[order], starts)

    ratings, weights = merged(table.rating, np.maximum), None
    if weighting.is_used:
        values = np.ones(len(order)) if table.weight is None else table.weight[order]
        times = None if table.time is None else table.time[order]
        weights = pair_weights(weighting, values, times, starts, latest)
    return Pairs(
        users=users[pick].astype(np.int32),
        items=items[pick].astype(np.int32),
        ratings=None if ratings is None else ratings.astype(np.float32),
        times=merged(table.time, np.maximum),
        held_out=merged(table.held_out, np.logical_and),
        weights=weights,
        duplicates=len(key) - len(pick),
    )
