"""Rows that cannot be used: all problems of a source are told at once, or the rows are left out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from itemrec.data.columns import Where, value_problem
from itemrec.data.interactions import HOW_TO_SKIP
from itemrec.errors import ItemrecError

Problems = dict[int, str]  # row → its first problem


def find_problems(columns: Mapping[str, Sequence[Any]], known: Problems | None = None) -> Problems:
    """The first problem of each row, by roles and their values; slow, for sources that have any.

    >>> find_problems({"user": ["ann", ""], "rating": ["4", "good"]})
    {1: 'the user id is missing'}
    """
    found = dict(known or {})
    for role, values in columns.items():
        for row, value in enumerate(values):
            if row not in found and (problem := value_problem(value, role)):
                found[row] = problem
    return found


def by_kind(found: Problems) -> dict[str, list[int]]:
    """The rows of each kind of problem, which is its text without the value."""
    kinds: dict[str, list[int]] = {}
    for row in sorted(found):
        kinds.setdefault(re.split(", (?:got|found) ", found[row])[0], []).append(row)
    return kinds


def kept_rows(
    found: Problems, n_rows: int, place: str, where: Where, *, skip: bool
) -> tuple[npt.NDArray[np.bool_], dict[str, int]]:
    """Which rows remain, bool [rows], and how many of each kind are left out; raise unless `skip`.

    The error names the first row of each kind of problem.
    """
    kinds = by_kind(found)
    if found and not skip:
        raise ItemrecError(f"{_listing(found, kinds, where)}; {HOW_TO_SKIP}")
    keep = np.ones(n_rows, dtype=np.bool_)
    keep[list(found)] = False
    if not keep.any():
        raise ItemrecError(f"{place}: no row can be used; {_listing(found, kinds, where)}")
    return keep, {kind: len(rows) for kind, rows in kinds.items()}


def _listing(found: Problems, kinds: Mapping[str, list[int]], where: Where) -> str:
    parts: list[str] = []
    for rows in kinds.values():
        row = where(rows[0])
        more = f" ({len(rows):,} such rows)" if len(rows) > 1 else ""
        parts.append(f"{row.rpartition(', ')[2] if parts else row}: {found[rows[0]]}{more}")
    return "; ".join(parts)
