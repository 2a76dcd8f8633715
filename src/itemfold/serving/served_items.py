"""The items of a recommender, known and new, and their presentation in lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.data.interactions import IdMap
from itemfold.data.items.feature_matrix import words_of
from itemfold.data.items.item_features import ItemFeatures, read_item_features, titles_and_genres
from itemfold.data.joining import ItemCatalogue, TextColumn, resized, with_new_items
from itemfold.errors import ItemfoldError
from itemfold.models.base import Model
from itemfold.models.with_new_items import WithNewItems
from itemfold.serving.recommendations import Likeness, Reason, Recommendation
from itemfold.training.run import Run


@dataclass(frozen=True)
class ServedItems:
    """All items that can be recommended: those of the run, then the new ones."""

    run: Run
    features: ItemFeatures | None
    is_given: bool  # whether new items were given after training

    @classmethod
    def of(cls, run: Run, new_items: Any = None) -> ServedItems:
        """The items of a run, and those of a table of new items."""
        if new_items is None:
            return cls(run, run.features, is_given=False)
        return cls(run, _all_features(run, new_items), is_given=True)

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
    def interactions(self) -> sp.csr_array:
        """The training interactions with an empty column for each new item."""
        return resized(self.run.interactions, (self.run.interactions.shape[0], len(self.ids)))

    def model(self) -> Model:
        """The model of the run, extended to score the new items if there are any."""
        if self.features is None or not len(self.new):
            return self.run.model
        run = self.run
        settings = None if self.is_given and run.features is None else run.metrics.get("new_items")
        parts = (self.features, run.item_ids, self.new)
        return WithNewItems.of(run.model, run.interactions, *parts, settings)

    def shared_features(self, one: int, other: int) -> tuple[str, ...]:
        """Categories and words that two items share."""
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


def _all_features(run: Run, new_items: Any) -> ItemFeatures:
    """The features of a run's items, and of the new items of a table.

    If the run has no features, its titles and genres are used, unless the table has rows of at
    least half of the known items.
    """
    if run.features is not None:
        return run.features.plus(read_item_features(new_items, like=run.features))
    try:
        table: ItemFeatures | None = read_item_features(new_items)
    except ItemfoldError:
        table = None
    if table is not None:
        covered = (run.item_ids.index(table.ids.ids) >= 0).sum()
        if covered >= len(run.item_ids) / 2:
            return table
    own = titles_and_genres(run.item_ids, run.titles, run.genres)
    if own is None:
        raise ItemfoldError(
            "'new_items' must also have rows of the known items: the run has no features, titles "
            "or genres to compare them with"
        )
    return own.plus(read_item_features(new_items, like=own))


class PresentedItems:
    """Builds recommendations from rows of items.

    Args:
        items: All items that can be recommended.
        images: The image URL of each item, or None.
    """

    def __init__(self, items: ServedItems, images: Sequence[str] | None) -> None:
        self.items, self.images = items, images
        self.n_known = len(items.run.item_ids)
        self._ids = items.ids.ids.tolist()

    def image_of(self, row: int) -> str:
        """The image URL of an item, "" if there is none."""
        return "" if self.images is None else self.images[row]

    def describe(self, row: int) -> dict[str, Any]:
        """Id, title, genres, image URL and novelty of an item."""
        return {
            "item": self._ids[row],
            "title": self._text("titles", row),
            "genres": self._text("genres", row),
            "image": self.image_of(row),
            "is_new": row >= self.n_known,
        }

    def plain(self, rows: Tensor, scores: Tensor) -> tuple[Recommendation, ...]:
        """These items with their scores, ``[k]`` each."""
        pairs = zip(rows.tolist(), scores.tolist(), strict=True)
        return tuple(Recommendation(score=score, **self.describe(row)) for row, score in pairs)

    def explained(
        self,
        rows: Tensor,
        scores: Tensor,
        history: npt.NDArray[np.int64],
        shares: Tensor,
        listed: int | None,
    ) -> tuple[Recommendation, ...]:
        """These items with the shares of the history items, ``[k, history]``.

        ``listed`` is the number of shares to list per item, the largest; None: all.
        """
        total = shares.double().sum(1)
        if listed is not None and listed < len(history):
            kept = shares.abs().topk(listed, dim=1).indices.sort(dim=1).values  # [k, listed]
        else:
            kept = torch.arange(len(history), device=shares.device).expand(len(rows), -1)
        parts = shares.gather(1, kept)
        order = parts.argsort(dim=1, descending=True, stable=True)
        kept, parts = kept.gather(1, order), parts.gather(1, order)
        own = scores.double() - total
        others = total - parts.double().sum(1)
        if kept.shape[1] == len(history):  # no rounding error
            others.zero_()
        ids = [self._ids[row] for row in history.tolist()]
        titles = [self._text("titles", row) for row in history.tolist()]
        columns = (column.tolist() for column in (rows, scores, kept, parts, own, others))
        picks = []
        for row, score, places, values, rest, unlisted in zip(*columns, strict=True):
            pairs = zip(places, values, strict=True)
            reasons = tuple(Reason(ids[place], titles[place], share) for place, share in pairs)
            explanation = {"reasons": reasons, "own": rest, "others": unlisted}
            picks.append(Recommendation(score=score, **self.describe(row), **explanation))
        return tuple(picks)

    def similarities(self, row: int, known: Sequence[int]) -> tuple[Likeness, ...]:
        """Known items similar to a new one, with the features that they share."""
        shared = self.items.shared_features
        return tuple(
            Likeness(self._ids[one], self._text("titles", one), shared(row, one)) for one in known
        )

    def _text(self, column: str, row: int) -> str:
        texts = getattr(self.items, column)
        return "" if texts is None else str(texts[row])
