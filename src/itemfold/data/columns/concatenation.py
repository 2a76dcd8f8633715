"""The rows of several tables as one table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from itemfold.data.columns.raw_table import RawTable, object_array


def concatenated(tables: Sequence[RawTable], places: Sequence[str]) -> RawTable:
    """The rows of several tables; a column that some of them lack is dropped."""
    left_out = {role: why for table in tables for role, why in table.left_out.items()}
    skipped: dict[str, int] = {}
    for table in tables:
        for why, count in table.skipped.items():
            skipped[why] = skipped.get(why, 0) + count

    def column(role: str) -> npt.NDArray[Any] | None:
        found = [getattr(table, role) for table in tables]
        if all(values is not None for values in found):
            return np.concatenate(found)
        if any(values is not None for values in found) and role not in left_out:
            without = next(n for n, table in enumerate(tables) if getattr(table, role) is None)
            left_out[role] = f"{places[without]} has no {role} column"
        return None

    return RawTable(
        user=_joined_ids([table.user for table in tables]),
        item=_joined_ids([table.item for table in tables]),
        rating=column("rating"),
        time=column("time"),
        weight=column("weight"),
        ids_are_text=any(table.ids_are_text for table in tables),
        left_out=left_out,
        skipped=skipped,
        layout=tables[0].layout,
        remarks=tuple(dict.fromkeys(note for table in tables for note in table.remarks)),
    )


def _joined_ids(columns: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Ids of several tables; they are compared as text unless all are integers."""
    if all(column.dtype.kind == "i" for column in columns):
        return np.concatenate(columns)
    return object_array([str(value).strip() for column in columns for value in column.tolist()])
