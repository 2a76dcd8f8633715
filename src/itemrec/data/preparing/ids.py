"""The second phase of `prepare`: all ids of users and of items, sorted as `read` sorts them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from itemrec.data.array_types import Ints
from itemrec.data.preparing.inputs import literal, parquet
from itemrec.data.preparing.work import StepFacts, Work
from itemrec.errors import ItemrecError

MOST = 2**31 - 1  # rows are 32-bit integers
CHUNK = 2**20  # ids that are fetched at once


def write_sorted_ids(
    connection: Any, work: Work, role: str, expression: str, rows: str
) -> StepFacts:
    """Write the distinct ids in order, each with its number of rows."""
    path = work.fresh(f"{role}s.parquet")
    connection.execute("SET preserve_insertion_order = true")
    select = f"SELECT {expression} AS id, count(*) AS n FROM {rows} GROUP BY 1 ORDER BY 1"
    target = f"{literal(str(path))} (FORMAT parquet, COMPRESSION lz4_raw)"
    connection.execute(f"COPY ({select}) TO {target}")
    count = connection.execute(f"SELECT count(*) FROM {parquet(path)}").fetchone()[0]
    if count > MOST:
        raise ItemrecError(f"at most {MOST:,} {role}s are supported, got {count:,}")
    return {"count": count}


def copy_ids(connection: Any, path: Path, target: Path, kept: Ints | None) -> None:
    """Copy the ids, all of them or those of some rows, without their counts."""
    connection.execute("SET preserve_insertion_order = true")
    select = f"SELECT id FROM {parquet(path)}"
    if kept is not None:
        connection.register("kept", {"place": kept})
        select += " JOIN kept ON file_row_number = place"
    options = "(FORMAT parquet, COMPRESSION zstd)"
    connection.execute(
        f"COPY ({select} ORDER BY file_row_number) TO {literal(str(target))} {options}"
    )
    if kept is not None:
        connection.unregister("kept")


def id_chunks(connection: Any, path: Path, count: int) -> Any:
    """The ids of a file in order, a chunk at a time."""
    for start in range(0, count, CHUNK):
        part = f"file_row_number BETWEEN {start} AND {start + CHUNK - 1}"
        select = f"SELECT id FROM {parquet(path)} WHERE {part} ORDER BY file_row_number"
        yield connection.execute(select).fetchnumpy()["id"]


def bucket_limits(connection: Any, path: Path, most_rows: int) -> Ints:
    """The first user of each bucket, and the end; only a single user may exceed ``most_rows``."""
    select = f"SELECT n FROM {parquet(path)} ORDER BY file_row_number"
    ends = np.cumsum(connection.execute(select).fetchnumpy()["n"].astype(np.int64))
    limits, before = [0], 0
    while limits[-1] < len(ends):
        end = int(np.searchsorted(ends, before + most_rows, side="right"))
        limits.append(max(end, limits[-1] + 1))
        before = int(ends[limits[-1] - 1])
    return np.array(limits, dtype=np.int64)
