"""Conversion of rows to `Interactions`: map ids and merge the rows of each (user, item) pair."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from itemfold.data.array_types import Bools, Floats, Ints
from itemfold.data.columns.raw_table import RawTable
from itemfold.data.columns.time_units import in_seconds
from itemfold.data.id_arrays import is_plain_int, text_array
from itemfold.data.interactions import IdMap, Interactions
from itemfold.data.splitting.repeats import EarlierRows, earlier_rows
from itemfold.data.weights import Weighting, pair_weights
from itemfold.errors import ItemfoldError


@dataclass(frozen=True)
class Pairs:
    """Unique pairs ordered by user and item, and the number of rows merged into others.

    The columns have the types of those of `Interactions`.
    """

    users: npt.NDArray[np.int32]
    items: npt.NDArray[np.int32]
    ratings: npt.NDArray[np.float32] | None
    times: Floats | None
    held_out: Bools | None
    user_parts: npt.NDArray[np.int8] | None
    weights: Floats | None
    duplicates: int
    earlier: EarlierRows | None = None


def merge_rows(
    users: Ints,
    items: Ints,
    n_items: int,
    table: RawTable,
    weighting: Weighting,
    latest: float | None = None,
) -> Pairs:
    """Merge rows whose users and items are numbered: highest rating, latest time, merged weights.

    ``latest`` is the time from which recency counts; default: that of the last row.
    """
    key = users * n_items + items  # [rows]
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    pick = order[starts]  # [n]

    def merged(values: npt.NDArray[Any] | None, best: np.ufunc) -> Any:
        return None if values is None else best.reduceat(values[order], starts)

    ratings, weights = merged(table.rating, np.maximum), None
    if weighting.is_used:
        values = np.ones(len(order)) if table.weight is None else table.weight[order]
        times = None if table.time is None else table.time[order]
        weights = pair_weights(weighting, values, times, starts, latest)
    return Pairs(
        users=users[pick].astype(np.int32),
        items=items[pick].astype(np.int32),
        ratings=None if ratings is None else ratings.astype(np.float32),
        times=merged(table.time, np.maximum),
        held_out=merged(table.held_out, np.logical_and),
        user_parts=merged(table.part, np.minimum),
        weights=weights,
        duplicates=len(key) - len(pick),
        earlier=earlier_rows(None if table.time is None else table.time[order], starts),
    )


def to_interactions(
    table: RawTable,
    shape: tuple[int, ...] | None,
    name: str,
    source: dict[str, Any],
    weighting: Weighting,
) -> Interactions:
    """Map the ids of a table and merge its rows; ``shape`` is that of a matrix, else None."""
    remarks = table.remarks
    if shape is None:
        user_ids, users, of_users = _factorise(table.user, table.ids_are_text)
        item_ids, items, of_items = _factorise(table.item, table.ids_are_text)
        dotted = [role for role, note in (("user", of_users), ("item", of_items)) if note]
        remarks = (*remarks, *map(dotted_note, dotted))
    else:  # a matrix keeps all rows and columns, including empty ones
        user_ids, item_ids = IdMap(np.arange(shape[0])), IdMap(np.arange(shape[1]))
        users, items = table.user, table.item
    if table.time is not None:
        times, notes = in_seconds(table.time, name)
        table, remarks = replace(table, time=times), (*remarks, *notes)
    if max(len(user_ids), len(item_ids)) >= 2**31:
        raise ItemfoldError(f"{name}: at most 2**31 users and items are supported")
    if weighting.half_life is not None and table.time is None:
        none = (
            f"'half_life' needs timestamps, and {name!r} has none; name their column with time=… "
            "or --time-col"
        )
        raise ItemfoldError(table.left_out.get("time", none))
    pairs = merge_rows(users, items, len(item_ids), table, weighting)
    return Interactions(
        users=pairs.users,
        items=pairs.items,
        user_ids=user_ids,
        item_ids=item_ids,
        ratings=pairs.ratings,
        times=pairs.times,
        held_out=pairs.held_out,
        user_parts=pairs.user_parts,
        weights=pairs.weights,
        weighting=str(weighting),
        name=name,
        duplicates=pairs.duplicates,
        earlier=pairs.earlier,
        source=source,
        left_out=table.left_out,
        skipped=table.skipped,
        remarks=(*remarks, *_leaked_notes(table, pairs)),
        layout=table.layout,
    )


def _leaked_notes(table: RawTable, pairs: Pairs) -> tuple[str, ...]:
    """A note on rows of the test file that are also training rows."""
    if table.held_out is None or pairs.held_out is None:
        return ()
    lost = int(table.held_out.sum()) - int(pairs.held_out.sum())
    if not lost:
        return ()
    return (
        f"Rows of the test file that repeat others or are also training rows, left out: {lost:,}.",
    )


def dotted_note(role: str) -> str:
    """A note on ids such as 12.0, as pandas writes them in columns with missing values."""
    return f"The {role} ids end with .0 and were read as whole numbers."


def _factorise(values: npt.NDArray[Any], text: bool) -> tuple[IdMap, Ints, bool]:
    """Sorted ids, the row of each value, and whether ".0" was removed from all.

    Text ids become integers if all are integers.
    """
    if values.dtype.kind in "iu":
        unique, codes = np.unique(values, return_inverse=True)
        return IdMap(unique), codes.reshape(-1), False
    listed = values.tolist()
    stripped = {value: value.strip() for value in dict.fromkeys(listed)}
    dotted = text and all(v.endswith(".0") and is_plain_int(v[:-2]) for v in stripped.values())
    if dotted:
        stripped = {value: short[:-2] for value, short in stripped.items()}
    unique_text = sorted(set(stripped.values()))
    ids: npt.NDArray[Any]
    if text and all(map(is_plain_int, unique_text)):
        unique_text.sort(key=int)
        ids = np.array([int(v) for v in unique_text], dtype=np.int64)
    else:
        ids = text_array(unique_text)
    row = {value: n for n, value in enumerate(unique_text)}
    row_of = {value: row[short] for value, short in stripped.items()}
    rows = np.fromiter(map(row_of.__getitem__, listed), np.int64, len(listed))
    return IdMap(ids), rows, dotted
