"""Units of time columns, and moments as text."""

from __future__ import annotations

import datetime as dt

RELATIVE = 3e8  # times below it are no dates, but counted from some start
DAY = 86400.0


def moment_text(seconds: float, span: float) -> str:
    """A moment as a date, with the time of day if the data spans less than two months.

    >>> moment_text(1_520_000_000, 1e8), moment_text(1_520_000_000, 1e5), moment_text(12, 100)
    ('2018-03-02', '2018-03-02 14:13', '12')
    """
    if not RELATIVE <= seconds < 2.5e11:  # the year 9892
        return f"{seconds:g}"
    moment = dt.datetime.fromtimestamp(float(seconds), tz=dt.UTC)
    return moment.strftime("%Y-%m-%d" if span >= 60 * DAY else "%Y-%m-%d %H:%M")
