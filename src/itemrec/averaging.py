"""A running mean of the weights: the noise of single steps cancels, what they agree on stays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """``mean ← decay·mean + (1 − decay)·weights`` after each step; with decay 0 it does nothing."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = list(model.parameters()) if decay > 0 else []
        self.mean = [w.detach().clone() for w in self.weights]

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights of a step."""
        if self.mean:
            torch._foreach_lerp_(self.mean, self.weights, 1 - self.decay)

    @contextmanager
    @torch.no_grad()
    def applied(self) -> Iterator[None]:
        """Within this context the model has the mean weights."""
        current = [w.detach().clone() for w in self.weights]
        self.keep()
        try:
            yield
        finally:
            for weight, value in zip(self.weights, current, strict=True):
                weight.copy_(value)

    @torch.no_grad()
    def keep(self) -> None:
        """Give the model the mean weights for good."""
        for weight, mean in zip(self.weights, self.mean, strict=True):
            weight.copy_(mean)

    @torch.no_grad()
    def load(self, mean: Sequence[Tensor]) -> None:
        """Continue from a saved mean."""
        for own, saved in zip(self.mean, mean, strict=True):
            own.copy_(saved)
