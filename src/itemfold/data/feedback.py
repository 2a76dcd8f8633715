"""Feedback that `itemfold serve` writes as JSON lines; likes and clicks are interactions."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from itemfold.data.columns import RawTable, column_problem
from itemfold.data.interactions import HOW_TO_SKIP
from itemfold.errors import ItemfoldError, NoRowsError

TAKEN = ("liked", "clicked")  # events that are interactions
EVENTS = (*TAKEN, "shown", "disliked")
UNKNOWN_USER = "the user is not known"
FEEDBACK_FILES = "feedback*.jsonl"  # in a folder, rotated files included

Row = dict[str, Any]


def is_feedback(path: Path) -> bool:
    """Whether a file has feedback, by its name or by the first line."""
    if path.match(FEEDBACK_FILES):
        return True
    with path.open("rb") as file:
        line = file.readline(2**16)
    try:
        row = json.loads(line)
    except ValueError:
        return False
    return isinstance(row, dict) and row.get("event") in EVENTS and "item_id" in row


def read_feedback(path: Path, *, skip: bool = False) -> RawTable:
    """Read likes and clicks from a feedback file or folder; `skipped` counts the other events.

    A dislike removes the pair's earlier likes and clicks. Lines without an ``event`` are
    interactions. With ``skip``, damaged lines are left out; otherwise they raise.
    """
    files = sorted(path.glob(FEEDBACK_FILES)) if path.is_dir() else [path]
    skipped: Counter[str] = Counter()
    taken: dict[tuple[str, str], list[Row]] = {}
    for row in (row for file in files for row in _rows(file, skip, skipped)):
        event = row.get("event", "liked")
        pair = str(row["user_id"]), str(row["item_id"])
        if event == "disliked" and pair in taken:
            skipped["disliked afterwards"] += len(taken.pop(pair))
        if event in TAKEN:
            taken.setdefault(pair, []).append(row)
        else:
            skipped[f"the event is {event}"] += 1
    rows = [row for group in taken.values() for row in group]
    if not rows:
        left = "".join(f"; {why} ({count:,})" for why, count in skipped.items())
        if UNKNOWN_USER in skipped:
            left += "; a line needs 'user_id' and 'item_id'"
        raise NoRowsError(f"{path}: has no {' or '.join(TAKEN)} event of a user{left}")

    def texts(name: str) -> Any:
        column = np.empty(len(rows), dtype=object)
        column[:] = [str(row[name]) for row in rows]
        return column

    timed = all(isinstance(row.get("timestamp"), int | float) for row in rows)
    time = np.array([row["timestamp"] for row in rows], np.float64) if timed else None
    user, item = texts("user_id"), texts("item_id")
    return RawTable(user, item, time=time, ids_are_text=True, skipped=dict(skipped))


def _rows(path: Path, skip: bool, skipped: Counter[str]) -> list[Row]:
    """The lines with a user and an item, in order; others are counted, or raise."""
    out = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        row, problem = _parsed(line)
        if not problem and row.get("user_id") is None:
            skipped[UNKNOWN_USER] += 1
        elif not problem:
            out.append(row)
        elif skip:
            skipped[problem] += 1
        else:
            raise ItemfoldError(f"{path}, line {number}: {problem}; {HOW_TO_SKIP}")
    return out


def _parsed(line: bytes) -> tuple[Row, str]:
    """The object of a line, and its problem, or an empty string."""
    try:
        row = json.loads(line)
    except ValueError:
        return {}, "expected a JSON object"
    if not isinstance(row, dict):
        return {}, "expected a JSON object"
    for role, name in (("user", "user_id"), ("item", "item_id"), ("time", "timestamp")):
        absent = row.get(name) is None and role != "item"
        if not absent and (problem := column_problem(row.get(name), role)):
            return row, problem
    if row.get("event", "liked") not in EVENTS:
        return row, f"'event' must be one of {', '.join(EVENTS)}"
    return row, ""
