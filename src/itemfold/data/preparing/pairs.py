"""The middle phases of `prepare`: sort ids, divide rows into buckets of users, append the pairs.

A bucket has all rows of consecutive users and fits into memory, so the code of `read` merges its
rows. The arrays are .npy files that grow bucket by bucket.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from itemfold.data.array_types import Ints
from itemfold.data.columns.raw_table import RawTable
from itemfold.data.columns.time_units import UNITS
from itemfold.data.merging import Pairs, merge_rows
from itemfold.data.preparing.inputs import literal, parquet
from itemfold.data.preparing.work import StepFacts, Work
from itemfold.data.weights import Weighting
from itemfold.errors import ItemfoldError

ARRAYS = {
    "indptr": np.int64,
    "users": np.int32,
    "indices": np.int32,
    "ratings": np.float32,
    "times": np.float64,
    "weights": np.float64,
}
CHUNK = 2**20  # entries of an array that are read at once
MOST_IDS = 2**31 - 1  # rows are 32-bit integers
HEADER = 128  # bytes; numpy pads the header so that it holds any number of entries


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
    if count > MOST_IDS:
        raise ItemfoldError(f"at most {MOST_IDS:,} {role}s are supported, got {count:,}")
    return {"count": count}


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


@dataclass(frozen=True)
class Numbering:
    """The numbering of rows and their division into buckets."""

    user: str  # the final id in SQL
    item: str
    columns: list[str]  # rating, time and weight, where used
    condition: str  # that selects the rows to use
    limits: Ints  # first user of each bucket, and the end
    in_order: bool


def write_buckets(connection: Any, work: Work, part: int, numbering: Numbering) -> StepFacts:
    """Number the ids of one staged file and divide its rows into buckets."""
    staged, folder = work.folder / f"rows-{part}.parquet", work.fresh(f"buckets-{part}")
    columns = ", ".join(["", *numbering.columns])
    place = f", file_row_number + {part} * {2**40} AS place" if numbering.in_order else ""
    rows = (
        f"SELECT {numbering.user} AS user_id, {numbering.item} AS item_id{columns}{place} "
        f"FROM {parquet(staged)} WHERE {numbering.condition}"
    )
    ids = "SELECT id, CAST(file_row_number AS INTEGER) AS row FROM"
    select = (
        f"SELECT u.row AS u, i.row AS i{columns}{', place' if place else ''}, "
        f"{_bucket(numbering.limits, 0, len(numbering.limits) - 1)} AS bucket FROM ({rows}) r "
        f"JOIN ({ids} {parquet(work.folder / 'users.parquet')}) u ON r.user_id = u.id "
        f"JOIN ({ids} {parquet(work.folder / 'items.parquet')}) i ON r.item_id = i.id"
    )
    connection.execute("SET preserve_insertion_order = false")
    options = "(FORMAT parquet, COMPRESSION lz4_raw, PARTITION_BY (bucket))"
    folder.mkdir()
    connection.execute(f"COPY ({select}) TO {literal(str(folder))} {options}")
    return {}


def _bucket(limits: Ints, low: int, high: int) -> str:
    """SQL for the number of a user's bucket: a binary search."""
    if high - low == 1:
        return str(low)
    middle = (low + high) // 2
    below, above = _bucket(limits, low, middle), _bucket(limits, middle, high)
    return f"CASE WHEN u.row < {limits[middle]} THEN {below} ELSE {above} END"


@dataclass(frozen=True)
class Merging:
    """The rules by which the rows of a bucket are merged into pairs."""

    n_items: int
    weighting: Weighting
    latest: float | None
    min_rating: float | None
    time_unit: str = "seconds"


def write_pairs(
    connection: Any,
    work: Work,
    bucket: int,
    numbering: Numbering,
    merging: Merging,
    before: StepFacts,
) -> StepFacts:
    """Append the pairs of a bucket to the arrays; ``before`` are the facts of the last bucket."""
    low, high = (int(limit) for limit in numbering.limits[bucket : bucket + 2])
    rows = _read_bucket(connection, work, bucket, numbering)
    users, items = (rows.pop(name).astype(np.int64) for name in ("u", "i"))
    if "time" in rows:
        rows["time"] = rows["time"] / UNITS[merging.time_unit]
    table = RawTable(users, items, rows.get("rating"), rows.get("time"), rows.get("weight"))
    pairs = merge_rows(users, items, merging.n_items, table, merging.weighting, merging.latest)
    facts = {"duplicates": before.get("duplicates", 0) + pairs.duplicates}
    if pairs.ratings is not None and merging.min_rating is not None:
        facts["lowest"] = min(float(pairs.ratings.min()), before.get("lowest", np.inf))
        facts["highest"] = max(float(pairs.ratings.max()), before.get("highest", -np.inf))
    found = _filtered(pairs, merging.min_rating)
    start = before.get("pairs", 0)
    facts["pairs"] = start + len(found["users"])
    ends = start + np.cumsum(np.bincount(found["users"] - low, minlength=high - low))
    first = bucket == 0
    found["indptr"] = np.concatenate(([0], ends)) if first else ends
    for name, values in found.items():
        done = 0 if first else low + 1 if name == "indptr" else start
        append_array(work.folder / f"{name}.npy", done, values.astype(ARRAYS[name], copy=False))
    return facts


def _read_bucket(
    connection: Any, work: Work, bucket: int, numbering: Numbering
) -> dict[str, npt.NDArray[Any]]:
    paths = sorted(work.folder.glob(f"buckets-*/bucket={bucket}/*.parquet"))
    names = ["u", "i", *numbering.columns]
    order = " ORDER BY place" if numbering.in_order else ""
    connection.execute(f"SET preserve_insertion_order = {str(numbering.in_order).lower()}")
    found = connection.execute(f"SELECT {', '.join(names)} FROM {parquet(*paths)}{order}")
    arrays: dict[str, npt.NDArray[Any]] = found.fetchnumpy()
    return arrays


def _filtered(pairs: Pairs, min_rating: float | None) -> dict[str, npt.NDArray[Any]]:
    """The columns of the pairs to keep, by the names of their files."""
    columns: dict[str, Any] = {"users": pairs.users, "indices": pairs.items}
    columns |= {"ratings": pairs.ratings, "times": pairs.times, "weights": pairs.weights}
    found = {name: values for name, values in columns.items() if values is not None}
    if min_rating is None or pairs.ratings is None:
        return found
    keep = pairs.ratings >= min_rating
    return {name: values[keep] for name, values in found.items()}


# --- .npy files that grow ------------------------------------------------------------------------


def append_array(path: Path, before: int, piece: npt.NDArray[Any]) -> None:
    """Write a piece after the first ``before`` entries of a file, and sync it to disk.

    Entries beyond ``before``, which an interrupted call may have left, are cut off.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "a.npy")
    ...     append_array(path, 0, np.array([1, 2], np.int32))
    ...     append_array(path, 1, np.array([3], np.int32))
    ...     np.load(path).tolist()
    [1, 3]
    """
    size = HEADER + before * piece.itemsize
    with path.open("r+b" if before else "wb") as file:
        shape = (before + len(piece),)
        header = {"descr": piece.dtype.str, "fortran_order": False, "shape": shape}
        file.truncate(size)
        np.lib.format.write_array_header_1_0(file, header)
        if file.tell() != HEADER:
            raise RuntimeError(f"{path}: the header of an array has {file.tell()} bytes")
        file.seek(size)
        piece.tofile(file)
        file.flush()
        os.fsync(file.fileno())


def array_pieces(path: Path) -> Iterator[npt.NDArray[Any]]:
    """The entries of a file in order, a piece at a time."""
    with path.open("rb") as file:
        np.lib.format.read_magic(file)
        (count,), _, dtype = np.lib.format.read_array_header_1_0(file)
        for start in range(0, count, CHUNK):
            yield np.fromfile(file, dtype, min(CHUNK, count - start))
