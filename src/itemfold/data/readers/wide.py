"""Reader of rating matrices, with a row per user and a column per item, or the reverse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from itemfold.data.columns.choice import Names
from itemfold.data.columns.column_guess import candidates, is_number, numbers_of, untyped
from itemfold.data.columns.raw_table import RawTable, object_array
from itemfold.data.columns.values import NOT_A_NUMBER, to_number
from itemfold.data.readers.packed import encoding_note
from itemfold.data.readers.text_format import Record, TextFormat, records_of
from itemfold.errors import ItemfoldError, NoRowsError

LEAST = 5  # columns of items; fewer are rather facts about a user
HIGHEST = 10.0  # rating in a matrix
MISSING = ("", "nan", "na", "null", "none", "?", "-")


def is_wide(names: Names, form: TextFormat, rows: list[Record]) -> bool:
    """Whether a table is a matrix of ratings, most of them missing or 0 in some columns.

    The first column has ids, all others have ratings up to 10, and none has a known name.
    """
    if not form.header or any(name is not None for name in names.values()):
        return False
    columns, rest = rows[0][1], [fields for _, fields in rows[1:]]
    if len(columns) <= LEAST or len(rest) < 2 or any(len(f) != len(columns) for f in rest):
        return False
    ids = [fields[0] for fields in rest]
    others = [untyped(name) for name in columns[1:]]
    known = any(candidates(others, role) for role in ("user", "item", "rating", "time"))
    if len(set(ids)) < len(ids) or known:
        return False
    cells = [cell for fields in rest for cell in fields[1:]]
    filled = [cell for cell in cells if cell.strip().lower() not in MISSING]
    values = numbers_of(filled) if all(map(is_number, filled)) else None
    has_gaps = len(filled) < len(cells) or bool(values and 0.0 in values)
    return bool(values) and has_gaps and max(values or ()) <= HIGHEST


def read_wide(path: Path, form: TextFormat, *, skip: bool = False) -> RawTable:
    """Read a matrix; an empty cell and a 0 are no interaction."""
    entries, remark = wide_entries(path, form, skip=skip)
    users, items, ratings = zip(*entries, strict=True)
    values = np.array(ratings)
    return RawTable(
        object_array(users),
        object_array(items),
        rating=None if (values == 1).all() else values,
        ids_are_text=True,
        remarks=(remark, *encoding_note(form.encoding)),
    )


def wide_entries(
    path: Path, form: TextFormat, *, skip: bool = False
) -> tuple[Iterator[tuple[str, str, float]], str]:
    """(user, item, rating) of the cells of a matrix, line by line, and how it was read."""
    if skip:
        raise ItemfoldError(
            f"'skip_bad_rows' needs a row for each interaction, and {path} is a matrix"
        )
    records = records_of(path, replace(form, header=True))
    columns = [untyped(name) for name in next(records)[1]]
    cells = _cells(path, columns, records)
    first = next(cells, None)
    if first is None:
        raise NoRowsError(f"{path}: the matrix has no entries")
    of_items = bool(candidates(columns[:1], "item") or candidates(columns[:1], "title"))
    entries = ((b, a, r) if of_items else (a, b, r) for a, b, r in chain([first], cells))
    sides = "items × users" if of_items else "users × items"
    remark = f"The table was read as a matrix of {sides}; empty cells and 0 are no interaction."
    return entries, remark


def _cells(
    path: Path, columns: list[str], records: Iterator[Record]
) -> Iterator[tuple[str, str, float]]:
    """(name of the row, name of the column, rating) of each cell with an interaction."""
    for line, fields in records:
        if len(fields) != len(columns):
            raise ItemfoldError(
                f"{path}, line {line}: expected {len(columns)} fields, found {len(fields)}"
            )
        for name, cell in zip(columns[1:], fields[1:], strict=True):
            if cell.strip().lower() in MISSING:
                continue
            try:
                rating = to_number(cell, "rating")
            except NOT_A_NUMBER:
                raise ItemfoldError(
                    f"{path}, line {line}: the rating must be a number, got {cell[:60]!r}"
                ) from None
            if rating:
                yield fields[0].strip(), name, rating
