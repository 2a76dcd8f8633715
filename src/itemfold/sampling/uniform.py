"""Negatives drawn with equal probability."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.sampling.base import Batch, DrawnNegatives, ScoredLists
from itemfold.sampling.exact import Draws, prepared


@dataclass
class Uniform(DrawnNegatives):
    """Every item that is not a training positive of the user, with equal probability.

    Examples:
        >>> import numpy as np
        >>> import scipy.sparse as sp
        >>> import torch
        >>> from itemfold.negatives import Uniform
        >>> sampler = Uniform()
        >>> sampler.prepare(sp.csr_array(np.array([[1.0, 0.0, 1.0, 0.0]])))
        >>> drawn = sampler(torch.tensor([0]), 50, torch.Generator().manual_seed(0))
        >>> sorted(set(drawn.flatten().tolist()))  # never 0 and 2
        [1, 3]
    """

    def prepare(self, train: sp.csr_array, device: Any = "cpu") -> None:
        """Build the tables that exclude every user's positives."""
        self._draws = Draws(train, device)
        free = train.shape[1] - torch.from_numpy(np.diff(train.indptr))
        self._log_free = free.double().log().float().to(device)  # [n_users]

    def __call__(self, users: Tensor, n: int, generator: torch.Generator) -> Tensor:
        """Draw ``[B, n]`` items for ``[B]`` users."""
        draws: Draws = prepared(self, "_draws")
        return draws(users, n, generator)

    def log_expected(self, batch: Batch, lists: ScoredLists) -> Tensor:
        """``log(n / items that are not the user's)``, ``[B, 1]``."""
        log_free: Tensor = prepared(self, "_log_free")
        return math.log(lists.items.shape[1]) - log_free[batch.users].unsqueeze(1)
