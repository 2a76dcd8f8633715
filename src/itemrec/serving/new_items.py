"""The catalogue of a recommender: the items of its run, and new ones that have features."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from itemrec.data.feature_matrix import words_of
from itemrec.data.interactions import IdMap
from itemrec.data.item_features import (
    GENRES,
    TITLES,
    ItemFeatures,
    read_item_features,
    titles_and_genres,
)
from itemrec.data.texts import text_array
from itemrec.errors import ItemrecError
from itemrec.models.base import Model
from itemrec.models.with_new_items import WithNewItems
from itemrec.training.run import Run

Texts = npt.NDArray[Any] | None


@dataclass(frozen=True)
class ServedItems:
    """All items that can be recommended: those of the run, then the new ones."""

    run: Run
    features: ItemFeatures | None
    is_given: bool  # whether features came after training

    @classmethod
    def of(cls, run: Run, new_items: Any = None) -> ServedItems:
        """The items of a run and, from a table, new ones."""
        if new_items is None:
            return cls(run, run.features, is_given=False)
        return cls(run, _grown(run, new_items), is_given=True)

    @cached_property
    def new(self) -> IdMap:
        """Ids of the new items."""
        if self.features is None:
            return self.run.item_ids.take(np.empty(0, dtype=np.int64))
        return self.features.without(self.run.item_ids)

    @cached_property
    def ids(self) -> IdMap:
        """Ids of all items."""
        known, new = self.run.item_ids.ids, self.new.ids
        if not len(new):
            return self.run.item_ids
        if known.dtype.kind in "iu" and new.dtype.kind in "iu":
            return IdMap(np.concatenate([known, new]))
        return IdMap(text_array([str(value) for value in (*known.tolist(), *new.tolist())]))

    @cached_property
    def titles(self) -> Texts:
        """The title of each item, or None."""
        return self._texts(self.run.titles, TITLES)

    @cached_property
    def genres(self) -> Texts:
        """The genres of each item, or None."""
        return self._texts(self.run.genres, GENRES)

    @cached_property
    def train(self) -> sp.csr_array:
        """The training interactions with an empty column for each new item."""
        train = self.run.train
        parts = (train.data, train.indices, train.indptr)
        return sp.csr_array(parts, shape=(train.shape[0], len(self.ids)))

    def model(self) -> Model:
        """The model of the run, which also scores the new items if there are any."""
        if self.features is None or not len(self.new):
            return self.run.model
        run = self.run
        settings = None if self.is_given and run.features is None else run.metrics.get("new_items")
        parts = (self.features, run.item_ids, self.new)
        return WithNewItems.of(run.model, run.train, *parts, settings)

    def shared(self, one: int, other: int) -> tuple[str, ...]:
        """Categories and words that two items have in common."""
        if self.features is None:
            return ()
        pair = self.features.of(IdMap(self.ids.ids[[one, other]]))
        out: dict[str, None] = {}
        for column in pair.columns:
            if column.kind not in ("category", "text"):
                continue
            first, second = (
                words_of(value) if isinstance(value, str) else value for value in column.values
            )
            out |= dict.fromkeys(name for name in first if name in second)
        return tuple(out)

    def _texts(self, known: Texts, names: tuple[str, ...]) -> Texts:
        if self.features is None or not len(self.new):
            return known
        of_new = self.features.of(self.new).texts(names)
        if known is None:
            known = self.features.of(self.run.item_ids).texts(names)
        if known is None and of_new is None:
            return None
        sizes = (len(self.run.item_ids), len(self.new))
        parts = zip((known, of_new), sizes, strict=True)
        return text_array(
            [str(t) for texts, n in parts for t in ([""] * n if texts is None else texts.tolist())]
        )


def _grown(run: Run, new_items: Any) -> ItemFeatures:
    """The features of a run's items with those of new items from a table.

    A run without features has its titles and genres, unless the table has rows of most known items.
    """
    if run.features is not None:
        return run.features.plus(read_item_features(new_items, like=run.features))
    try:
        table: ItemFeatures | None = read_item_features(new_items)
    except ItemrecError:
        table = None
    if table is not None:
        covered = (run.item_ids.index(table.ids.ids) >= 0).sum()
        if covered >= len(run.item_ids) / 2:
            return table
    own = titles_and_genres(run.item_ids, run.titles, run.genres)
    if own is None:
        raise ItemrecError(
            "'new_items' must also have rows of the known items: the run has no features, titles "
            "or genres to compare new items by"
        )
    return own.plus(read_item_features(new_items, like=own))
