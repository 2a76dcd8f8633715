"""Negatives drawn by popularity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.data.csr import as_ones, row_of_entry
from itemfold.errors import ItemfoldError
from itemfold.sampling.base import Batch, DrawnNegatives, ScoredLists
from itemfold.sampling.exact import bits_for, check_negatives_left, prepared, uniform_integers
from itemfold.validation import at_least_zero


@dataclass
class PopularityNegatives(DrawnNegatives):
    """Draws in proportion to an item's number of training interactions to the given power.

    `p(i | u) = d_i^power / Σ_{j ∉ u} d_j^power`; items without an interaction are drawn only with
    power 0, which equals Uniform. The public name is `itemfold.negatives.Popularity`.

    Args:
        power: At least 0.

    Examples:
        >>> import numpy as np
        >>> import scipy.sparse as sp
        >>> import torch
        >>> from itemfold.negatives import Popularity
        >>> sampler = Popularity(power=1.0)
        >>> sampler.prepare(sp.csr_array(np.array([[1.0, 0, 0], [0, 1, 1], [0, 1, 0]])))
        >>> drawn = sampler(torch.tensor([0]), 3000, torch.Generator().manual_seed(0))
        >>> round((drawn == 1).float().mean().item(), 1)  # 2 of 3 interactions
        0.7
    """

    power: float = 0.75

    def __post_init__(self) -> None:
        at_least_zero(power=self.power)

    def prepare(self, train: sp.csr_array, device: Any = "cpu") -> None:
        """Accumulate integer weights over the catalogue and store the position of each positive."""
        train = as_ones(train)
        n_users, n_items = train.shape
        degree = np.bincount(train.indices, minlength=n_items).astype(np.float64)
        share = degree**self.power
        if not share.any():
            raise ItemfoldError("popularity negatives need training interactions; there are none")
        # Integers make the exclusion exact; the sum is small enough for a range of keys per user.
        scale = 2.0 ** min(40, 61 - bits_for(n_users)) / share.sum()
        weight = np.ceil(share * scale).astype(np.int64)
        end = np.cumsum(weight)  # [n_items]
        positive_weight = weight[train.indices]  # [nnz]
        # weight of the positives before an entry
        before = np.concatenate(([0], np.cumsum(positive_weight)))
        rows = row_of_entry(train)
        cut = before[train.indptr[:-1]]  # [n_users]
        mass = end[-1] - (before[train.indptr[1:]] - cut)
        check_negatives_left(mass)
        stride = int(end[-1]) + 1
        keys = end[train.indices] - positive_weight - (before[:-1] - cut[rows]) + rows * stride
        self._tables = tuple(torch.from_numpy(a).to(device) for a in (keys, before, cut, mass, end))
        self._stride = stride
        logs = (np.log(np.maximum(weight, 1)), np.log(mass))  # exact counts, so float64 first
        self._logs = tuple(torch.from_numpy(a).float().to(device) for a in logs)

    def __call__(self, users: Tensor, n: int, generator: torch.Generator) -> Tensor:
        """Draw ``[B, n]`` items for ``[B]`` users."""
        keys, before, cut, mass, end = prepared(self, "_tables")
        row = users.unsqueeze(1)  # [B, 1]
        # [B, n] over the weight of the non-positives
        draw = uniform_integers(mass[row], n, generator)
        index = torch.searchsorted(keys, draw + row * self._stride, right=True)
        draw += before[index] - cut[row]  # past every positive before it
        return torch.searchsorted(end, draw, right=True)

    def log_expected(self, batch: Batch, lists: ScoredLists) -> Tensor:
        """``log(n · p(i | u))`` of the drawn items, ``[B, n]``."""
        log_weight, log_mass = prepared(self, "_logs")
        expected: Tensor = log_weight[lists.items] - log_mass[batch.users].unsqueeze(1)
        return expected + math.log(lists.items.shape[1])
