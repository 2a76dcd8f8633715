"""The columns of a file or a frame as arrays: ids, ratings, times and weights of each row.

`itemfold.data.merging` then maps the ids and merges duplicates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from itemfold.data.array_types import Bools, Floats
from itemfold.data.columns.bad_rows import HOW_TO_SKIP, Where
from itemfold.data.columns.choice import Names
from itemfold.data.columns.dates import day_first_of
from itemfold.data.columns.layout import Layout
from itemfold.data.columns.values import (
    NOT_A_NUMBER,
    column_problem,
    id_problem,
    is_missing,
    to_number,
)
from itemfold.errors import ItemfoldError

SOME = 10_000  # rows that say whether most of a column can be read


class BadRowError(ItemfoldError):
    """The value of one row is invalid; its column can be read without the row."""


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
        if problem := id_problem(value, role):
            # by identity: pandas' NA cannot be compared
            row = next(row for row, other in enumerate(listed) if other is value)
            raise ItemfoldError(f"{where(row)}: {problem}")
    if all(type(v) is int and -(2**63) <= v < 2**63 for v in distinct):
        return np.array(listed, dtype=np.int64)
    return object_array([v if type(v) is str else str(v) for v in listed])


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
