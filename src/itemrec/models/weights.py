"""Seeded initial weights."""

from __future__ import annotations

import math

import torch
from torch import nn


def glorot(shape: tuple[int, int], generator: torch.Generator) -> nn.Parameter:
    """Uniform within ±√(6 / (in + out)) (Glorot & Bengio, 2010)."""
    bound = math.sqrt(6 / sum(shape))
    return nn.Parameter((torch.rand(shape, generator=generator) * 2 - 1) * bound)
