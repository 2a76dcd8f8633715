"""Facts of items for re-ranking and list metrics: popularity, long tail, age, columns, vectors."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.data.array_types import Bools, Floats
from itemfold.data.interactions import IdMap
from itemfold.data.items.feature_columns import years_of
from itemfold.data.items.item_table import ItemTable, as_number
from itemfold.errors import ItemfoldError
from itemfold.models.base import Model
from itemfold.reranking.similarity import UnitVectors, similar_by, unit_sets
from itemfold.reranking.steering import BY_MODEL

HEAD = 0.2  # share of the items, the most popular ones, that are not in the long tail
AGE_COLUMNS = ("year", "date", "time", "timestamp", "release date", "released")
SAME = {"genre": "genres", "genres": "genre"}


def long_tail(popularity: npt.NDArray[Any]) -> Bools:
    """Mask of the items without the most popular fifth, ``[items]``.

    >>> long_tail(np.array([1, 9, 2, 4, 3])).tolist()
    [True, False, True, True, True]
    """
    order = np.argsort(-popularity, kind="stable")
    tail = np.ones(len(popularity), dtype=np.bool_)
    tail[order[: int(len(order) * HEAD)]] = False
    return tail


class ItemFacts:
    """Facts of the items of a run, each computed when it is first needed.

    Args:
        model: The model that scores.
        train: Its training interactions, `[users, items]`.
        ids: External ids of the items.
        genres: Genres of each item, or None.
        titles: Title of each item, or None.
        table: More columns of the items, or None.
    """

    def __init__(
        self,
        model: Model,
        train: sp.csr_array,
        ids: IdMap,
        genres: npt.NDArray[Any] | None,
        titles: npt.NDArray[Any] | None,
        table: ItemTable | None,
    ) -> None:
        self.device = model.device
        self.popularity = np.bincount(train.indices, minlength=train.shape[1])
        self.model, self.train, self.item_ids = model, train, ids
        self._columns = {} if table is None else table.columns_of(ids)
        mask = None if table is None else table.available_of(ids)
        self.available = None if mask is None else torch.from_numpy(mask).to(self.device)
        self._titles = titles
        if genres is not None:
            self._columns["genres"] = [str(text) for text in genres]
        # by plain names: a client that spells a column in many ways must not fill the cache
        self._values: dict[str, tuple[Tensor, int]] = {}
        self._multi_hot: dict[str, sp.csr_array] = {}

    @property
    def has_genres(self) -> bool:
        """Whether the items have genres."""
        return "genres" in self._columns

    def column(self, *names: str) -> list[str] | None:
        """The first column with one of these names, or None."""
        by_name = {name.lower(): texts for name, texts in self._columns.items()}
        return next((by_name[name] for name in names if name in by_name), None)

    def vectors(self, by: str = BY_MODEL) -> UnitVectors:
        """The vectors whose cosines are the similarities of items: of the model, or of a column."""
        return self._model_vectors if by == BY_MODEL else self.multi_hot(by)

    @cached_property
    def _model_vectors(self) -> UnitVectors:
        return similar_by(self.model, self.train)

    def multi_hot(self, column: str) -> sp.csr_array:
        """Unit vectors of the values of each item in a column, ``[items, values]``."""
        key = column.strip().lower()
        if key not in self._multi_hot:
            table, n_values = self.values(column, "diversity_by")
            values = table.cpu().numpy()
            real = values < n_values
            ends = np.concatenate([[0], np.cumsum(real.sum(1))])
            parts = (np.ones(ends[-1], dtype=np.float32), values[real], ends)
            self._multi_hot[key] = unit_sets(sp.csr_array(parts, shape=(len(values), n_values)))
        return self._multi_hot[key]

    @cached_property
    def log_popularity(self) -> Tensor:
        """log(1 + training interactions), ``[items]``."""
        return torch.from_numpy(np.log1p(self.popularity).astype(np.float32)).to(self.device)

    @cached_property
    def in_tail(self) -> Tensor:
        """Whether an item is in the long tail, bool ``[items]``."""
        return torch.from_numpy(long_tail(self.popularity)).to(self.device)

    @cached_property
    def age(self) -> Tensor:
        """Age of each item, 0 (newest) … 1 (oldest, and where unknown), ``[items]``."""
        times = self._times()
        known = np.isfinite(times)
        if not known.any():
            raise ItemfoldError(
                "'freshness' needs the age of items: a column year, date, time or timestamp in "
                "the item table, or titles that end in a year such as (1995)"
            )
        oldest, newest = times[known].min(), times[known].max()
        age = newest - np.where(known, times, oldest)
        return torch.from_numpy((age / max(age.max(), 1e-12)).astype(np.float32)).to(self.device)

    def _times(self) -> Floats:
        """The time or year of each item, NaN where unknown."""
        for name, column in self._columns.items():
            if name.lower().replace("_", " ") in AGE_COLUMNS:
                return np.array([as_number(name, text) for text in column])
        return years_of([] if self._titles is None else [str(title) for title in self._titles])

    def values(self, column: str, setting: str = "max_per") -> tuple[Tensor, int]:
        """The numbered values of each item in a column, ``[items, m]``, and their number n.

        A row with fewer than m values is padded with n. ``setting`` is named in the error.

        Raises:
            ItemfoldError: There is no such column.
        """
        key = column.strip().lower()
        if key not in self._values:
            found = self.column(key, SAME.get(key, key))
            if found is None:
                choices = ", ".join(self._columns) or "none; pass a table of the items"
                raise ItemfoldError(
                    f"'{setting}' must name a column of the items ({choices}), got {column!r}"
                )
            number: dict[str, int] = {}
            rows = []
            for text in found:
                names = dict.fromkeys(part.strip() for part in text.split("|") if part.strip())
                rows.append([number.setdefault(name, len(number)) for name in names])
            width = max((len(row) for row in rows), default=0) or 1
            table = np.full((len(rows), width), len(number), dtype=np.int64)
            for place, row in enumerate(rows):
                table[place, : len(row)] = row
            self._values[key] = torch.from_numpy(table).to(self.device), len(number)
        return self._values[key]
