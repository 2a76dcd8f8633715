"""Features of items as matrices: regressors for a ridge regression, and words to compare items.

The encoding is learned from the known items: categories and words, the range of numbers, the centre
of vectors. New items are encoded the same way; categories and words that no known item has are
ignored.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from itemfold.data.array_types import Floats, Ints
from itemfold.data.items.feature_columns import YEAR, FeatureColumn
from itemfold.data.items.item_features import ItemFeatures

KNOTS = 8  # of a number; the regression is piecewise linear between them
CATEGORIES, PAIRS = 1000, 500  # most regressors of a column, the most frequent ones
RARE, RARE_PAIR = 2, 5  # known items that a category, and a pair of categories, must have
STOP = 0.1  # a word in a larger share of the known items is ignored
WORD = re.compile(r"[^\W_]+")
Tokens = list[list[str]]  # of each item
ColumnEncoder = Callable[[FeatureColumn], sp.csr_array]


@dataclass(frozen=True)
class FeatureMatrix:
    """Items as rows of two matrices."""

    regressors: sp.csr_array  # [items, F]
    words: sp.csr_array  # [items, W] TF-IDF, rows of length 1 or 0

    def take(self, rows: Ints) -> FeatureMatrix:
        """The matrices of these rows."""
        return FeatureMatrix(sp.csr_array(self.regressors[rows]), sp.csr_array(self.words[rows]))


class FeatureEncoder:
    """Encodes features as numbers, by rules learned from known items.

    >>> from itemfold.data.interactions import IdMap
    >>> rows = IdMap(np.arange(3))
    >>> genres = FeatureColumn("genres", "category", [("War",), ("War",), ("Noir",)])
    >>> encoder = FeatureEncoder(ItemFeatures(rows, (genres,)))
    >>> encoder(ItemFeatures(rows, (genres,))).regressors.toarray().tolist()
    [[1.0], [1.0], [0.0]]
    """

    def __init__(self, known: ItemFeatures) -> None:
        self.blocks = [block for column in known.columns for block in _blocks_of(column)]
        columns = (column for column in known.columns if column.kind == "category")
        self.frequent = {c.name: frozenset(_most(c.values, CATEGORIES, RARE)) for c in columns}
        tokens = _tokens(known, self.frequent)
        counts = Counter(token for row in tokens for token in set(row))
        most = max(STOP * len(known), 2)
        kept = sorted(token for token, count in counts.items() if count <= most)
        self.place = {token: n for n, token in enumerate(kept)}
        self.idf = np.log((1 + len(known)) / (1 + np.array([counts[t] for t in kept]))) + 1

    def __call__(self, features: ItemFeatures) -> FeatureMatrix:
        """Encode items with the same columns."""
        by_name = {column.name: column for column in features.columns}
        blocks = [block(by_name[name]) for name, block in self.blocks]
        empty = sp.csr_array((len(features), 0), dtype=np.float32)
        regressors = sp.csr_array(sp.hstack([empty, *blocks], format="csr", dtype=np.float32))
        return FeatureMatrix(regressors, self._tf_idf(_tokens(features, self.frequent)))

    def _tf_idf(self, tokens: Tokens) -> sp.csr_array:
        columns = [[self.place[t] for t in row if t in self.place] for row in tokens]
        ends = np.cumsum([0, *map(len, columns)])
        listed = np.array([place for row in columns for place in row], dtype=np.int64)
        shape = (len(tokens), len(self.place))
        out = sp.csr_array((self.idf[listed].astype(np.float32), listed, ends), shape=shape)
        out.sum_duplicates()
        length = np.sqrt(out.multiply(out).sum(axis=1))
        scale = (1 / np.maximum(length, 1e-12)).astype(np.float32)
        return sp.csr_array(sp.diags_array(scale) @ out)


def _blocks_of(column: FeatureColumn) -> list[tuple[str, ColumnEncoder]]:
    """Name and encoder of each block of regressors of a column."""
    if column.kind == "number":
        return [(column.name, _hats(column.values))]
    if column.kind == "vector":
        return [(column.name, _scaled(column.values))]
    if column.kind == "category":
        single = _most(column.values, CATEGORIES, RARE)
        double = _most(map(_pairs, column.values), PAIRS, RARE_PAIR)
        return [
            (column.name, _indicators(single, lambda names: names, 1.0)),
            (column.name, _indicators(double, _pairs, 0.5)),
        ]
    return []


def _pairs(names: Iterable[Any]) -> list[tuple[Any, Any]]:
    return list(combinations(sorted(names), 2))


def _most(values: Iterable[Iterable[Any]], most: int, least: int) -> list[Any]:
    """The ``most`` most frequent entries that occur in at least ``least`` items."""
    counts = Counter(entry for entries in values for entry in set(entries))
    return [entry for entry, count in counts.most_common(most) if count >= least]


def _indicators(
    entries: list[Any], of: Callable[[Any], Iterable[Any]], value: float
) -> ColumnEncoder:
    """A column for each entry, ``value`` where an item has it."""
    place = {entry: n for n, entry in enumerate(sorted(entries))}

    def block(column: FeatureColumn) -> sp.csr_array:
        rows = [[place[entry] for entry in of(names) if entry in place] for names in column.values]
        ends = np.cumsum([0, *map(len, rows)])
        listed = np.array([n for row in rows for n in row], dtype=np.int64)
        values = np.full(len(listed), value, dtype=np.float32)
        return sp.csr_array((values, listed, ends), shape=(len(rows), len(place)))

    return block


def _hats(known: Floats) -> ColumnEncoder:
    """Piecewise linear basis functions between quantiles; all are 0 for a missing number."""
    some = known[np.isfinite(known)]
    knots = np.unique(np.quantile(some, np.linspace(0, 1, KNOTS))) if len(some) else np.zeros(1)

    def block(column: FeatureColumn) -> sp.csr_array:
        known_here = np.isfinite(column.values)
        at = np.where(known_here, column.values, knots[0])
        hats = [np.interp(at, knots, row) * known_here for row in np.eye(len(knots))]
        return sp.csr_array(np.stack(hats, axis=1).astype(np.float32))

    return block


def _scaled(known: npt.NDArray[Any]) -> ColumnEncoder:
    """Centred vectors of mean squared length 1; a missing vector becomes the centre."""
    there = np.isfinite(known).all(axis=1)
    centre = known[there].mean(axis=0) if there.any() else np.zeros(known.shape[1])
    size = np.sqrt(np.square(known[there] - centre).sum(axis=1).mean()) if there.any() else 1.0

    def block(column: FeatureColumn) -> sp.csr_array:
        here = np.isfinite(column.values).all(axis=1)[:, None]
        moved = np.where(here, column.values - centre, 0.0) / max(float(size), 1e-12)
        return sp.csr_array(moved.astype(np.float32))

    return block


def _tokens(features: ItemFeatures, frequent: dict[str, frozenset[str]]) -> Tokens:
    """Words and pairs of words of each item, and its rare categories."""
    out: Tokens = [[] for _ in range(len(features))]
    for column in features.columns:
        if column.kind == "text":
            for row, text in zip(out, column.values, strict=True):
                words = words_of(text)
                row += words
                row += [f"{a} {b}" for a, b in pairwise(words)]
        elif column.kind == "category":
            common = frequent[column.name]
            for row, names in zip(out, column.values, strict=True):
                row += [f"{column.name}: {name}" for name in names if name not in common]
    return out


def words_of(text: str) -> list[str]:
    """The words of a text in lower case, without a year in parentheses at its end.

    >>> words_of("The Silent Harbour II (1994)")
    ['the', 'silent', 'harbour', 'ii']
    """
    return WORD.findall(YEAR.sub("", text).lower())
