"""A table of items with any columns, and lists of ids in files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from itemfold.data.columns import KNOWN_NAMES, NOT_A_NUMBER, plain_name, to_number
from itemfold.data.interactions import IdMap
from itemfold.data.readers.item_files import text_rows
from itemfold.errors import ItemfoldError

TABLES = (".csv", ".tsv", ".parquet")


@dataclass(frozen=True, eq=False)
class ItemTable:
    """Columns of items by external id, and which items may be recommended.

    Attributes:
        ids: External ids, as text.
        columns: For each column a text for each id, "" where unknown.
        available: Ids of the items that may be recommended; None means all.

    Examples:
        >>> table = ItemTable(["x", "y"], {"country": ["FR", "IT"]})
        >>> import numpy as np
        >>> table.columns_of(IdMap(np.array(["y", "z"])))
        {'country': ['IT', '']}
    """

    ids: Sequence[Any] = ()
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    available: Sequence[Any] | None = None

    def columns_of(self, items: IdMap) -> dict[str, list[str]]:
        """The columns in the order of `items`, "" for items that are not in the table."""
        rows = items.index(self.ids).tolist()
        out = {}
        for name, texts in self.columns.items():
            aligned = [""] * len(items)
            for row, text in zip(rows, texts, strict=True):
                if row >= 0:
                    aligned[row] = text
            out[name] = aligned
        return out

    def available_of(self, items: IdMap) -> npt.NDArray[np.bool_] | None:
        """Mask of the available items in the order of `items`; None means all.

        Raises:
            ItemfoldError: None of the items is available.
        """
        if self.available is None:
            return None
        rows = items.index(self.available)
        mask = np.zeros(len(items), dtype=np.bool_)
        mask[rows[rows >= 0]] = True
        if not mask.any():
            raise ItemfoldError(
                "'available' must name at least one item of the training data, got none"
            )
        return mask


def read_item_table(
    path: str | Path | None = None, available: str | Path | None = None
) -> ItemTable | None:
    """Read a table of items, a list of the available items, or both.

    Args:
        path: A .csv, .tsv or .parquet file with an item column and others.
        available: The items that may be recommended: a .txt file with an id in each line, or a
            table with an item column.

    Returns:
        The table, with all columns as text; None if no file is given.

    Raises:
        ItemfoldError: A file cannot be read, or it has no item column.
    """
    if path is None and available is None:
        return None
    ids, columns = ([], {}) if path is None else _read_columns("item_table", path)
    listed = None if available is None else read_ids("available", available)
    return ItemTable(ids, columns, listed)


def read_ids(name: str, path: str | Path) -> list[str]:
    """The ids in a file, the item column of a table or the lines of a .txt file, as text.

    ``name`` is the setting that gave the file, for messages.
    """
    path = Path(path)
    if path.suffix == ".txt":
        if not path.is_file():
            raise ItemfoldError(f"'{name}' must be an existing file, got '{path}'")
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
        except UnicodeDecodeError:
            raise ItemfoldError(f"{path}: must be text in UTF-8") from None
        ids = [line.strip() for line in lines if line.strip()]
    else:
        ids, _ = _read_columns(name, path)
    if not ids:
        raise ItemfoldError(f"'{name}' must hold at least one id, got the empty '{path}'")
    return ids


def _read_columns(name: str, path: str | Path) -> tuple[list[str], dict[str, list[str]]]:
    path = Path(path)
    if not path.is_file():
        raise ItemfoldError(f"'{name}' must be an existing file, got '{path}'")
    if path.suffix not in TABLES:
        also = " or .txt" if name != "item_table" else ""
        raise ItemfoldError(f"'{name}' must be a .csv, .tsv, .parquet{also} file, got '{path}'")
    records = text_rows(path)
    names = [column.split(":")[0].strip() for column in next(records, (0, [""]))[1]]
    plain = [plain_name(column) for column in names]
    item = next((plain.index(n) for n in (*KNOWN_NAMES["item"], "id") if n in plain), None)
    if item is None:
        raise ItemfoldError(f"{path}: expected an item column; columns found: {', '.join(names)}")
    columns: dict[str, list[str]] = {column: [] for column in names}
    for _, fields in records:
        for column, text in zip(names, fields, strict=True):
            columns[column].append(text.strip())
    ids = columns.pop(names[item])
    return ids, columns


def as_number(name: str, text: Any) -> float:
    """Parse a number or a date, which becomes seconds since 1970; no text is NaN.

    >>> as_number("year", "1995"), as_number("date", "1970-01-02")
    (1995.0, 86400.0)
    """
    if not text:
        return float("nan")
    try:
        return to_number(text, "time")
    except NOT_A_NUMBER:
        raise ItemfoldError(f"'{name}' must be numbers or dates, got {text!r}") from None
