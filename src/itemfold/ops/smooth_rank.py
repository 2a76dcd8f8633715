"""The smooth count of scores above a positive, Σ_j σ((s_j − s_p)/τ), and its gradient.

The difference is computed before the division: exact for close scores, no ∞ − ∞ at ±1e30.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from itemfold.ops.segment import fused

MOST = 64  # positives that one program of the GPU kernel compares with a block of scores
CACHED = 1 << 18  # comparisons that a CPU makes at a time, so that they stay in its cache


def count_above(pos: Tensor, others: Tensor, tau: float, mask: Tensor | None = None) -> Tensor:
    """Σ_j σ((s_j − s_p)/τ) for s_p ``[B, P]`` over s_j ``[B, N]``, differentiable, ``[B, P]``.

    Where ``mask`` is False, j does not count, whatever its score.
    """
    out: Tensor = _CountAbove.apply(pos, others, tau, mask)  # type: ignore[no-untyped-call]
    return out


class _CountAbove(torch.autograd.Function):
    """A CPU stores one [B, P, N] tensor of slopes; a GPU recomputes them and stores none."""

    @staticmethod
    def forward(ctx: Any, pos: Tensor, others: Tensor, tau: float, mask: Tensor | None) -> Tensor:
        ctx.tau, ctx.recompute = tau, fused(others) and pos.shape[1] <= MOST
        if ctx.recompute:
            from itemfold.ops.triton.smooth_rank import add_smooth_counts

            pos, others, counts = pos.contiguous(), others.contiguous(), torch.zeros_like(pos)
            mask = None if mask is None else mask.contiguous()
            add_smooth_counts(others, pos, counts, tau, mask)
            ctx.save_for_backward(pos, others, mask)
            return counts
        counts, slope = torch.empty_like(pos), pos.new_empty(*pos.shape, others.shape[1])
        rows = max(CACHED // max(slope[:1].numel(), 1), 1)
        left_out = None if mask is None else ~mask
        for start in range(0, len(pos), rows):
            some = slice(start, start + rows)
            part = slope[some]
            torch.sub(others[some, None, :], pos[some, :, None], out=part).div_(tau)
            if left_out is not None:
                part.masked_fill_(left_out[some, None, :], -torch.inf)
            torch.sum(part.sigmoid_(), -1, out=counts[some])
            part.addcmul_(part, part, value=-1)  # σ' = σ − σ²
        ctx.save_for_backward(slope)  # [B, P, N]
        return counts

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None]:
        grad = grad / ctx.tau
        if ctx.recompute:
            from itemfold.ops.triton.smooth_rank import smooth_slopes

            pos, others, mask = ctx.saved_tensors
            grad_pos = torch.zeros_like(pos)
            weight = smooth_slopes(others, pos, grad.contiguous(), grad_pos, ctx.tau, mask)
            return grad_pos, weight, None, None
        (slope,) = ctx.saved_tensors
        return -grad * slope.sum(-1), torch.bmm(grad[:, None, :], slope)[:, 0], None, None


def add_counts(scores: Tensor, pos: Tensor, counts: Tensor, tau: float) -> None:
    """``counts[b, p] += Σ_j σ((scores[b, j] − pos[b, p])/τ)``."""
    if fused(scores):
        from itemfold.ops.triton.smooth_rank import add_smooth_counts

        add_smooth_counts(scores, pos, counts, tau)
        return
    for p in range(pos.shape[1]):
        counts[:, p] += (scores - pos[:, p : p + 1]).div_(tau).sigmoid_().sum(1)


def slopes(scores: Tensor, pos: Tensor, grad: Tensor, grad_pos: Tensor, tau: float) -> Tensor:
    """``Σ_p grad[b, p]·σ'`` at every score, ``[B, n]``; subtracts row sums from ``grad_pos``."""
    if fused(scores):
        from itemfold.ops.triton.smooth_rank import smooth_slopes

        return smooth_slopes(scores, pos, grad, grad_pos, tau)
    weight = torch.zeros_like(scores)
    for p in range(pos.shape[1]):
        sigma = (scores - pos[:, p : p + 1]).div_(tau).sigmoid_()
        slope = torch.addcmul(sigma, sigma, sigma, value=-1)  # σ' = σ − σ²
        grad_pos[:, p] -= grad[:, p] * slope.sum(1)
        weight.addcmul_(slope, grad[:, p : p + 1])
    return weight
