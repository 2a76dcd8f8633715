"""Standard deviations of a user's scores over the catalogue, which put scores on one scale."""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK_SCORES = 2**21  # scores centred at a time; `Tensor.std` takes ten times as long


class NetworkScores:
    """Inner products of users with item vectors, and their deviations over the catalogue.

    The variance of ``u·e_i`` over the items is ``uᵀ C u`` with their covariance C, so that it takes
    no pass over the scores.

    Args:
        table: Item vectors, `[items, d]`.
    """

    def __init__(self, table: Tensor) -> None:
        self.table = table
        centred = (table - table.mean(0)).double()
        self.covariance = (centred.T @ centred / max(len(table), 1)).to(table)

    def __call__(self, users: Tensor) -> tuple[Tensor, Tensor]:
        """Scores ``[B, items]`` and their deviations ``[B, 1]`` of user vectors ``[B, d]``."""
        variance = ((users @ self.covariance) * users).sum(1, keepdim=True)
        return users @ self.table.T, variance.clamp_(min=0).sqrt_().clamp_(min=1e-12)


def deviation(scores: Tensor) -> Tensor:
    """Standard deviation over the catalogue, ``[B, items] → [B, 1]``."""
    mean = scores.mean(1, keepdim=True)
    length, size = torch.empty_like(mean), max(BLOCK_SCORES // scores.shape[1], 1)
    for rows in (slice(at, at + size) for at in range(0, len(scores), size)):
        length[rows] = torch.linalg.vector_norm(scores[rows] - mean[rows], dim=1, keepdim=True)
    return length.div_(scores.shape[1] ** 0.5).clamp_(min=1e-12)


def standardise_(scores: Tensor) -> Tensor:
    """Divide scores by their standard deviation over the catalogue, in place."""
    return scores.div_(deviation(scores))
