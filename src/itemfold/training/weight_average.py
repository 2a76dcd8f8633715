"""Exponential moving average of the weights, which reduces the noise of single steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage:
    """Exponential moving average of the weights after each step; decay 0 disables it.

    ``m ← decay·m + (1 − decay)·w`` from ``m = 0``, used as ``m / (1 − decayᵗ)``: after one step the
    average equals the weights, and the initial weights have no influence.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights: list[Tensor] = list(model.parameters()) if decay > 0 else []
        self.sums = [torch.zeros_like(w) for w in self.weights]
        device = self.weights[0].device if self.weights else None
        self.steps = torch.zeros((), dtype=torch.float64, device=device)

    @property
    def tensors(self) -> list[Tensor]:
        """The state of the average: what a step changes and a checkpoint stores."""
        return [*self.sums, self.steps]

    @torch.no_grad()
    def update(self) -> None:
        """Add the current weights to the average."""
        if self.sums:
            torch._foreach_lerp_(self.sums, self.weights, 1 - self.decay)
            self.steps.add_(1)

    @contextmanager
    @torch.no_grad()
    def applied(self) -> Iterator[None]:
        """Use the averaged weights within this context."""
        current = [w.detach().clone() for w in self.weights]
        self.keep()
        try:
            yield
        finally:
            for weight, value in zip(self.weights, current, strict=True):
                weight.copy_(value)

    @torch.no_grad()
    def keep(self) -> None:
        """Replace the model's weights with the averaged ones for good."""
        correction = 1 - self.decay ** float(self.steps)  # for the start from 0
        if correction > 0:
            for weight, total in zip(self.weights, self.sums, strict=True):
                torch.div(total, correction, out=weight.data)

    @torch.no_grad()
    def load(self, tensors: Sequence[Tensor]) -> None:
        """Continue from saved `tensors`."""
        for own, saved in zip(self.tensors, tensors, strict=True):
            own.copy_(saved)
