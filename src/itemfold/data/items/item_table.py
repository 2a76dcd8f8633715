"""A table of items with any columns, and lists of ids in files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from itemfold.data.columns.column_guess import listed_columns, untyped
from itemfold.data.columns.values import NOT_A_NUMBER, to_number
from itemfold.data.interactions import IdMap
from itemfold.data.items.item_files import item_column, text_table
from itemfold.errors import ItemfoldError


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
        path: A table with an item column and others.
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
    found, rows = text_table(path)
    names = [untyped(column) for column in found]
    item = item_column(names)
    if item is None:
        raise ItemfoldError(
            f"{path}: expected an item column; columns found: {listed_columns(names)}; call it "
            "item_id"
        )
    columns: dict[str, list[str]] = {column: [] for column in names}
    for fields in rows:
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
