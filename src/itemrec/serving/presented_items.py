"""Rows of items as people see them: id, title, genres, picture, and the reasons for a score."""

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
    """The items of a recommender by their rows.

    Args:
        items: All items that can be recommended.
        images: The address of a picture for each, or None.
    """

    def __init__(self, items: ServedItems, images: Sequence[str] | None) -> None:
        self.items, self.images = items, images
        self.n_known = len(items.run.item_ids)
        self._ids = items.ids.ids.tolist()

    def image_of(self, row: int) -> str:
        """The address of a picture, "" if there is none."""
        return "" if self.images is None else self.images[row]

    def plain(self, rows: Tensor, scores: Tensor) -> tuple[Recommendation, ...]:
        """These items with their scores, ``[k]`` each."""
        pairs = zip(rows.tolist(), scores.tolist(), strict=True)
        return tuple(self._pick(row, score) for row, score in pairs)

    def explained(
        self,
        rows: Tensor,
        scores: Tensor,
        history: npt.NDArray[np.int64],
        shares: Tensor,
        listed: int | None,
    ) -> tuple[Recommendation, ...]:
        """These items with the share of each item of the history, ``[k, history]``.

        ``listed`` is the number of shares to list, the largest; None: all.
        """
        total = shares.double().sum(1)
        if listed is not None and listed < len(history):  # those that move the score most
            kept = shares.abs().topk(listed, dim=1).indices.sort(dim=1).values  # [k, listed]
        else:
            kept = torch.arange(len(history), device=shares.device).expand(len(rows), -1)
        parts = shares.gather(1, kept)
        order = parts.argsort(dim=1, descending=True, stable=True)
        kept, parts = kept.gather(1, order), parts.gather(1, order)
        own = scores.double() - total
        others = total - parts.double().sum(1)
        if kept.shape[1] == len(history):  # not the error of a sum
            others.zero_()
        names = [(self._ids[row], self._text("titles", row)) for row in history.tolist()]

        def reason(place: int, share: float) -> Reason:
            item, title = names[place]
            return Reason(item, title, share)

        columns = (rows, scores, kept, parts, own, others)
        return tuple(
            self._pick(
                row,
                score,
                reasons=tuple(map(reason, ranked, part)),
                own=rest,
                others=unlisted,
            )
            for row, score, ranked, part, rest, unlisted in zip(
                *(column.tolist() for column in columns), strict=True
            )
        )

    def likenesses(self, row: int, known: Sequence[int]) -> tuple[Likeness, ...]:
        """Known items that the new one in a row is like, with what they share."""
        return tuple(
            Likeness(self._ids[one], self._text("titles", one), self.items.shared(row, one))
            for one in known
        )

    def _pick(self, row: int, score: float, **reasons: Any) -> Recommendation:
        return Recommendation(
            self._ids[row],
            self._text("titles", row),
            self._text("genres", row),
            score,
            image=self.image_of(row),
            is_new=row >= self.n_known,
            **reasons,
        )

    def _text(self, column: str, row: int) -> str:
        texts = getattr(self.items, column)
        return "" if texts is None else str(texts[row])
