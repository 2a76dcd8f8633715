"""Parsers of option values: lists, ids, cut-offs, durations, caps."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

from itemfold.errors import ItemfoldError


def parse_list(name: str, text: str) -> list[str]:
    """The parts between commas; a part in quotes may contain commas, as in a CSV file.

    >>> parse_list("history", '1, "it,em""1",b')
    ['1', 'it,em"1', 'b']
    """
    try:
        rows = list(csv.reader(io.StringIO(text), skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise ItemfoldError(
            f"'{name}' must be a list such as '1,\"a,b\"' with its quotes closed, got {text!r}"
        ) from error
    return [part.strip() for row in rows for part in row if part.strip()]


def parse_optional_list(name: str, text: str | None) -> list[str] | None:
    """The parts of a list; None if the option was not given."""
    return None if text is None else parse_list(name, text)


def parse_numbers(name: str, text: str | None) -> list[float] | None:
    """The numbers of a list; None if the option was not given.

    >>> parse_numbers("weights", "1, 2.5")
    [1.0, 2.5]
    """
    if text is None:
        return None
    try:
        return [float(part) for part in parse_list(name, text)]
    except ValueError:
        raise ItemfoldError(f"'{name}' must be numbers such as 1,2.5, got {text!r}") from None


def parse_cutoffs(text: str) -> list[int]:
    """The cut-offs of ``--k``.

    >>> parse_cutoffs("10,20")
    [10, 20]
    """
    parts = parse_list("--k", text)
    if not parts or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ItemfoldError(f"'--k' must be positive integers such as 10,20, got {text!r}")
    return [int(part) for part in parts]


def parse_caps(texts: Sequence[str]) -> dict[str, int]:
    """The caps of ``--max-per``.

    >>> parse_caps(["genre=3", "country=5"])
    {'genre': 3, 'country': 5}
    """
    caps: dict[str, int] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if not name.strip() or not number.strip().isdecimal() or int(number) < 1:
            raise ItemfoldError(f"'--max-per' must be COLUMN=N, such as genre=3, got {text!r}")
        caps[name.strip()] = int(number)
    return caps


SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_duration(name: str, text: str | None) -> float | None:
    """Seconds of a duration such as ``90s``, ``10m`` or ``2h``.

    >>> parse_duration("budget", "10m"), parse_duration("budget", None)
    (600.0, None)
    """
    if text is None:
        return None
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", text.strip().lower())
    seconds = float(found[1]) * SECONDS[found[2]] if found else 0.0
    if not 0 < seconds < float("inf"):
        raise ItemfoldError(f"'{name}' must be a duration such as 90s, 10m or 2h, got {text!r}")
    return seconds
