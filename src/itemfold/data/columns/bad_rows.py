"""Bad rows: one error reports all kinds of problems, or the rows are skipped and counted."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from itemfold.data.array_types import Bools
from itemfold.data.columns.values import column_problem
from itemfold.errors import ItemfoldError

HOW_TO_SKIP = "leave such rows out with skip_bad_rows=True or --skip-bad-rows"
Where = Callable[[int], str]  # row → its place, such as "plays.csv, line 3"
Problems = dict[int, str]  # row → its first problem


def find_problems(columns: Mapping[str, Sequence[Any]], known: Problems | None = None) -> Problems:
    """The first problem of each bad row, from the values of each role; slow, on errors only.

    >>> find_problems({"user": ["ann", ""], "rating": ["4", "good"]})
    {1: 'the user id is missing'}
    """
    found = dict(known or {})
    for role, values in columns.items():
        for row, value in enumerate(values):
            if row not in found and (problem := column_problem(value, role)):
                found[row] = problem
    return found


def _kind(problem: str) -> str:
    """A problem without the value that caused it."""
    return re.split(", (?:got|found) ", problem)[0]


def kept_rows(
    found: Problems, n_rows: int, place: str, where: Where, *, skip: bool
) -> tuple[Bools, dict[str, int]]:
    """Mask of the good rows, and the number of bad rows of each kind; raises unless ``skip``.

    The error names the first row of each kind of problem.
    """
    kinds: dict[str, list[int]] = {}
    for row in sorted(found):
        kinds.setdefault(_kind(found[row]), []).append(row)
    keep = np.ones(n_rows, dtype=np.bool_)
    keep[list(found)] = False
    if (found and not skip) or not keep.any():
        count = ProblemCount()
        for rows in kinds.values():
            count.add(where(rows[0]), found[rows[0]], len(rows))
        if found and not skip:
            raise count.error()
        raise ItemfoldError(f"{place}: no row can be used; {count.sentence()}")
    return keep, {kind: len(rows) for kind, rows in kinds.items()}


class ProblemCount:
    """Counts the problems of rows by kind, and keeps the first place of each kind.

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
        """Add rows with a problem."""
        kind = _kind(problem)
        self.first.setdefault(kind, (place, problem))
        self.kinds[kind] = self.kinds.get(kind, 0) + rows

    def sentence(self) -> str:
        """The first row of each kind; each file is named once."""
        parts: list[str] = []
        named = ""
        for kind, (place, problem) in self.first.items():
            file, _, row = place.rpartition(", ")
            more = f" ({self.kinds[kind]:,} such rows)" if self.kinds[kind] > 1 else ""
            parts.append(f"{row if parts and file == named else place}: {problem}{more}")
            named = file
        return "; ".join(parts)

    def error(self) -> ItemfoldError:
        """The error to raise if bad rows are not skipped."""
        return ItemfoldError(f"{self.sentence()}; {HOW_TO_SKIP}")
