"""The catalogue of a recommender: the items of its run, and new ones that have features."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from itemrec.data.feature_matrix import words_of
from itemrec.data.interactions import IdMap
from itemrec.data.item_features import ItemFeatures, read_item_features, titles_and_genres
from itemrec.data.joining import ItemCatalogue, TextColumn, resized, with_new_items
from itemrec.errors import ItemrecError
from itemrec.models.base import Model
from itemrec.models.with_new_items import WithNewItems
from itemrec.training.run import Run


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
    def catalogue(self) -> ItemCatalogue:
        """Ids, titles and genres of all items."""
        known = ItemCatalogue(self.run.item_ids, self.run.titles, self.run.genres)
        return known if self.features is None else with_new_items(known, self.features, self.new)

    @property
    def ids(self) -> IdMap:
        """Ids of all items."""
        return self.catalogue.item_ids

    @property
    def titles(self) -> TextColumn:
        """The title of each item, or None."""
        return self.catalogue.titles

    @property
    def genres(self) -> TextColumn:
        """The genres of each item, or None."""
        return self.catalogue.genres

    @cached_property
    def train(self) -> sp.csr_array:
        """The training interactions with an empty column for each new item."""
        return resized(self.run.train, (self.run.train.shape[0], len(self.ids)))

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
