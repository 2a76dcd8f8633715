"""Popularity: the same list for every user, the simplest baseline."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.models.base import Kind, Model


class Popularity(Model):
    """Items by their number of training interactions: the non-personalised baseline."""

    paper = "(no paper)"
    kind = Kind.CLOSED_FORM
    weighs = ("counts",)

    counts: Tensor  # [items]

    def __init__(self) -> None:
        super().__init__()

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Allocate the counts."""
        super().setup(train, inductive=inductive, generator=generator)
        self.store("counts", torch.zeros(self.n_items, device=self.device))

    def solve(self, train: sp.csr_array) -> None:
        """Count the training interactions of each item, or sum their weights."""
        counts = np.bincount(train.indices, train.data, self.n_items).astype(np.float32)
        self.store("counts", torch.from_numpy(counts).to(self.device))

    def scores(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
        """The counts, for each user."""
        return self.counts.expand(history.shape[0], -1).clone()


def log_popularity(train: sp.csr_array, device: torch.device) -> tuple[Tensor, float]:
    """log(1 + interactions) of each item, standardised, and the deviation it was divided by."""
    count = np.bincount(train.indices, train.data, train.shape[1]).astype(np.float32)
    logarithm = torch.from_numpy(np.log1p(count)).to(device)
    spread = max(float(logarithm.std(correction=0)), 1e-6)
    return (logarithm - logarithm.mean()) / spread, spread
