"""Units of time columns, and moments as text."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Mapping

import numpy as np

from itemfold.data.array_types import Floats
from itemfold.errors import ItemfoldError

# Numbers in a second; a column has the unit in which its values lie between these years.
UNITS = {"seconds": 1.0, "milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}
EARLIEST, LATEST = 631_152_000.0, 4_102_444_800.0  # 1990 and 2100
RELATIVE = 315_532_800.0  # 1980; times below it are no dates, but counted from some start
CALENDAR = ((1900, 2100), (19_000_101, 21_001_231))  # years, and dates written as one number
DAY = 86400.0


def in_seconds(times: Floats, place: str) -> tuple[Floats, tuple[str, ...]]:
    """A time column in seconds, and notes on its unit and on implausible times.

    >>> in_seconds(np.array([1_520_000_000_000.0]), "plays")
    (array([1.52e+09]), ('Times are in milliseconds: divided by 1,000.',))
    """
    notes: tuple[str, ...] = ()
    if len(times) and times.max() >= EARLIEST * UNITS["milliseconds"]:
        counts = {
            unit: int(((times >= EARLIEST * per) & (times < LATEST * per)).sum())
            for unit, per in UNITS.items()
        }
        if (unit := unit_of(counts, place)) != "seconds":
            times, notes = times / UNITS[unit], (unit_note(unit),)
    elif len(times) and any(low <= times.min() and times.max() <= high for low, high in CALENDAR):
        notes = (f"Times such as {times[0]:.0f} are not seconds; only their order is used.",)
    else:
        notes = past_notes(times)
    return times, (*notes, *future_notes(times))


def unit_of(counts: Mapping[str, int], place: str) -> str:
    """The unit of a column, from the number of values that are dates in each unit."""
    found = [unit for unit in UNITS if counts.get(unit)]
    if len(found) > 1:
        listed = " and ".join(f"{counts[unit]:,} in {unit}" for unit in found)
        raise ItemfoldError(
            f"{place}: the times must have one unit, got {listed}; convert all to seconds"
        )
    return found[0] if found else "seconds"


def unit_note(unit: str) -> str:
    """A note on the conversion of times.

    >>> unit_note("microseconds")
    'Times are in microseconds: divided by 1,000,000.'
    """
    return f"Times are in {unit}: divided by {UNITS[unit]:,.0f}."


def are_dates(times: Floats) -> bool:
    """Whether some times are dates, rather than offsets from some start."""
    return bool(len(times)) and float(times.max()) >= RELATIVE


def past_notes(times: Floats) -> tuple[str, ...]:
    """A note on times that are not dates, or on values among dates that look missing.

    >>> past_notes(np.array([5.0, 9.0]))
    ('All times lie before 1980; they are taken as seconds.',)
    """
    if not len(times) or times.min() == times.max():
        return ()
    if not are_dates(times):
        return ("All times lie before 1980; they are taken as seconds.",)
    if not (count := int((times <= 0).sum())):
        return ()
    return (
        f"Times of 0 or before: {count:,} of {len(times):,}; they count as the earliest. Remove "
        "these rows if that means missing.",
    )


def future_notes(times: Floats) -> tuple[str, ...]:
    """A note on times more than a day in the future, if there are any."""
    limit = time.time() + DAY
    if not len(times) or times.max() <= limit:
        return ()
    count, latest = int((times > limit).sum()), moment_text(float(times.max()), np.inf)
    return (f"Interactions with a time in the future: {count:,}, the latest {latest}.",)


def moment_text(seconds: float, span: float) -> str:
    """A moment as a date, with the time of day if the data spans less than two months.

    >>> moment_text(1_520_000_000, 1e8), moment_text(1_520_000_000, 1e5), moment_text(20240131, 9)
    ('2018-03-02', '2018-03-02 14:13', '20240131')
    """
    if not RELATIVE <= seconds < 253_402_300_800:  # the year 10000
        return f"{seconds:.15g}"
    moment = dt.datetime.fromtimestamp(float(seconds), tz=dt.UTC)
    return moment.strftime("%Y-%m-%d" if span >= 60 * DAY else "%Y-%m-%d %H:%M")
