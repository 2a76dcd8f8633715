"""The positives of a batch as the negatives of each of its users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import scipy.sparse as sp
import torch
from torch import Tensor

from itemrec.ops.pair_scores import pair_scores, take_rows
from itemrec.sampling.base import Encoded, Sampler, ScoredLists
from itemrec.sampling.batch import Batch
from itemrec.sampling.exact import prepared
from itemrec.sampling.positives import Positives


@dataclass
class InBatch(Sampler):
    """The positives of the whole batch are the negatives of each of its users.

    Nothing is drawn, so `n_negatives` has no effect; the user's training items are masked.

    Examples:
        >>> from itemrec.negatives import InBatch
        >>> import itemrec as ir
        >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> model = ir.models.LightGCN(dim=8)
        >>> ir.train(split, model, negatives=InBatch(), epochs=2).metrics["negatives"]
        'in-batch'
    """

    def prepare(self, train: sp.csr_array, device: Any = "cpu") -> None:
        """Store the training positives, which are masked."""
        self._positives = Positives(train, device)

    def score(
        self, encoded: Encoded, batch: Batch, n: int, generator: torch.Generator
    ) -> ScoredLists:
        """One product with the batch's positives; the user's training items are masked."""
        shared = batch.positives.reshape(-1)  # [M], M = B·P, padding included
        user_vectors = take_rows(encoded.users, batch.users)  # [B, d]
        neg = user_vectors @ take_rows(encoded.items, shared).T  # [B, M]
        pos = pair_scores(user_vectors, encoded.items, batch.positives)
        return ScoredLists(pos, neg, shared, self.mask(batch), batch.mask.reshape(-1))

    def mask(self, batch: Batch) -> Tensor:
        """Which of the shared items are negatives of each user, bool ``[B, B · P]``."""
        positives: Positives = prepared(self, "_positives")
        taken = positives.is_positive(batch.users, batch.positives.reshape(-1))
        return batch.mask.reshape(1, -1) & ~taken
