"""Lists of recommendations that any library made, as the evaluation takes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from itemfold.data.array_types import Bools, Ints
from itemfold.data.columns.column_guess import plain_name
from itemfold.data.columns.column_words import KNOWN_NAMES
from itemfold.data.csr import row_of_entry
from itemfold.data.interactions import IdMap
from itemfold.data.readers.frames import arrow_frame
from itemfold.data.splitting.split import HeldOut
from itemfold.errors import ItemfoldError

RANKS = ("rank", "position", "place")
SCORES = ("score", "scores", "prediction", "predicted", "rating", "relevance", "weight")
KINDS = (".csv", ".tsv", ".parquet")


@dataclass(frozen=True, eq=False)
class Lists:
    """Recommendations as columns, the best of each user first.

    Attributes:
        users: External id of the user of each recommendation.
        items: External id of the item.
    """

    users: npt.NDArray[Any]
    items: npt.NDArray[Any]

    def ranked(self, held: HeldOut, ids: IdMap, depth: int) -> tuple[Ints, tuple[str, ...]]:
        """Rows of items ``[users, depth]`` for held-out users, and notes on what does not count.

        Repeated items are left out, and those of a user's history unless the split has repeats. An
        unknown item keeps its place and is −1, like the places after the end of a list.
        """
        row, item = IdMap(held.ids).index(self.users), ids.index(self.items)
        known = row >= 0
        if not known.any():
            shown = ", ".join(map(str, held.ids[:3].tolist()))
            raise ItemfoldError(
                f"the lists must be of users of the test part, such as {shown}, got none of them"
            )
        order = np.argsort(row[known], kind="stable")
        row, item = row[known][order], item[known][order]
        strange = int((item < 0).sum())
        again = _repeated(row, item, len(ids))
        row, item = row[~again], item[~again]
        seen = np.zeros(len(row), np.bool_)
        for not_ranked in (None if held.repeats else held.history, held.excluded):
            if not_ranked is not None:
                seen |= _among(row, item, not_ranked)
        row, item = row[~seen], item[~seen]
        start = np.searchsorted(row, np.arange(len(held)))
        place = np.arange(len(row)) - start[row]
        top = np.full((len(held), depth), -1, dtype=np.int64)
        kept = place < depth
        top[row[kept], place[kept]] = item[kept]
        length = np.bincount(row, minlength=len(held))
        counts = {
            "Users of lists who are not in the test part, left out": len(
                np.unique(self.users[~known].astype(str))
            ),
            "Test users without a list, who count as 0": int((length == 0).sum()),
            f"Test users whose list has fewer than {depth} items": int(
                ((length > 0) & (length < depth)).sum()
            ),
            "Items of histories in the lists, left out": int(seen.sum()),
            "Repeated items in the lists, left out": int(again.sum()),
            "Unknown items in the lists, which count as misses": strange,
        }
        return top, tuple(f"{what}: {count:,}." for what, count in counts.items() if count)


def is_frame(source: Any) -> bool:
    """Whether something is a pandas, polars or Arrow table."""
    if type(source).__name__ == "LazyFrame":  # asking for its columns would run it
        return True
    return hasattr(source, "columns") or hasattr(source, "__arrow_c_stream__")


def lists_of(frame: Any, place: str = "the frame") -> Lists:
    """Lists from a frame with columns user and item, and rank or score.

    Raises:
        ItemfoldError: A column is missing, or a rank or score is not a number.
    """
    if type(frame).__name__ == "LazyFrame":
        frame = frame.collect()
    if not (hasattr(frame, "iloc") or hasattr(frame, "with_columns")):  # pandas, polars
        frame = arrow_frame(frame)
    names = [str(name) for name in frame.columns]
    real = list(frame.columns)

    def column(choices: Sequence[str]) -> npt.NDArray[Any] | None:
        plain = [plain_name(name) for name in names]
        at = next((plain.index(choice) for choice in choices if choice in plain), None)
        return None if at is None else np.asarray(frame[real[at]].to_list(), dtype=object)

    user, item = (column(KNOWN_NAMES[role]) for role in ("user", "item"))
    if user is None or item is None:
        role = "user" if user is None else "item"
        raise ItemfoldError(
            f"{place}: must have a column {role}, or {role}_id, got {', '.join(names) or 'none'}"
        )
    if not len(user):
        raise ItemfoldError(f"{place}: has no recommendations")
    rank, score = column(RANKS), column(SCORES)
    if rank is not None:
        order = np.argsort(_numbers(rank, "rank", place), kind="stable")
    elif score is not None:
        order = np.argsort(-_numbers(score, "score", place), kind="stable")
    else:
        order = np.arange(len(user))
    return Lists(user[order], item[order])


def read_lists(path: str | Path) -> Any:
    """The frame of a .csv, .tsv or .parquet file of lists; ids stay text as they are."""
    import polars as pl

    path = Path(path).expanduser()
    if not path.is_file():
        raise ItemfoldError(f"'--lists' must be a file, got '{path}'")
    if path.suffix not in KINDS:
        raise ItemfoldError(f"'--lists' must end in {' or '.join(KINDS)}, got '{path}'")
    try:
        if path.suffix == ".parquet":
            return pl.read_parquet(path)
        separator = "\t" if path.suffix == ".tsv" else ","
        return pl.read_csv(path, separator=separator, infer_schema=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        text = (str(error).strip().splitlines() or [""])[0]
        raise ItemfoldError(f"{path}: cannot be read as {path.suffix}: {text}") from error


def _numbers(values: npt.NDArray[Any], role: str, place: str) -> npt.NDArray[np.float64]:
    try:
        found = values.astype(np.float64)
    except (TypeError, ValueError):
        found = np.full(len(values), np.nan)
    if np.isnan(found).any():
        raise ItemfoldError(f"{place}: every {role} must be a number")
    return found


def _repeated(row: Ints, item: Ints, n_items: int) -> Bools:
    """Whether an item is in the list of its user before; unknown items never are."""
    key = row * n_items + item
    first = np.zeros(len(key), dtype=np.bool_)
    first[np.unique(key, return_index=True)[1]] = True
    return ~first & (item >= 0)


def _among(row: Ints, item: Ints, matrix: sp.csr_array) -> Bools:
    """Whether each pair is an entry of a matrix."""
    known = row_of_entry(matrix) * matrix.shape[1] + matrix.indices
    found: Bools = (item >= 0) & np.isin(row * matrix.shape[1] + item, known)
    return found
