"""An exponential moving average of the weights, which reduces the noise of single steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class WeightAverage:
    """Exponentially weighted mean of the weights after each step; with decay 0 it does nothing.

    ``m ← decay·m + (1 − decay)·w`` from ``m = 0``, used as ``m / (1 − decayᵗ)``: after one step the
    mean is that step's weights, and the initial weights never count.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights: list[Tensor] = list(model.parameters()) if decay > 0 else []
        self.sums = [torch.zeros_like(w) for w in self.weights]
        device = self.weights[0].device if self.weights else None
        self.steps = torch.zeros((), dtype=torch.float64, device=device)

    @property
    def tensors(self) -> list[Tensor]:
        """Everything that changes with a step."""
        return [*self.sums, self.steps]

    @torch.no_grad()
    def update(self) -> None:
        """Add the weights after a step."""
        if self.sums:
            torch._foreach_lerp_(self.sums, self.weights, 1 - self.decay)
            self.steps.add_(1)

    @contextmanager
    @torch.no_grad()
    def applied(self) -> Iterator[None]:
        """Within this context the model uses the mean weights."""
        current = [w.detach().clone() for w in self.weights]
        self.keep()
        try:
            yield
        finally:
            for weight, value in zip(self.weights, current, strict=True):
                weight.copy_(value)

    @torch.no_grad()
    def keep(self) -> None:
        """Replace the model's weights with the mean weights permanently."""
        known = 1 - self.decay ** float(self.steps)
        if known > 0:
            for weight, total in zip(self.weights, self.sums, strict=True):
                torch.div(total, known, out=weight.data)

    @torch.no_grad()
    def load(self, tensors: Sequence[Tensor]) -> None:
        """Continue from saved `tensors`."""
        for own, saved in zip(self.tensors, tensors, strict=True):
            own.copy_(saved)
