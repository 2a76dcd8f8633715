"""Weights of interactions from a weight column, repeated rows and recency.

A row's value comes from the weight column, or is 1. The highest value of a pair's rows, or their
sum, is then transformed. Recency halves a weight with every half-life; in a sum, each row decays by
itself. Only ratios of weights matter: a split divides them by their mean over the training part.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from itemfold.data.array_types import Floats, Ints
from itemfold.errors import ItemfoldError
from itemfold.validation import one_of

SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 7 * 86400.0, "y": 365.25 * 86400.0}
LEAST = 1e-6  # of the mean: the lowest weight, so that no node has a degree of 0
MOST_HALVINGS = 1000.0  # beyond it, a weight would be 0 in double precision
NEVER = "never"  # a half-life with which nothing is forgotten
DURATION = "'half_life' must be a duration such as 12h, 30d, 2w or 1y, got {!r}"


@dataclass(frozen=True)
class Weighting:
    """How the weights of a data set are computed; by default there are none."""

    column: str | int | None = None
    half_life: str | None = None
    transform: str | None = None
    duplicates: str = "merge"

    def __post_init__(self) -> None:
        one_of("duplicates", self.duplicates, ("merge", "sum"))
        if self.transform is not None:
            one_of("weight_transform", self.transform, ("log", "none"))
            if not self.has_values:
                raise ItemfoldError(
                    "'weight_transform' needs weights to transform; set 'weight' or "
                    "duplicates='sum' (--weight-col or --duplicates sum)"
                )
        if self.half_life is not None:
            half_life_seconds(self.half_life)

    @property
    def has_values(self) -> bool:
        """Whether weights depend on anything but recency."""
        return self.column is not None or self.duplicates == "sum"

    @property
    def is_used(self) -> bool:
        """Whether interactions have weights."""
        return self.has_values or self.half_life is not None

    @property
    def is_log(self) -> bool:
        """Whether a value v becomes log(1 + v)."""
        return self.has_values and self.transform != "none"

    def settings(self) -> dict[str, Any]:
        """The arguments of `read` that reproduce it, None for a default."""
        return {
            "weight": self.column,
            "half_life": self.half_life,
            "weight_transform": self.transform,
            "duplicates": None if self.duplicates == "merge" else self.duplicates,
        }

    def __str__(self) -> str:
        value = "number of rows" if self.column is None else f"column {self.column}"
        if self.column is not None and self.duplicates == "sum":
            value = f"sum of {value}"
        parts = [f"log(1 + {value})" if self.is_log else value] if self.has_values else []
        if self.half_life is not None:
            parts.append(f"recency with half-life {self.half_life}")
        return " × ".join(parts)


def fades(half_life: str | None) -> bool:
    """Whether a half-life setting reduces the weight of old interactions."""
    return half_life not in (None, NEVER)


def half_life_seconds(text: Any) -> float:
    """Seconds of a half-life such as ``12h``, ``30d``, ``2w`` or ``1y``.

    >>> half_life_seconds("30d")
    2592000.0
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdwy])", str(text).strip().lower())
    seconds = float(found[1]) * SECONDS[found[2]] if found else 0.0
    if not 0 < seconds < float("inf"):
        raise ItemfoldError(DURATION.format(text))
    return seconds


def pair_weights(
    weighting: Weighting,
    values: Floats,
    times: Floats | None,
    starts: Ints,
    latest: float | None = None,
) -> Floats:
    """The weight of each pair, from the values and times of its rows.

    Rows are ordered by pair, and ``starts`` gives the first row of each pair. Recency counts from
    ``latest``; default: the last of these times.

    >>> Weighting("plays", duplicates="sum", transform="none")
    Weighting(column='plays', half_life=None, transform='none', duplicates='sum')
    >>> pair_weights(_, np.array([2.0, 3.0, 4.0]), None, np.array([0, 2])).tolist()
    [5.0, 4.0]
    """
    fading, recency = np.ones(len(values)), np.ones(len(starts))
    if weighting.half_life is not None and times is not None:
        half_life = half_life_seconds(weighting.half_life)
        halvings = times / half_life
        last = np.maximum.reduceat(halvings, starts)  # of each pair
        size = np.diff(np.append(starts, len(values)))
        fading = _power(halvings - np.repeat(last, size))  # until the pair's last row
        end = last.max() if latest is None else latest / half_life
        recency = _power(last - end)  # from then until the data's last row
    if weighting.duplicates == "sum":
        total = np.add.reduceat(values * fading, starts)
    else:
        total = np.maximum.reduceat(values, starts)
    return (np.log1p(total) if weighting.is_log else total) * recency


def fading(age: Floats, half_life: str) -> Floats:
    """The weight factor of interactions by age in seconds.

    >>> fading(np.array([0.0, 86400.0]), "1d").tolist()
    [1.0, 0.5]
    """
    return _power(-age / half_life_seconds(half_life))


def _power(halvings: Floats) -> Floats:
    out: Floats = np.exp2(np.maximum(halvings, -MOST_HALVINGS))
    return out


def is_weighted(matrix: sp.csr_array) -> bool:
    """Whether some entry is not one."""
    return not bool((matrix.data == 1).all())


def scaled(matrix: sp.csr_array, mean: float) -> sp.csr_array:
    """The matrix with its entries divided by a mean, float32, at least `LEAST`."""
    data = np.maximum(matrix.data / mean, LEAST).astype(np.float32)
    out = sp.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)
    out.has_sorted_indices = out.has_canonical_format = True
    return out


def weight_note(weighting: Any, weights: npt.NDArray[Any]) -> str:
    """A sentence on the source and the distribution of weights.

    >>> weight_note("column plays", np.array([0.5, 0.5, 2.0]))
    'Weights: column plays, divided by their mean; 5 % 0.5, median 0.5, 95 % 1.85, highest 2.'
    """
    low, middle, high = np.quantile(weights, (0.05, 0.5, 0.95))
    spread = f"5 % {low:.3g}, median {middle:.3g}, 95 % {high:.3g}, highest {weights.max():.3g}"
    return f"Weights: {weighting}, divided by their mean; {spread}."


def weight_digest(matrix: sp.csr_array) -> str:
    """16 hex digits over the entries of a matrix."""
    data = np.ascontiguousarray(matrix.data, dtype=np.float32)
    return hashlib.sha256(data.tobytes()).hexdigest()[:16]


def duration_text(value: Any) -> str | None:
    """A half-life as text; a `timedelta` becomes seconds."""
    if isinstance(value, dt.timedelta):
        return f"{value.total_seconds():f}s"
    if value is not None and not isinstance(value, str):
        raise ItemfoldError(DURATION.format(value))
    return value
