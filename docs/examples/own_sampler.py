"""A sampler of your own: a share of popular negatives, the rest uniform."""

from dataclasses import dataclass
from typing import Any

import scipy.sparse as sp
import torch
from torch import Tensor

import itemfold as ir


@dataclass
class OwnSampler(ir.negatives.DrawnNegatives):
    """The fields of the dataclass are the settings."""

    share: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ir.ItemfoldError(f"'share' must be between 0 and 1, got {self.share}")

    def prepare(self, train: sp.csr_array, device: Any = "cpu") -> None:
        """Called once, with the training interactions [users, items]."""
        self._popular, self._uniform = ir.negatives.Popularity(), ir.negatives.Uniform()
        self._popular.prepare(train, device)
        self._uniform.prepare(train, device)

    def __call__(self, users: Tensor, n: int, generator: torch.Generator) -> Tensor:
        """Items [B, n] for users [B]; never a training positive of the user."""
        popular = round(self.share * n)
        hits = self._popular(users, popular, generator)
        return torch.cat([hits, self._uniform(users, n - popular, generator)], dim=1)


ir.negatives.NEGATIVES["own-sampler"] = OwnSampler
