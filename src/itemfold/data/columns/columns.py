"""Columns of a file or a frame: their roles, and ids, ratings and times as arrays.

`itemfold.data.merging` then maps the ids and merges duplicates.
"""

import datetime as dt
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import numpy.typing as npt

from itemfold.data.array_types import Bools, Floats
from itemfold.data.columns.column_guess import (
    Sample,
    are_events,
    are_weights,
    candidates,
    listed_columns,
    roles_by_content,
    spare_flags,
    spare_time,
    spare_weights,
    untyped,
)
from itemfold.data.columns.column_words import OPINIONS
from itemfold.data.columns.dates import date_seconds, day_first_of
from itemfold.errors import ItemfoldError

IDS = ("user", "item")
MISSING = ("nan", "na", "n/a", "null", "none", "\\n")  # texts that mean no value, in lower case
HOW_TO_SKIP = "leave such rows out with skip_bad_rows=True or --skip-bad-rows"
SOME = 10_000  # rows that say whether most of a column can be read
Where = Callable[[int], str]  # row → its place, such as "plays.csv, line 3"
Names = Mapping[str, str | int | None]  # role → the requested column


class BadRowError(ItemfoldError):
    """The value of one row is invalid; its column can be read without the row."""


@dataclass(frozen=True)
class Layout:
    """The columns of a table that were read, and others that look useful.

    Attributes:
        columns: For each role, the name of its column.
        header: Whether the names are those of the table; otherwise they are positions.
        weights: Columns that look like weights and are not used.
        times: Columns that look like times, if several do and so none is used.
        flags: Columns of 0 and 1 that say what a user did, and are not used.
        events: Columns of kinds of events, such as view and purchase.

    Examples:
        >>> layout = Layout({"user": "customer", "item": "product name"})
        >>> layout.options
        "--user-col customer --item-col 'product name'"
    """

    columns: Mapping[str, str]
    header: bool = True
    weights: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    events: tuple[str, ...] = ()

    @property
    def options(self) -> str:
        """The options of the command line that read the same columns."""
        named = (f"--{role}-col {quote(name)}" for role, name in self.columns.items())
        return " ".join([*([] if self.header else ["--no-header"]), *named])


def layout_of(
    columns: Sequence[str], at: Mapping[str, int], sample: Sample, *, header: bool = True
) -> Layout:
    """The layout of a table whose roles have these positions."""
    names = [untyped(column) for column in columns]
    used = set(at.values())
    spare = [j for j in range(len(names)) if j not in used]

    def named(positions: Sequence[int]) -> tuple[str, ...]:
        return tuple(names[j] for j in positions)

    return Layout(
        columns={role: names[j] for role, j in at.items() if j < len(names)},
        header=header,
        weights=named(
            spare_weights(names, used, sample)
            if header
            else [j for j in spare if are_weights(sample(j))]
        ),
        times=named(spare_time(names, used, sample) if header and "time" not in at else []),
        flags=named(spare_flags(names, used, sample) if header else []),
        events=named([j for j in spare if are_events(sample(j))]),
    )


@dataclass(frozen=True)
class RawTable:
    """Raw columns of equal length, before ids are mapped."""

    user: npt.NDArray[Any]  # int64 or object (str)
    item: npt.NDArray[Any]
    rating: Floats | None = None
    time: Floats | None = None
    weight: Floats | None = None
    held_out: Bools | None = None
    part: npt.NDArray[np.int8] | None = None  # `UserPart` of each row, in a split by users
    ids_are_text: bool = False  # whether they were read from text
    left_out: dict[str, str] = field(default_factory=dict)  # role of a column → why it is left out
    skipped: dict[str, int] = field(default_factory=dict)  # problem → rows that are left out
    layout: Layout | None = None
    remarks: tuple[str, ...] = ()


ROLES = ("user", "item", "rating", "time", "weight")


def choose_columns(
    columns: Sequence[str],
    names: Names,
    place: str,
    sample: Sample | None = None,
    *,
    header: bool = True,
) -> dict[str, int]:
    """Position of each role's column: the requested one, or a guess by name and values.

    ``sample`` returns some values of a column; without it, names alone decide. Columns without a
    ``header`` are called 1, 2, … and are guessed by their values.
    """
    short = [untyped(column) for column in columns]
    by_content = {} if header or sample is None else roles_by_content(len(columns), sample)
    found: dict[str, int] = {}
    for role in ROLES:
        requested = names.get(role)
        if requested is not None:
            hits = [j for j, c in enumerate(columns) if str(requested) in (c.strip(), short[j])]
        elif header and role in IDS:
            hits = _id_candidates(short, role, sample)
        elif header:
            hits = [j for j in candidates(short, role) if j not in found.values()]
        else:
            hits = [by_content[role]] if role in by_content else []
        if hits and (requested is not None or len(hits) == 1):
            found[role] = hits[0]
            if short.count(short[hits[0]]) > 1:
                raise ItemfoldError(
                    f"{place}: the {role} column must have a unique name, "
                    f"and several columns are called '{short[hits[0]]}'; rename one of them"
                )
        else:
            _check_missing(role, requested, short, place, hits)
    if found["user"] == found["item"]:
        raise ItemfoldError(f"{place}: 'user' and 'item' must be two different columns")
    if header and sample is not None and "time" not in found:
        spare = spare_time(short, found.values(), sample)
        if len(spare) == 1:
            found["time"] = spare[0]
    return found


def check_not_requested(names: Names, skip: bool, path: Path, content: str = "none") -> None:
    """Raise if a column was requested, or skipping bad rows, for a file without columns."""
    requested = [role for role, name in names.items() if name is not None]
    if skip or requested:
        setting = requested[0] if requested else "skip_bad_rows"
        raise ItemfoldError(f"'{setting}' needs a file with columns, and {path} has {content}")


def _id_candidates(names: list[str], role: str, sample: Sample | None) -> list[int]:
    """The candidate id columns of a role; empty columns only if there are no others."""
    first = hits = candidates(names, role)
    while sample is not None and hits:
        empty = [
            j
            for j in hits
            if len(sample(j))
            and all(is_missing(v) or str(v).strip().lower() in MISSING for v in sample(j))
        ]
        if not empty:
            return hits
        names = ["" if j in empty else name for j, name in enumerate(names)]
        hits = candidates(names, role)
    return first


def _check_missing(
    role: str, requested: str | int | None, columns: list[str], place: str, several: list[int]
) -> None:
    """Raise if the missing column was requested, or is the user or item column."""
    if requested is not None:
        raise ItemfoldError(
            f"{place}: no column '{requested}'; columns found: {listed_columns(columns)}"
        )
    if role in IDS:
        how = f" (name it with {role}=… or --{role}-col)"
        if several:
            likely = " or ".join(columns[j] for j in several)
            raise ItemfoldError(f"{place}: no {role} column is certain, it could be {likely}{how}")
        if role == "user" and candidates(columns, "item") and candidates(columns, "title"):
            how = "; a table of titles belongs to --titles"
        raise ItemfoldError(
            f"{place}: no {role} column; columns found: {listed_columns(columns)}{how}"
        )


def object_array(values: Sequence[Any]) -> npt.NDArray[Any]:
    """Values of any type as an array of Python objects."""
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


def _array(column: Any) -> npt.NDArray[Any]:
    if isinstance(column, np.ndarray):
        return column
    try:
        return np.asarray(column.to_numpy())
    except Exception:  # no numpy type, such as 128-bit integers: use Python objects
        return object_array(column.to_list())


def is_missing(value: Any) -> bool:
    """Whether a value of a table is missing: None, NaN, or a blank text."""
    if value is None or value is np.nan or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return (isinstance(value, str) and not value.strip()) or (
        isinstance(value, float) and value != value
    )


def _whole_numbers(column: Any) -> Any:
    """A polars text column as integers if that is lossless ("007" is not); for speed."""
    if not type(column).__module__.startswith("polars"):
        return column
    import polars as pl

    numbers = column.cast(pl.Int64, strict=False)
    same = numbers.null_count() == 0 and (numbers.cast(pl.String) == column).all()
    return numbers if same else column


def _ids(column: Any, role: str, where: Where) -> npt.NDArray[Any]:
    """External ids as int64 where they are whole numbers, else as strings."""
    values = _array(column)
    if values.ndim != 1:
        raise ItemfoldError(f"{where(0)}: {role} ids must be numbers or strings")
    if values.dtype.kind == "i" or (values.dtype.kind == "u" and values.max() < 2**63):
        return values.astype(np.int64)
    if values.dtype.kind == "f":
        bad = ~np.isfinite(values)
        if bad.any():
            raise ItemfoldError(f"{where(int(bad.argmax()))}: the {role} id is missing")
        if (values == np.floor(values)).all() and (np.abs(values) < 2**53).all():
            return values.astype(np.int64)
    return _listed_ids(values.tolist(), role, where)


def _listed_ids(listed: list[Any], role: str, where: Where) -> npt.NDArray[Any]:
    """Ids of any Python type; each distinct one is checked once."""
    try:
        distinct = dict.fromkeys(listed)  # in order: the first bad row is named
    except TypeError:
        raise ItemfoldError(f"{where(0)}: {role} ids must be numbers or strings") from None
    if bytes in map(type, distinct):  # as in binary parquet columns
        decoded: list[Any] = []
        for row, value in enumerate(listed):
            try:
                decoded.append(value.decode() if isinstance(value, bytes) else value)
            except UnicodeDecodeError:
                raise ItemfoldError(f"{where(row)}: {column_problem(value, role)}") from None
        listed, distinct = decoded, dict.fromkeys(decoded)
    for value in distinct:
        if problem := _id_problem(value, role):
            # by identity: pandas' NA cannot be compared
            row = next(row for row, other in enumerate(listed) if other is value)
            raise ItemfoldError(f"{where(row)}: {problem}")
    if all(type(v) is int and -(2**63) <= v < 2**63 for v in distinct):
        return np.array(listed, dtype=np.int64)
    return object_array([v if type(v) is str else str(v) for v in listed])


def _id_problem(value: Any, role: str) -> str:
    """The problem of an invalid id, or an empty string."""
    if is_missing(value):
        return f"the {role} id is missing"
    if isinstance(value, Collection) and not isinstance(value, str):
        return f"{role} ids must be numbers or strings"
    if isinstance(value, str) and "\0" in value:
        return f"the {role} id has a NUL character"
    return ""


def _numbers(column: Any, role: str, where: Where) -> Floats:
    """Finite numbers; dates of a time column become seconds since 1970."""
    values = _array(column)
    if values.dtype.kind in "iufb":
        numbers = values.astype(np.float64)
    elif values.dtype.kind == "M":
        numbers = (values - np.datetime64(0, "s")) / np.timedelta64(1, "s")  # a missing time is NaN
    else:
        numbers, listed = np.empty(len(values)), values.tolist()
        texts = (value for value in listed if isinstance(value, str)) if role == "time" else ()
        day_first = day_first_of(texts, where(0).rpartition(", ")[0])
        for row, value in enumerate(listed):
            try:
                numbers[row] = np.nan if is_missing(value) else to_number(value, role, day_first)
            except NOT_A_NUMBER:
                raise BadRowError(f"{where(row)}: {column_problem(value, role)}") from None
    bad = ~(np.abs(numbers) < 2.0**62)  # also true of NaN
    if role == "weight" and not bad.any():
        bad = numbers <= 0
    if bad.any():
        row = int(bad.argmax())
        raise BadRowError(f"{where(row)}: {column_problem(float(numbers[row]), role)}")
    return numbers


def _how_to_keep(column: Any, role: str) -> str:
    """How to read a column that few rows spoil, or an empty string."""
    some = _array(column)[:SOME].tolist()
    bad = sum(bool(column_problem(value, role)) for value in some)
    return f"; {HOW_TO_SKIP}" if bad <= 0.5 * len(some) else ""


# Three digits after one comma could also be thousands.
DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d{1,2}", re.ASCII)
THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+|,\d{3})", re.ASCII)
NOT_A_NUMBER = (ValueError, TypeError, AttributeError, OverflowError)


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
        return f"the {role} id is missing" if infinite else _id_problem(value, role)
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


def table_of(
    get: Callable[[int], Any], at: dict[str, int], where: Where, text: bool, names: Names
) -> RawTable:
    """Parse the columns at these positions; ``get`` returns one, ``where`` names a row in errors.

    ``text`` says whether the ids were read from text. A column that was not requested and cannot
    be parsed is left out.
    """
    left_out: dict[str, str] = {}

    def numbers(role: str) -> Floats | None:
        if role not in at:
            return None
        column = get(at[role])
        try:
            return _numbers(column, role, where)
        except ItemfoldError as error:
            if names.get(role) is not None:
                raise
            how = _how_to_keep(column, role) if isinstance(error, BadRowError) else ""
            left_out[role] = f"{error}{how}"  # raised when the column is needed
            return None

    user, item = (_whole_numbers(get(at[r])) if text else get(at[r]) for r in ("user", "item"))
    return RawTable(
        user=_ids(user, "user", where),
        item=_ids(item, "item", where),
        rating=numbers("rating"),
        time=numbers("time"),
        weight=numbers("weight"),
        ids_are_text=text,
        left_out=left_out,
    )
