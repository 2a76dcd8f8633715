"""Feature columns of items: parsing of values, and detection of their kind."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from itemfold.data.array_types import Floats, Ints
from itemfold.data.columns.values import NOT_A_NUMBER, is_missing, to_number
from itemfold.errors import ItemfoldError

FeatureKind = Literal["category", "number", "vector", "text"]
FEATURE_KINDS: tuple[FeatureKind, ...] = ("category", "number", "vector", "text")
NONE_LISTED = "(no genres listed)"
YEAR = re.compile(r"\((\d{4})\)\s*$")
OF_YEAR = " (year)"  # suffix of the name of a column of years taken from texts


@dataclass(frozen=True, eq=False)
class FeatureColumn:
    """One feature of every item.

    Attributes:
        name: Name of the column.
        kind: "category", "number", "vector" or "text".
        values: Categories as tuples of texts, texts as texts, numbers `[n]`, vectors `[n, d]`; a
            missing value is empty or NaN.
    """

    name: str
    kind: FeatureKind
    values: Any

    def take(self, rows: Ints) -> FeatureColumn:
        """The values of these rows; −1 is a missing value."""
        if self.kind in ("number", "vector"):
            array = np.asarray(self.values)[rows].copy()
            array[rows < 0] = np.nan
            return FeatureColumn(self.name, self.kind, array)
        empty: Any = () if self.kind == "category" else ""
        values = [self.values[row] if row >= 0 else empty for row in rows.tolist()]
        return FeatureColumn(self.name, self.kind, values)

    def describe(self) -> str:
        """A phrase such as "genres: 19 categories, several an item"."""
        if self.kind == "category":
            count = len({name for names in self.values for name in names})
            several = ", several an item" if any(len(names) > 1 for names in self.values) else ""
            return f"{self.name}: {count:,} categories{several}"
        if self.kind == "vector":
            return f"{self.name}: a vector of {self.values.shape[1]:,} numbers"
        if self.kind == "number":
            some = self.values[np.isfinite(self.values)]
            return f"{self.name}: a number from {some.min():g} to {some.max():g}"
        return f"{self.name}: text, by its words and pairs of words"


def recognised(
    name: str, values: list[Any], kind: FeatureKind | None, place: str
) -> list[FeatureColumn]:
    """The features of a column, with the kind detected if it is None; raises if there are none."""
    some = [value for value in values if not _is_empty(value)]
    if not some:
        raise ItemfoldError(f"{name} is empty")
    if kind is None:
        kind = _recognised_kind(some)
    column = parsed(name, values, kind, place)
    return text_columns(name, column.values) if kind == "text" else [column]


def _recognised_kind(some: list[Any]) -> FeatureKind:
    if all(_is_list(value) for value in some):
        is_text = any(isinstance(part, str) for value in some for part in value)
        return "category" if is_text else "vector"
    if are_numbers(some):
        return "number"
    texts = [str(value) for value in some]
    several = sum("|" in text for text in texts)
    words = sum(len(text.split()) for text in texts) / len(texts)
    if several or (len(set(texts)) <= len(texts) / 2 and words <= 4):
        return "category"
    return "text"


def parsed(
    name: str, values: list[Any], kind: FeatureKind, place: str, like: FeatureColumn | None = None
) -> FeatureColumn:
    """Parse a column of a given kind; vectors have the length of those of ``like``."""
    if kind == "category":
        return FeatureColumn(name, kind, as_categories(values))
    if kind == "text":
        return FeatureColumn(name, kind, as_texts(values))
    parse: Callable[[Any], Any] = _number if kind == "number" else _vector
    try:
        listed = [parse(value) for value in values]
    except NOT_A_NUMBER:
        bad = next(value for value in values if not _can(parse, value))
        raise ItemfoldError(f"{place}: {name} must be a {kind}, got {str(bad)[:60]!r}") from None
    if kind == "number":
        return FeatureColumn(name, kind, np.array(listed, dtype=np.float64))
    width = max(len(vector) for vector in listed) if like is None else like.values.shape[1]
    out = np.full((len(listed), width), np.nan, dtype=np.float32)
    for row, vector in enumerate(listed):
        if len(vector) not in (0, width):
            raise ItemfoldError(f"{place}: {name} must have {width} numbers, got {len(vector)}")
        if vector:
            out[row] = vector
    return FeatureColumn(name, kind, out)


def text_columns(name: str, texts: list[str]) -> list[FeatureColumn]:
    """A text column, and a column of years if most texts end in a year in parentheses."""
    years = years_of(texts)
    out = [FeatureColumn(name, "text", texts)]
    if np.isfinite(years).sum() > sum(map(bool, texts)) / 2:
        out.append(FeatureColumn(f"{name}{OF_YEAR}", "number", years))
    return out


def years_of(texts: list[str]) -> Floats:
    """The year in parentheses at the end of each text, NaN where there is none."""
    found = [YEAR.search(text) for text in texts]
    return np.array([float(year[1]) if year else np.nan for year in found])


def as_texts(values: list[Any]) -> list[str]:
    """The values as texts, "" where missing."""
    return ["" if _is_empty(value) else str(value).strip() for value in values]


def as_categories(values: Sequence[Any]) -> list[tuple[str, ...]]:
    """The categories of each value, which is a list or a text separated by ``|``."""
    out = []
    for value in values:
        listed = value if _is_list(value) else ("" if _is_empty(value) else str(value)).split("|")
        names = (str(name).strip() for name in listed)
        out.append(tuple(dict.fromkeys(name for name in names if name and name != NONE_LISTED)))
    return out


def _number(value: Any) -> float:
    number = np.nan if is_missing(value) else to_number(value, "time")
    return number if abs(number) < 1e30 else np.nan


def _vector(value: Any) -> list[float]:
    if _is_empty(value):
        return []
    parts = value if _is_list(value) else str(value).replace(",", " ").strip("[] ").split()
    return [float(part) for part in parts]


def are_numbers(values: list[Any]) -> bool:
    """Whether every value is a number, a date or missing."""
    return all(_can(_number, value) for value in values)


def _can(parse: Callable[[Any], Any], value: Any) -> bool:
    try:
        parse(value)
    except NOT_A_NUMBER:
        return False
    return True


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple | np.ndarray)


def _is_empty(value: Any) -> bool:
    return (_is_list(value) and len(value) == 0) or (not _is_list(value) and is_missing(value))
