"""Statistics of a data set and warnings about unusual properties."""

import datetime as dt
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from itemfold.data.array_types import Floats, Ints
from itemfold.data.assumptions import id_notes, no_times, reading_assumptions
from itemfold.data.datasets import is_named
from itemfold.data.interactions import Interactions
from itemfold.data.splitting.exchangeability import (
    DrawComparison,
    compare_test_part,
    mix_up_notes,
)
from itemfold.data.splitting.user_parts import GROUPS, group_of, is_hidden

QUANTILES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)
FEW = 5  # a user with fewer interactions can hardly be split and evaluated


@dataclass(frozen=True)
class Degrees:
    """Distribution of the number of interactions per user, or per item."""

    mean: float
    quantiles: dict[str, float]  # "0%" … "100%"
    histogram: tuple[tuple[int, int, int], ...]  # (from, to inclusive, how many), doubling bins


@dataclass(frozen=True)
class Weights:
    """Distribution of the weights of interactions, divided by their mean."""

    made_of: str
    quantiles: dict[str, float]  # "0%" … "100%"
    effective: float  # effective sample size, (Σw)² / Σw²


@dataclass(frozen=True)
class PartCounts:
    """Counts of the training, validation or test users of data that comes split by users."""

    users: int
    shown: int  # interactions that a model learns from or sees
    hidden: int  # interactions that it must find


@dataclass(frozen=True)
class Description:
    """Counts, distributions and warnings of a data set."""

    name: str
    fingerprint: str
    users: int
    items: int
    interactions: int
    density: float
    held_out: int
    duplicates: int
    user_degrees: Degrees
    item_degrees: Degrees
    ratings: dict[str, float] | None  # value → count, or a summary of more than 12 values
    first: str | None  # earliest and latest time, ISO, UTC
    last: str | None
    titles: int  # items with a title
    weights: Weights | None
    user_split: dict[str, PartCounts] | None  # of data that comes split by users
    test_draw: float | None  # variance of standardised test counts; 1 for a random draw
    warnings: tuple[str, ...]
    assumptions: tuple[str, ...] = ()  # which columns were chosen, and what counts as a like

    def to_dict(self) -> dict[str, Any]:
        """A dictionary that JSON can store."""
        return asdict(self)


def degree_statistics(counts: Ints) -> Degrees:
    """Mean, quantiles and a histogram with bins 0, 1, 2–3, 4–7, 8–15, …

    >>> degree_statistics(np.array([1, 1, 2, 3, 9])).histogram
    ((1, 1, 2), (2, 3, 2), (4, 7, 0), (8, 15, 1))
    """
    values = np.quantile(counts, QUANTILES)
    bins = np.zeros(len(counts), dtype=np.int64)
    bins[counts > 0] = np.floor(np.log2(counts[counts > 0])).astype(np.int64) + 1
    histogram = []
    for b in range(int(bins.min()), int(bins.max()) + 1):
        low, high = (0, 0) if b == 0 else (2 ** (b - 1), 2**b - 1)
        histogram.append((low, high, int((bins == b).sum())))
    shown = {f"{q:.0%}": round(float(v), 2) for q, v in zip(QUANTILES, values, strict=True)}
    return Degrees(round(float(counts.mean()), 2), shown, tuple(histogram))


def describe(data: Interactions) -> Description:
    """Statistics of a data set, and warnings about properties that may cause problems later."""
    user_counts = np.bincount(data.users, minlength=data.n_users)
    item_counts = np.bincount(data.items, minlength=data.n_items)
    draw = compare_test_part(data)
    span = (None, None) if data.times is None else (data.times.min(), data.times.max())
    return Description(
        name=data.name,
        fingerprint=data.fingerprint,
        users=data.n_users,
        items=data.n_items,
        interactions=len(data),
        density=len(data) / (data.n_users * data.n_items),
        held_out=data.n_held_out,
        duplicates=data.duplicates,
        user_degrees=degree_statistics(user_counts),
        item_degrees=degree_statistics(item_counts),
        ratings=None if data.ratings is None else _ratings(data.ratings),
        first=_date(span[0]),
        last=_date(span[1]),
        titles=0 if data.titles is None else int((data.titles != "").sum()),
        weights=_weights(data),
        user_split=_user_split(data),
        test_draw=None if draw is None else round(draw.variance, 4),
        warnings=tuple(_warnings(data, user_counts, item_counts, draw)),
        assumptions=() if is_named(data) else tuple(reading_assumptions(data)),
    )


def _user_split(data: Interactions) -> dict[str, PartCounts] | None:
    if data.user_parts is None:
        return None
    group, hidden = group_of(data.user_parts), is_hidden(data.user_parts)
    return {
        name: PartCounts(
            users=len(np.unique(data.users[group == n])),
            shown=int(((group == n) & ~hidden).sum()),
            hidden=int(((group == n) & hidden).sum()),
        )
        for n, name in enumerate(GROUPS)
        if (group == n).any()
    }


def _weights(data: Interactions) -> Weights | None:
    if data.weights is None:
        return None
    weights = data.weights / data.weights.mean()
    shown = zip(QUANTILES, np.quantile(weights, QUANTILES), strict=True)
    quantiles = {f"{q:.0%}": float(f"{value:.4g}") for q, value in shown}
    effective = float(weights.sum() ** 2 / np.square(weights).sum())
    return Weights(data.weighting, quantiles, round(effective, 1))


def _ratings(ratings: npt.NDArray[np.float32]) -> dict[str, float]:
    values, counts = np.unique(ratings, return_counts=True)
    if len(values) <= 12:
        return {f"{v:g}": int(n) for v, n in zip(values, counts, strict=True)}
    low, mean, high = float(values[0]), float(ratings.mean()), float(values[-1])
    return {"lowest": low, "mean": round(mean, 4), "highest": high}


def _date(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    try:
        return dt.datetime.fromtimestamp(seconds, tz=dt.UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):  # beyond the calendar, e.g. nanoseconds
        return f"{seconds:.0f}"


def _warnings(
    data: Interactions, user_counts: Ints, item_counts: Ints, draw: DrawComparison | None
) -> list[str]:
    found = []

    def warn(count: int, one: str, many: str) -> None:
        if count:
            found.append(f"1 {one}" if count == 1 else f"{count:,} {many}")

    few = int(((user_counts > 0) & (user_counts < FEW)).sum())
    warn(
        few, f"user has fewer than {FEW} interactions", f"users have fewer than {FEW} interactions"
    )
    warn(int((user_counts == 0).sum()), "user has no interaction", "users have no interaction")
    warn(int((item_counts == 1).sum()), "item was seen only once", "items were seen only once")
    warn(int((item_counts == 0).sum()), "item was never seen", "items were never seen")
    summed = " and their weights added up" if data.source.get("duplicates") == "sum" else ""
    merged = f"merged (highest rating, latest time){summed}"
    warn(data.duplicates, f"duplicate row was {merged}", f"duplicate rows were {merged}")
    if item_counts.max() > 0.5 * data.n_users and data.n_users >= 20:
        share = item_counts.max() / data.n_users
        found.append(f"one item was chosen by {share:.0%} of all users")
    if data.held_out is not None:
        trained = np.bincount(data.items[~data.held_out], minlength=data.n_items)
        only = int(((trained == 0) & (item_counts > 0)).sum())
        warn(only, "item occurs only in the test file", "items occur only in the test file")
        known = np.bincount(data.users[~data.held_out], minlength=data.n_users)
        only = int(((known == 0) & (user_counts > 0)).sum())
        warn(only, "user occurs only in the test file", "users occur only in the test file")
    if data.user_parts is not None:
        trained = np.bincount(data.items[data.user_parts == 0], minlength=data.n_items)
        only = int(((trained == 0) & (item_counts > 0)).sum())
        warn(only, "item has no training user", "items have no training user")
    found += [note.rstrip(".") for note in mix_up_notes(data)]
    if draw is not None and draw.note:
        found.append(draw.note.rstrip("."))
    if data.ratings is not None and data.ratings.min() == data.ratings.max():
        found.append(f"all ratings are {data.ratings[0]:g}, so they carry no information")
    found += _weight_warnings(data.weights)
    found += _time_warnings(data)
    found += [note.rstrip(".") for note in (*id_notes(data), *data.notes)]
    return found


def _weight_warnings(weights: Floats | None) -> list[str]:
    if weights is None:
        return []
    if weights.min() == weights.max():
        return ["all weights are equal, so they carry no information"]
    effective = weights.sum() ** 2 / np.square(weights).sum()
    if effective < 0.1 * len(weights):
        return [
            f"few interactions have most of the weight: {len(weights):,} interactions count as "
            f"{effective:,.0f} with equal weights would"
        ]
    return []


def _time_warnings(data: Interactions) -> list[str]:
    if data.times is None:
        return [f"{no_times(data)}, so splits by time are not possible"]
    if data.times.min() == data.times.max():
        return ["all times are equal, so splits by time are not possible"]
    return []
