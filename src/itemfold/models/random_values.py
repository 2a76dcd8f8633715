"""Random values of models: message dropout and initial weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def drop_values(x: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Message dropout: zeros in a random fraction of the values, the others scaled up in return."""
    if not share:
        return x
    keep = torch.rand(x.shape, generator=generator, device=x.device) >= share
    return x * keep / (1 - share)


def glorot(shape: tuple[int, int], generator: torch.Generator) -> nn.Parameter:
    """Uniform within ±√(6 / (in + out)) (Glorot & Bengio, 2010)."""
    return nn.Parameter(uniform(shape, glorot_bound(shape), generator))


def glorot_bound(shape: tuple[int, int]) -> float:
    """√(6 / (in + out))."""
    return math.sqrt(6 / sum(shape))


def uniform(shape: tuple[int, int], bound: float, generator: torch.Generator) -> Tensor:
    """Uniform within ±bound."""
    return (torch.rand(shape, generator=generator) * 2 - 1) * bound
