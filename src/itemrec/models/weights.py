"""Weights that all nodes share: how they begin, and how fast they learn."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from itemrec.models.base import GNN


class WeightedGNN(GNN):
    """Message passing with weights beside the vectors of users and items.

    Every node moves a shared weight, and mostly the same way: at the vectors' learning rate scores
    grow to thousands within an epoch, where a smooth rank has no slope left, and the model never
    gets past popularity. A step of a shared weight is therefore divided by its width, which keeps
    the change of a product independent of it (LOG.md).
    """

    def groups(self, lr: float) -> list[dict[str, Any]]:
        """Vectors at ``lr``, shared weights at ``lr`` over their width."""
        tables = {id(self.item_embedding), id(self.user_embedding)}
        vectors = [p for p in self.parameters() if id(p) in tables]
        shared = [p for p in self.parameters() if id(p) not in tables]
        return [
            {"params": vectors, "lr": lr},
            *({"params": [p], "lr": lr / p.shape[-1]} for p in shared),
        ]


def glorot(shape: tuple[int, int], generator: torch.Generator) -> nn.Parameter:
    """Uniform within ±√(6 / (in + out)) (Glorot & Bengio, 2010)."""
    bound = math.sqrt(6 / sum(shape))
    return nn.Parameter((torch.rand(shape, generator=generator) * 2 - 1) * bound)
