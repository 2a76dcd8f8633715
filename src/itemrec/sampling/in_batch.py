"""The positives of a batch as the negatives of each of its users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import scipy.sparse as sp
import torch
from torch import Tensor

from itemrec import ranks
from itemrec.ops.columns import sum_own_rows
from itemrec.ops.pair_scores import pair_scores, take_rows
from itemrec.sampling.base import Encoded, Sampler, ScoredLists
from itemrec.sampling.batch import Batch
from itemrec.sampling.exact import prepared
from itemrec.sampling.positives import Positives
from itemrec.validation import positive_integers


@dataclass
class InBatch(Sampler):
    """The positives of the whole batch, or of a part of it, are the negatives of its users.

    Nothing is drawn, so `n_negatives` has no effect; the user's training items are masked. With
    `group` a batch is cut into parts of so many rows, and each part shares its own positives: a
    large batch then costs one propagation, but not the square of its size.

    Args:
        group: Rows of a batch that share their positives; default: all.

    Raises:
        ItemrecError: `group` is not a positive integer.

    Examples:
        >>> from itemrec.negatives import InBatch
        >>> import itemrec as ir
        >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> model = ir.models.LightGCN(dim=8)
        >>> ir.train(split, model, negatives=InBatch(), epochs=2).metrics["negatives"]
        'in-batch'
    """

    by_columns = True
    group: int | None = None

    def __post_init__(self) -> None:
        if self.group is not None:
            positive_integers(group=self.group)

    def prepare(self, train: sp.csr_array, device: Any = "cpu") -> None:
        """Store the training positives, which are masked."""
        self._positives = Positives(train, device)

    def score(
        self, encoded: Encoded, batch: Batch, n: int, generator: torch.Generator
    ) -> ScoredLists:
        """One product with the positives of each part; the user's training items are masked."""
        n, width = batch.positives.shape
        size = min(self.group or n, n)
        parts = -(-n // size)
        place = torch.arange(parts * size, device=batch.users.device) % n  # the last part is padded
        user_vectors = encoded.users_of(batch)  # [B, d]
        padded = user_vectors if len(place) == n else user_vectors[place]
        shared = batch.positives[place].view(parts, size * width)  # [parts, M], M = size · P
        vectors = take_rows(encoded.items, shared.view(-1)).view(parts, size * width, -1)
        products = torch.bmm(padded.view(parts, size, -1), vectors.transpose(1, 2))
        neg = sum_own_rows(products.view(len(place), -1)[:n])  # [B, M]
        pos = sum_own_rows(pair_scores(user_vectors, encoded.items, batch.positives))
        real = batch.mask[place].view(parts, size * width)
        real[-1, size * width - (len(place) - n) * width :] = False
        mask = self.mask(batch.users, shared, real, size)
        return ScoredLists(pos, neg, batch.positives.reshape(-1), mask, batch.mask.reshape(-1))

    def mask(self, users: Tensor, shared: Tensor, real: Tensor, size: int) -> Tensor:
        """Which of the items that a part shares are negatives of its users, bool ``[B, M]``."""
        positives: Positives = prepared(self, "_positives")
        own, masks = ranks.own_rows(len(users)), []
        for at in range(own.start // size, -(-own.stop // size)):
            rows = slice(max(own.start, at * size), min(own.stop, (at + 1) * size))
            masks.append(real[at] & ~positives.is_positive(users[rows], shared[at]))
        return torch.cat(masks)
