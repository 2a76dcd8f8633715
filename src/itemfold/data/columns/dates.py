"""Parsing of dates such as 31.01.2024, 1/31/2024 1:05 PM, Jan 31, 2024, 2024/01/31, and of those
that C writes, such as Wed Jan 31 13:05:00 2024."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable

from itemfold.errors import ItemfoldError

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
CLOCK = (
    r"(?:[T ,]+(?P<h>\d{1,2}):(?P<min>\d\d)(?::(?P<s>\d\d(?:\.\d+)?))?"
    r"(?:\s*(?P<half>[AaPp])\.?[Mm]\.?)?)?"
    r"\s*(?:Z|UTC|GMT|(?P<zone>[+-]\d\d:?\d\d))?"
)
NAME = r"(?P<name>[A-Za-z]{3})[A-Za-z]*\.?"
WEEKDAY = r"(?:[A-Za-z]{3,9},? )?"
FORMS = [
    re.compile(rf"\s*{form}\s*", re.ASCII)
    for form in (
        rf"(?P<y>\d{{4}})([/.-])(?P<m>\d\d?)\2(?P<d>\d\d?){CLOCK}",
        rf"(?P<d>\d\d?)\.(?P<m>\d\d?)\.(?P<y>\d{{4}}|\d\d){CLOCK}",
        rf"{WEEKDAY}(?P<d>\d\d?)[. -]+{NAME}[ ,-]+(?P<y>\d{{4}}){CLOCK}",
        rf"{WEEKDAY}{NAME} (?P<d>\d\d?),? (?P<y>\d{{4}}){CLOCK}",
        rf"(?P<m>\d\d?) (?P<d>\d\d?), (?P<y>\d{{4}}){CLOCK}",  # Amazon's reviews
        rf"{WEEKDAY}{NAME} +(?P<d>\d\d?){CLOCK} (?P<y>\d{{4}})",  # Twitter, Foursquare, Goodreads
    )
]
TWO_ORDERS = re.compile(
    rf"\s*(?P<a>\d\d?)([/-])(?P<b>\d\d?)\2(?P<y>\d{{4}}|\d\d){CLOCK}\s*", re.ASCII
)


def date_seconds(text: str, day_first: bool | None = None) -> float:
    """Seconds since 1970 of a date, in UTC unless it has an offset; ValueError if it is none.

    ``day_first`` says what 3/4/2024 is; without it, only dates with one reading are accepted.

    >>> date_seconds("1/31/1970 12:00 PM") == date_seconds("31.1.1970 12:00") == 30.5 * 86400
    True
    >>> date_seconds("2/1/1970", day_first=True), date_seconds("2/1/1970", day_first=False)
    (86400.0, 2678400.0)
    """
    for form in FORMS:
        if found := form.fullmatch(text):
            parts = found.groupdict()
            month = parts.get("m") or 1 + MONTHS.index(parts["name"].lower())
            return _seconds(parts, int(month), int(parts["d"]))
    found = TWO_ORDERS.fullmatch(text)
    if not found:
        raise ValueError(f"not a date: {text!r}")
    first, second = int(found["a"]), int(found["b"])
    if day_first is None and max(first, second) <= 12 and first != second:
        raise ValueError(f"day and month are not certain: {text!r}")
    is_day = first > 12 or (bool(day_first) and second <= 12)
    month, day = (second, first) if is_day else (first, second)
    return _seconds(found.groupdict(), month, day)


def day_first_of(texts: Iterable[str], place: str) -> bool | None:
    """Whether days come before months in dates such as 31/1/2024; None if there are none.

    Raises if that is not certain, or if it differs between dates.

    >>> day_first_of(["3/4/2024", "3/14/2024"], "plays.csv"), day_first_of(["2024-03-04"], "")
    (False, None)
    """
    seen: dict[bool, str] = {}
    open_ = ""
    for text in texts:
        found = TWO_ORDERS.fullmatch(text)
        if not found:
            continue
        first, second = int(found["a"]), int(found["b"])
        if max(first, second) > 12:
            seen.setdefault(first > 12, text.strip())
        elif first != second:
            open_ = open_ or text.strip()
    return decided(seen, open_, place)


def decided(seen: dict[bool, str], uncertain: str, place: str) -> bool | None:
    """The order of day and month, from a date in each order and an ambiguous one."""
    if len(seen) == 2:
        raise ItemfoldError(
            f"{place}: the times must have one order of day and month, got '{seen[True]}' and "
            f"'{seen[False]}'; write dates like 2024-01-31"
        )
    if uncertain and not seen:
        raise ItemfoldError(
            f"{place}: the times could be day/month or month/day, such as '{uncertain}', because "
            "no day is above 12; write dates like 2024-01-31"
        )
    return next(iter(seen), None)


def _seconds(parts: dict[str, str | None], month: int, day: int) -> float:
    year, hour = int(parts["y"] or 0), int(parts["h"] or 0)
    if year < 100:
        year += 1900 if year > 68 else 2000  # as POSIX does
    if parts["half"]:
        if not 1 <= hour <= 12:
            raise ValueError(f"not an hour of half a day: {hour}")
        hour = hour % 12 + 12 * (parts["half"] in "pP")
    moment = dt.datetime(year, month, day, hour, int(parts["min"] or 0), tzinfo=dt.UTC)
    seconds = moment.timestamp() + float(parts["s"] or 0)
    if zone := parts["zone"]:
        offset = 60 * int(zone[1:3]) + int(zone[-2:])
        seconds -= (-60 if zone[0] == "-" else 60) * offset
    return seconds
