"""Arrays of ids and texts: bounded memory, binary search, and parquet files.

A numpy array of texts stores every entry at the width of the longest, four bytes a character. So
one long text could multiply the memory of all others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from itemfold.data.array_types import Ints
from itemfold.files import atomic

WASTE = 8  # most characters stored for each character of the texts
NARROW = 50  # characters; any array may be this wide
LONGEST = 200  # characters of a text where the width must be fixed


def text_array(texts: Sequence[str]) -> npt.NDArray[Any]:
    """Texts as an array of fixed width, or of Python strings where that would waste memory.

    >>> names = ["ann"] * 20
    >>> text_array(names).dtype.kind, text_array([*names, "x" * 10**6]).dtype.kind
    ('U', 'O')
    """
    lengths = [len(text) for text in texts]
    longest = max(lengths, default=0)
    if longest <= NARROW or len(texts) * longest <= WASTE * sum(lengths):
        return np.array(texts, dtype=str)
    return np.array(texts, dtype=object)


def fixed_width(texts: Sequence[str]) -> npt.NDArray[np.str_]:
    """Texts at a fixed width, as some file formats need; long texts are cut if memory is wasted.

    A cut text ends in a hash of the whole, so that different texts stay different.

    >>> fixed_width(["ann"] * 20 + ["x" * 10**6]).dtype
    dtype('<U200')
    """
    array = text_array(texts)
    if array.dtype.kind == "U":
        return array

    def cut(text: str) -> str:
        return f"{text[: LONGEST - 32]}{hashlib.sha256(text.encode()).hexdigest()[:32]}"

    return np.array([text if len(text) <= LONGEST else cut(text) for text in texts])


def is_plain_int(text: str, digits: int = 18) -> bool:
    """Whether a text is an integer of up to so many digits as Python writes it.

    >>> is_plain_int("-7"), is_plain_int("007")
    (True, False)
    """
    bare = text.removeprefix("-")
    return bare.isascii() and bare.isdigit() and len(bare) <= digits and str(int(text)) == text


class IdSearch:
    """Finds the rows of ids, int64 or text, by binary search.

    Among many millions of ids a dictionary would take gigabytes. The ids need not be sorted.
    """

    def __init__(self, ids: npt.NDArray[Any]) -> None:
        is_sorted = bool((ids[1:] > ids[:-1]).all())
        self.order = None if is_sorted else np.argsort(ids, kind="stable")
        self.ids = ids if self.order is None else ids[self.order]

    def rows(self, texts: list[str]) -> Ints:
        """Rows of ids given as text, -1 where unknown.

        >>> IdSearch(np.array([30, 7, 20])).rows(["7", "20", "007", "x"]).tolist()
        [1, 2, -1, -1]
        """
        out = np.full(len(texts), -1, dtype=np.int64)
        if self.ids.dtype.kind in "iu":
            fits = [
                at
                for at, text in enumerate(texts)
                if is_plain_int(text, digits=19) and -(2**63) <= int(text) < 2**63
            ]
            keys = np.array([int(texts[at]) for at in fits], dtype=np.int64)
        else:  # a longer key would widen all ids, and numpy ignores a NUL at the end
            width = self.ids.dtype.itemsize // 4 if self.ids.dtype.kind == "U" else None
            fits = [
                at
                for at, text in enumerate(texts)
                if (width is None or len(text) <= width) and "\0" not in text
            ]
            keys = np.array([texts[at] for at in fits], dtype=self.ids.dtype)
        out[fits] = self.find(keys)
        return out

    def find(self, keys: npt.NDArray[Any]) -> Ints:
        """Rows of ids of the same type, -1 where unknown."""
        if not len(self.ids):
            return np.full(len(keys), -1, dtype=np.int64)
        at = np.searchsorted(self.ids, keys)
        at[at == len(self.ids)] = 0
        rows = at if self.order is None else self.order[at]
        return np.where(self.ids[at] == keys, rows, -1)


def write_id_file(path: Path, ids: npt.NDArray[Any]) -> None:
    """Write ids, int64 or text, as the column `id` of a parquet file."""
    values = ids if ids.dtype.kind in "iu" else ids.tolist()
    with atomic(path) as draft:
        try:
            import polars as pl
        except ImportError:
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.table({"id": values}), draft)
        else:
            pl.DataFrame({"id": values}).write_parquet(draft)


def read_id_file(path: Path) -> npt.NDArray[Any]:
    """The column `id` of a parquet file, int64 or text."""
    try:
        import polars as pl
    except ImportError:
        import pyarrow.parquet as pq

        column = pq.read_table(path, columns=["id"])["id"]
        is_text, listed = "string" in str(column.type), column.to_pylist
    else:
        column = pl.read_parquet(path, columns=["id"], glob=False)["id"]
        is_text, listed = column.dtype == pl.String, column.to_list
    return text_array(listed()) if is_text else np.asarray(column.to_numpy(), dtype=np.int64)
