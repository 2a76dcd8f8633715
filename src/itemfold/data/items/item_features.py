"""Features of items: a table with a column of ids and feature columns of four kinds.

category (several are separated by ``|``) · number (or a date) · vector (a list, or columns
name_0 … name_n) · text (its words; a year in parentheses at the end becomes a number).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from itemfold.data.columns.column_guess import plain_name
from itemfold.data.columns.column_words import KNOWN_NAMES
from itemfold.data.columns.values import is_missing
from itemfold.data.id_arrays import is_plain_int, text_array
from itemfold.data.interactions import IdMap
from itemfold.data.items.feature_columns import (
    OF_YEAR,
    FeatureColumn,
    FeatureKind,
    are_numbers,
    as_categories,
    as_texts,
    parsed,
    recognised,
    text_columns,
    years_of,
)
from itemfold.data.items.item_files import item_column, read_columns
from itemfold.errors import ItemfoldError

TYPES: dict[str, FeatureKind] = {  # suffixes of column names in RecBole's files: "class:token"
    "token": "category",
    "token_seq": "text",
    "float": "number",
    "float_seq": "vector",
}
TITLES, GENRES = KNOWN_NAMES["title"], KNOWN_NAMES["genre"]
PART = re.compile(r"(.+)_(\d+)")  # name of one component of a vector


@dataclass(frozen=True, eq=False, repr=False)
class ItemFeatures:
    """Features of items, known or new, as `read_item_features` returns them.

    Attributes:
        ids: External ids of the rows.
        columns: The features, with a value for each row.
        left_out: For each column that is left out, the reason.

    Examples:
        >>> import polars as pl
        >>> films = {"film": [1, 2], "title": ["Alien (1979)", "Aliens (1986)"], "min": [117, 137]}
        >>> print(read_item_features(pl.DataFrame(films)).account())
        2 items with features. title: text, by its words and pairs of words; title (year): a \
number from 1979 to 1986; min: a number from 117 to 137.
    """

    ids: IdMap
    columns: tuple[FeatureColumn, ...]
    left_out: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"ItemFeatures({self.account()})"

    def __len__(self) -> int:
        return len(self.ids)

    def account(self) -> str:
        """A sentence that describes each column."""
        columns = "; ".join(column.describe() for column in self.columns)
        rest = f" Left out: {'; '.join(self.left_out)}." if self.left_out else ""
        return f"{len(self):,} items with features. {columns}.{rest}"

    def of(self, ids: IdMap) -> ItemFeatures:
        """The features of these items in their order; an item without a row has missing values."""
        rows = self.ids.index(ids.ids)
        return ItemFeatures(ids, tuple(c.take(rows) for c in self.columns), self.left_out)

    def without(self, known: IdMap) -> IdMap:
        """The ids of the rows that are not in ``known``."""
        return self.ids.take(np.flatnonzero(known.index(self.ids.ids) < 0))

    def plus(self, other: ItemFeatures) -> ItemFeatures:
        """These rows, then those of other items, which must have the same columns."""
        rows = np.flatnonzero(self.ids.index(other.ids.ids) < 0)
        ids = [*self.ids.ids.tolist(), *other.ids.ids[rows].tolist()]
        whole = all(isinstance(value, int) for value in ids)
        columns = []
        for one, two in zip(self.columns, other.columns, strict=True):
            more = two.take(rows).values
            is_array = one.kind in ("number", "vector")
            values = np.concatenate([one.values, more]) if is_array else [*one.values, *more]
            columns.append(FeatureColumn(one.name, one.kind, values))
        array = (
            np.array(ids, dtype=np.int64) if whole else text_array([str(value) for value in ids])
        )
        return ItemFeatures(IdMap(array), tuple(columns), self.left_out)

    @property
    def layout(self) -> list[tuple[str, FeatureKind, int]]:
        """Name, kind and length of the vectors of each column."""
        sizes = (c.values.shape[1] if c.kind == "vector" else 0 for c in self.columns)
        return [(c.name, c.kind, size) for c, size in zip(self.columns, sizes, strict=True)]

    def vectors(self) -> list[FeatureColumn]:
        """The columns of vectors."""
        return [column for column in self.columns if column.kind == "vector"]

    def texts(self, names: Sequence[str]) -> npt.NDArray[Any] | None:
        """The first text or category column with one of these names, as text, or None."""
        for column in self.columns:
            if plain_name(column.name) in names and column.kind in ("text", "category"):
                listed = [v if isinstance(v, str) else "|".join(v) for v in column.values]
                return text_array(listed)
        return None


def read_item_features(
    source: Any, *, item: str | None = None, like: ItemFeatures | None = None
) -> ItemFeatures:
    """Read features of items from a file or a frame, and recognise the kind of each column.

    Args:
        source: A file of any kind that `read` accepts, or a pandas or polars frame.
        item: Name of the column with the item ids; default: a common name, else the first column.
        like: Features whose columns and kinds to expect; other columns are left out.

    Returns:
        The features.

    Raises:
        ItemfoldError: The table cannot be read, an id is missing or not unique, or no column can be
            used.

    Examples:
        >>> import polars as pl
        >>> frame = pl.DataFrame({"item": [7, 8], "tags": ["war|drama", ""], "price": [3.5, None]})
        >>> [(c.name, c.kind) for c in read_item_features(frame).columns]
        [('tags', 'category'), ('price', 'number')]
    """
    place, table = _table(source)
    name = _item_column(list(table), item, place)
    ids = _ids(table.pop(name), place)
    if like is not None:
        return ItemFeatures(ids, _columns_like(table, like, place))
    columns: list[FeatureColumn] = []
    left_out: list[str] = []
    for name, values, kind in _joined(table):
        try:
            columns += recognised(name, values, kind, place)
        except ItemfoldError as error:
            left_out.append(str(error))
    if not columns:
        raise ItemfoldError(
            f"{place}: no column can be used as a feature: {'; '.join(left_out) or 'there is none'}"
        )
    return ItemFeatures(ids, tuple(columns), tuple(left_out))


def titles_and_genres(
    ids: IdMap, titles: npt.NDArray[Any] | None, genres: npt.NDArray[Any] | None
) -> ItemFeatures | None:
    """Titles and genres as features, or None if there are neither."""
    columns: list[FeatureColumn] = []
    if titles is not None:
        columns += text_columns("title", [str(text) for text in titles])
    if genres is not None:
        columns.append(FeatureColumn("genres", "category", as_categories(genres.tolist())))
    return ItemFeatures(ids, tuple(columns)) if columns else None


# --- reading -------------------------------------------------------------------------------------


def _table(source: Any) -> tuple[str, dict[str, list[Any]]]:
    """The name of the table for messages, and its columns."""
    if isinstance(source, str | Path):
        path = Path(source).expanduser()
        if not path.is_file():
            raise ItemfoldError(f"'item_features' must be an existing file, got '{path}'")
        return str(path), read_columns(path)
    if hasattr(source, "columns") and hasattr(source, "__getitem__"):
        return "the frame", {str(name): source[name].to_list() for name in source.columns}
    kind = type(source).__name__
    raise ItemfoldError(f"'item_features' must be a file or a frame, got {kind}")


def _item_column(names: list[str], item: str | None, place: str) -> str:
    """The column of the ids: by name, by a common name, or the first."""
    plain = {plain_name(name.partition(":")[0]): name for name in reversed(names)}
    if item is not None and (found := plain.get(plain_name(str(item)))) is not None:
        return found
    if len(names) < 2:
        raise ItemfoldError(f"{place}: expected an item column and features, found {names}")
    return names[item_column(names) or 0]


def _ids(values: list[Any], place: str) -> IdMap:
    listed = [value.strip() if isinstance(value, str) else value for value in values]
    for row, value in enumerate(listed, start=1):
        if is_missing(value):
            raise ItemfoldError(f"{place}, row {row}: the item id is missing")
    whole = [int(v) if isinstance(v, float) and v.is_integer() else v for v in listed]
    texts = [str(value) for value in whole]
    if len(set(texts)) < len(texts):
        twice = Counter(texts).most_common(1)[0][0]
        raise ItemfoldError(f"{place}: item ids must be unique, got several rows of {twice!r}")
    is_whole = all(type(v) is int or (isinstance(v, str) and is_plain_int(v)) for v in whole)
    return IdMap(np.array(texts, dtype=np.int64) if is_whole and texts else text_array(texts))


def _joined(table: Mapping[str, list[Any]]) -> list[tuple[str, list[Any], FeatureKind | None]]:
    """(name, values, declared kind or None); columns name_0 … name_n become one of lists."""
    parts: dict[str, list[tuple[int, str]]] = {}
    for name in table:
        if found := PART.fullmatch(name.partition(":")[0]):
            parts.setdefault(found[1], []).append((int(found[2]), name))
    out: list[tuple[str, list[Any], FeatureKind | None]] = []
    used: set[str] = set()
    for base, group in parts.items():
        group.sort()
        count = [number for number, _ in group]
        names = [name for _, name in group]
        in_order = count in (list(range(len(group))), list(range(1, len(group) + 1)))
        if len(group) > 2 and in_order and all(are_numbers(table[name]) for name in names):
            rows = zip(*(table[name] for name in names), strict=True)
            out.append((base, [list(row) for row in rows], None))
            used |= set(names)
    for name, values in table.items():
        if name not in used:
            short, _, kind = name.partition(":")
            is_typed = kind in TYPES
            out.append((short if is_typed else name, values, TYPES.get(kind)))
    return out


def _columns_like(
    table: Mapping[str, list[Any]], like: ItemFeatures, place: str
) -> tuple[FeatureColumn, ...]:
    """The columns of ``like``; a column that the table lacks is missing everywhere."""
    joined = {plain_name(name): values for name, values, _ in _joined(table)}
    rows = len(next(iter(table.values()), []))
    out: list[FeatureColumn] = []
    found = 0
    for column in like.columns:
        is_year = column.kind == "number" and column.name.endswith(OF_YEAR)
        values = joined.get(plain_name(column.name.removesuffix(OF_YEAR)))
        if values is None:
            out.append(column.take(np.full(rows, -1)))
            continue
        found += 1
        if is_year:
            out.append(FeatureColumn(column.name, "number", years_of(as_texts(values))))
        else:
            out.append(parsed(column.name, values, column.kind, place, like=column))
    if not found:
        names = ", ".join(column.name for column in like.columns)
        raise ItemfoldError(f"{place}: must have at least one of the columns {names}")
    return tuple(out)
