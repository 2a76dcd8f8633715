"""Negatives of which some are positives, to measure how robust a loss is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.sampling.base import Batch, ScoredLists
from itemfold.sampling.exact import prepared, uniform_numbers
from itemfold.sampling.uniform import Uniform
from itemfold.validation import share_below_one


@dataclass
class FalseNegatives(Uniform):
    """Uniform negatives, a fraction of which is replaced by training positives of the user.

    For experiments: in practice an item without an interaction may be one that the user would like.

    Args:
        share: Probability that an entry of a list is one of the user's own training items.

    Examples:
        >>> import numpy as np
        >>> import scipy.sparse as sp
        >>> import torch
        >>> from itemfold.negatives import FalseNegatives
        >>> sampler = FalseNegatives(share=0.2)
        >>> sampler.prepare(sp.csr_array(np.array([[1.0, 0.0, 1.0, 0.0]])))
        >>> drawn = sampler(torch.tensor([0]), 5000, torch.Generator().manual_seed(0))
        >>> round((drawn % 2 == 0).float().mean().item(), 1)  # items 0 and 2 are positives
        0.2
    """

    share: float = 0.1

    def __post_init__(self) -> None:
        share_below_one(share=self.share)

    def prepare(self, train: sp.csr_array, device: Any = "cpu") -> None:
        """Build the tables of `Uniform`, and keep the positives."""
        super().prepare(train, device)
        parts = (train.indptr[:-1], train.indptr[1:], train.indices)
        self._own = tuple(torch.from_numpy(part).long().to(device) for part in parts)

    def __call__(self, users: Tensor, n: int, generator: torch.Generator) -> Tensor:
        """Draw ``[B, n]`` items for ``[B]`` users."""
        start, end, items = prepared(self, "_own")
        drawn = super().__call__(users, n, generator)
        first, length = start[users].unsqueeze(1), (end - start)[users].unsqueeze(1)  # [B, 1]
        place, replace = (uniform_numbers((len(users), n), generator) for _ in range(2))
        at = first + (place * length).long().clamp(max=(length - 1).clamp(min=0))
        own = items[at.clamp(max=len(items) - 1)]
        return torch.where((replace < self.share) & (length > 0), own, drawn)

    def log_expected(self, batch: Batch, lists: ScoredLists) -> Tensor:
        """That of `Uniform`: which negatives are false is unknown, as in practice."""
        return super().log_expected(batch, lists)
