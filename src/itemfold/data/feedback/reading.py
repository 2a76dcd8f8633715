"""Feedback that `itemfold serve` stored, as interactions: its likes and clicks."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from itemfold.data.columns.bad_rows import HOW_TO_SKIP
from itemfold.data.columns.raw_table import RawTable
from itemfold.data.columns.values import column_problem
from itemfold.data.feedback.file_store import FILES
from itemfold.data.feedback.store import SQLITE_ENDINGS, FeedbackStore, Row, open_store
from itemfold.errors import ItemfoldError, NoRowsError

TAKEN = ("liked", "clicked")  # events that are interactions
EVENTS = (*TAKEN, "shown", "disliked")
UNKNOWN_USER = "the user is not known"


def is_feedback(path: Path) -> bool:
    """Whether a file has feedback, by its name, suffix or first line."""
    if path.match(FILES) or path.suffix.lower() in SQLITE_ENDINGS:
        return True
    with path.open("rb") as file:
        line = file.readline(2**16)
    try:
        row = json.loads(line)
    except ValueError:
        return False
    return isinstance(row, dict) and row.get("event") in EVENTS and "item_id" in row


def read_feedback(place: str | Path, *, skip: bool = False) -> RawTable:
    """Read likes and clicks from a feedback store; `skipped` counts the other events.

    A dislike removes the pair's earlier likes and clicks. Events without an ``event`` are
    interactions. With ``skip``, damaged lines are left out; otherwise they raise.
    """
    skipped: Counter[str] = Counter()
    with closing(open_store(place)) as store:
        taken = _interactions(store, skip, skipped)
    rows = [row for group in taken.values() for row in group]
    if not rows:
        left = "".join(f"; {why} ({count:,})" for why, count in skipped.items())
        if UNKNOWN_USER in skipped:
            left += "; an event needs 'user_id' and 'item_id'"
        raise NoRowsError(f"{place}: has no {' or '.join(TAKEN)} event of a user{left}")

    def texts(name: str) -> Any:
        column = np.empty(len(rows), dtype=object)
        column[:] = [str(row[name]) for row in rows]
        return column

    timed = all(isinstance(row.get("timestamp"), int | float) for row in rows)
    time = np.array([row["timestamp"] for row in rows], np.float64) if timed else None
    user, item = texts("user_id"), texts("item_id")
    return RawTable(user, item, time=time, ids_are_text=True, skipped=dict(skipped))


def _interactions(
    store: FeedbackStore, skip: bool, skipped: Counter[str]
) -> dict[tuple[str, str], list[Row]]:
    """The likes and clicks of each pair of a user and an item; others are counted, or raise."""
    taken: dict[tuple[str, str], list[Row]] = {}
    for place, entry in store.entries():
        row, problem = _parsed(entry) if isinstance(entry, bytes) else (entry, "")
        if problem and not skip:
            raise ItemfoldError(f"{place}: {problem}; {HOW_TO_SKIP}")
        if problem or row.get("user_id") is None:
            skipped[problem or UNKNOWN_USER] += 1
            continue
        event = row.get("event", "liked")
        pair = str(row["user_id"]), str(row["item_id"])
        if event == "disliked" and pair in taken:
            skipped["disliked afterwards"] += len(taken.pop(pair))
        if event in TAKEN:
            taken.setdefault(pair, []).append(row)
        else:
            skipped[f"the event is {event}"] += 1
    return taken


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
