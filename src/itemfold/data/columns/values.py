"""The value of one cell: parsing of numbers and times, and the problem of an invalid value."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Collection
from typing import Any

import numpy as np

from itemfold.data.columns.column_words import OPINIONS
from itemfold.data.columns.dates import date_seconds

MISSING = ("nan", "na", "n/a", "null", "none", "\\n")  # texts that mean no value, in lower case

# Three digits after one comma could also be thousands.
DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d{1,2}", re.ASCII)
THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+|,\d{3})", re.ASCII)
NOT_A_NUMBER = (ValueError, TypeError, AttributeError, OverflowError)


def is_missing(value: Any) -> bool:
    """Whether a value of a table is missing: None, NaN, or a blank text."""
    if value is None or value is np.nan or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return (isinstance(value, str) and not value.strip()) or (
        isinstance(value, float) and value != value
    )


def to_number(value: Any, role: str, day_first: bool | None = None) -> float:
    """Parse a number; for the role "time" also a date, as seconds since 1970.

    A rating may be a word such as "like" (1) or "dislike" (0). ``day_first`` says what 3/4/2024 is.

    >>> to_number("4.5", "rating"), to_number("4,5", "rating"), to_number("Dislike", "rating")
    (4.5, 4.5, 0.0)
    >>> to_number("1970-01-02 00:00:01 UTC", "time"), to_number("1/2/1970", "time", day_first=False)
    (86401.0, 86400.0)
    """
    try:
        return float(value)
    except (ValueError, TypeError):
        if role != "time":
            return _decimal_or_opinion(value, role)
    if hasattr(value, "year"):
        moment = value
    else:
        try:
            text = value.strip()
            in_utc = text.endswith(" UTC")  # `fromisoformat` takes an offset only
            iso = f"{text.removesuffix(' UTC')}+00:00" if in_utc else text
            moment = dt.datetime.fromisoformat(iso)
        except ValueError:
            return date_seconds(value, day_first)
    if not isinstance(moment, dt.datetime):
        moment = dt.datetime(moment.year, moment.month, moment.day)
    return (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp()


def _decimal_or_opinion(value: str, role: str) -> float:
    text = value.strip()
    if DECIMAL_COMMA.fullmatch(text):
        return float(text.replace(",", "."))
    if THOUSANDS.fullmatch(text):
        return float(text.replace(",", ""))
    if role == "rating" and text.lower() in OPINIONS:
        return OPINIONS[text.lower()]
    raise ValueError(f"not a number: {text[:60]!r}")


def column_problem(value: Any, role: str) -> str:
    """The problem of an invalid value in the column of a role, or an empty string.

    >>> column_problem("four", "rating"), column_problem("4", "rating")
    ("the rating must be a number, got 'four'", '')
    """
    if role in ("user", "item"):
        if isinstance(value, bytes):
            try:
                value = value.decode()
            except UnicodeDecodeError:
                return f"the {role} id must be UTF-8 text, got {value[:60]!r}"
        infinite = isinstance(value, float) and not math.isfinite(value)
        return f"the {role} id is missing" if infinite else id_problem(value, role)
    try:
        number = math.nan if is_missing(value) else to_number(value, role, day_first=False)
    except NOT_A_NUMBER:
        expected = "seconds or a date like 2024-01-31" if role == "time" else "a number"
        return f"the {role} must be {expected}, got {str(value)[:60]!r}"
    if not abs(number) < 2.0**62:  # or NaN
        return f"the {role} is missing or not finite"
    if role == "weight" and number <= 0:
        return f"the weight must be a positive number, got {number:g}"
    return ""


def id_problem(value: Any, role: str) -> str:
    """The problem of an invalid id, or an empty string."""
    if is_missing(value):
        return f"the {role} id is missing"
    if isinstance(value, Collection) and not isinstance(value, str):
        return f"{role} ids must be numbers or strings"
    if isinstance(value, str) and "\0" in value:
        return f"the {role} id has a NUL character"
    return ""
