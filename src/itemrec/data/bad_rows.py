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
        kinds.setdefault(_kind(found[row]), []).append(row)
    return kinds


def _kind(problem: str) -> str:
    return re.split(", (?:got|found) ", problem)[0]


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
    count = ProblemCount()
    for rows in kinds.values():
        count.add(where(rows[0]), found[rows[0]], len(rows))
    return count.sentence()


class ProblemCount:
    """Problems of rows that are met one after another: the first place of each kind, and counts.

    >>> count = ProblemCount()
    >>> for line in (2, 5):
    ...     count.add(f"plays.csv, line {line}", "the user id is missing")
    >>> count.sentence(), count.kinds
    ('plays.csv, line 2: the user id is missing (2 such rows)', {'the user id is missing': 2})
    """

    def __init__(self) -> None:
        self.first: dict[str, tuple[str, str]] = {}  # kind → place and problem
        self.kinds: dict[str, int] = {}

    def add(self, place: str, problem: str, rows: int = 1) -> None:
        """Count rows with a problem."""
        kind = _kind(problem)
        self.first.setdefault(kind, (place, problem))
        self.kinds[kind] = self.kinds.get(kind, 0) + rows

    def sentence(self) -> str:
        """The first row of each kind; a file is named once."""
        parts: list[str] = []
        named = ""
        for kind, (place, problem) in self.first.items():
            file, _, row = place.rpartition(", ")
            more = f" ({self.kinds[kind]:,} such rows)" if self.kinds[kind] > 1 else ""
            parts.append(f"{row if parts and file == named else place}: {problem}{more}")
            named = file
        return "; ".join(parts)

    def error(self) -> ItemrecError:
        """The error for rows that must not be left out."""
        return ItemrecError(f"{self.sentence()}; {HOW_TO_SKIP}")
