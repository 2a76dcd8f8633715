"""The choice of a column for each role: the requested one, or a guess by name and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from itemfold.data.columns.column_guess import (
    Sample,
    candidates,
    listed_columns,
    roles_by_content,
    spare_time,
    untyped,
)
from itemfold.data.columns.values import MISSING, is_missing
from itemfold.errors import ItemfoldError

IDS = ("user", "item")
ROLES = (*IDS, "rating", "time", "weight")
Names = Mapping[str, str | int | None]  # role → the requested column


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
