"""Repeat consumption: the earlier rows of pairs that occur several times, and splits that use them.

Check-ins, baskets and plays come back: what a user did before is a good guess for later. A split
with `repeats` holds a pair out again in every period in which it occurs, so that a target may be in
the history, and lists keep items that a user has seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from itemfold.data.array_types import Bools, Floats, Ints
from itemfold.data.splitting.periods import Periods, latest_from
from itemfold.errors import ItemfoldError

if TYPE_CHECKING:
    from itemfold.data.interactions import Interactions

SUGGESTED = 0.2  # share of later interactions that repeat earlier ones, from which it is suggested


@dataclass(frozen=True)
class Events:
    """Every row of the data: the entry of its pair in the sorted matrix, and its time."""

    entries: Ints  # [rows]
    times: Floats  # [rows]
    n_entries: int

    @classmethod
    def of(cls, data: Interactions, times: Floats, order: Ints) -> Events:
        """The rows of data whose pairs have these times in the sorted matrix."""
        entries = np.arange(len(order))
        if data.earlier is None:
            return cls(entries, times, len(order))
        place = np.empty(len(order), np.int64)
        place[order] = entries
        return cls(
            np.concatenate([entries, place[data.earlier.pairs]]),
            np.concatenate([times, data.earlier.times]),
            len(order),
        )

    def within(self, rows: Bools) -> Bools:
        """Mask of the pairs that occur in these rows, ``[entries]``."""
        out = np.zeros(self.n_entries, np.bool_)
        out[self.entries[rows]] = True
        return out

    def last(self, rows: Bools) -> Floats:
        """The last time of each pair in these rows, −∞ where it does not occur, ``[entries]``."""
        out = np.full(self.n_entries, -np.inf)
        np.maximum.at(out, self.entries[rows], self.times[rows])
        return out


def check_repeats(repeats: Any, data: Interactions) -> bool:
    """Whether a split uses repeats; raise if the data cannot."""
    if not isinstance(repeats, bool):
        raise ItemfoldError(f"'repeats' must be true or false, got {repeats!r}")
    if repeats and data.weights is not None:
        raise ItemfoldError(
            "'repeats' cannot be combined with weights, which count the later rows of a pair, too; "
            "leave out 'weight', 'half_life' and 'duplicates'"
        )
    return repeats


def repeating_periods(
    data: Interactions, times: Floats, order: Ints, valid: float, test: float
) -> tuple[Interactions, Periods]:
    """Periods in which a pair may occur several times, and the data with times known before them.

    The latest fraction ``test`` of all rows is the test period, the latest fraction ``valid`` of
    the rest the validation period.
    """
    events = Events.of(data, times, order)
    start = latest_from(events.times, test) if test else np.inf
    past = events.times < start
    begin = latest_from(events.times[past], valid) if valid and past.any() else np.inf
    early, middle = past & (events.times < begin), past & (events.times >= begin)
    periods = Periods(events.within(early), events.within(middle), events.within(~past))
    periods = replace(periods, valid_times=events.last(middle))
    # what happens later must not reach the weights by recency: the last time within training
    known = np.where(periods.train, events.last(early), events.last(past))
    known = np.where(np.isfinite(known), known, times)
    moments = np.empty(len(order))
    moments[order] = known
    return replace(data, times=moments), periods


def repeat_note(data: Interactions, times: Floats, order: Ints, test: float) -> list[str]:
    """A note that suggests `repeats` if many later interactions repeat earlier ones."""
    if data.earlier is None or data.weights is not None:
        return []
    events = Events.of(data, times, order)
    later = events.times >= latest_from(events.times, test)  # never empty
    share = float(events.within(~later)[events.entries[later]].mean())
    if share < SUGGESTED:
        return []
    return [
        f"{share:.0%} of the interactions in the test period repeat earlier ones of the same user: "
        "--repeats (repeats=True) keeps such items in the lists and in the test part."
    ]


@dataclass(frozen=True, eq=False)
class EarlierRows:
    """Rows of pairs that occur several times, without each pair's last one."""

    pairs: npt.NDArray[np.int64]  # index of the pair, [rows]
    times: Floats  # [rows]

    def where(self, keep: Bools) -> EarlierRows | None:
        """The rows of the pairs where ``keep`` is true, which are renumbered."""
        kept = keep[self.pairs]
        if not kept.any():
            return None
        return EarlierRows((np.cumsum(keep) - 1)[self.pairs[kept]], self.times[kept])


def earlier_rows(times: Floats | None, starts: Ints) -> EarlierRows | None:
    """The earlier rows of pairs, from the times of rows that are ordered by pair."""
    if times is None or len(starts) == len(times):
        return None
    pairs = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(times))))
    order = np.lexsort((times, pairs))
    is_last = np.zeros(len(times), np.bool_)
    is_last[order[np.append(starts[1:], len(times)) - 1]] = True
    return EarlierRows(pairs[~is_last], times[~is_last])
