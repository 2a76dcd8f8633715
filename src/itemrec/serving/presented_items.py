"""Items as recommendations: with id, title, genres, image, score and reasons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from itemrec.serving.new_items import ServedItems
from itemrec.serving.recommendations import Likeness, Reason, Recommendation


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
