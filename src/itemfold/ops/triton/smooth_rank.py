"""Smooth ranks and their slopes, Triton kernels for the GPU; see `itemfold.ops.smooth_rank`."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit  # type: ignore[untyped-decorator]
def _count_above(scores, pos, counts, n, P, tau, PADDED: tl.constexpr, COLS: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    p = tl.arange(0, PADDED)
    positive = tl.load(pos + row * P + p, mask=p < P, other=0.0)
    total = tl.zeros((PADDED,), dtype=tl.float32)
    for c in range(0, n, COLS):
        at = c + tl.arange(0, COLS)
        score = tl.load(scores + row * n + at, mask=at < n, other=-float("inf"))
        total += tl.sum(tl.sigmoid((score[None, :] - positive[:, None]) / tau), axis=1)
    before = tl.load(counts + row * P + p, mask=p < P, other=0.0)
    tl.store(counts + row * P + p, before + total, mask=p < P)


@triton.jit  # type: ignore[untyped-decorator]
def _slopes(  # type: ignore[no-untyped-def]
    scores, pos, grad, weight, grad_pos, n, P, tau, PADDED: tl.constexpr, COLS: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    p = tl.arange(0, PADDED)
    positive = tl.load(pos + row * P + p, mask=p < P, other=0.0)
    upstream = tl.load(grad + row * P + p, mask=p < P, other=0.0)
    total = tl.zeros((PADDED,), dtype=tl.float32)
    for c in range(0, n, COLS):
        at = c + tl.arange(0, COLS)
        score = tl.load(scores + row * n + at, mask=at < n, other=-float("inf"))
        sigma = tl.sigmoid((score[None, :] - positive[:, None]) / tau)
        slope = (sigma - sigma * sigma) * upstream[:, None]
        total += tl.sum(slope, axis=1)
        tl.store(weight + row * n + at, tl.sum(slope, axis=0), mask=at < n)
    before = tl.load(grad_pos + row * P + p, mask=p < P, other=0.0)
    tl.store(grad_pos + row * P + p, before - total, mask=p < P)


def add_smooth_counts(scores: Tensor, pos: Tensor, counts: Tensor, tau: float) -> None:
    """``counts[b, p] += Σ_j σ((scores[b, j] − pos[b, p])/τ)``; ``[B, n], [B, P], [B, P]``."""
    rows, n = scores.shape
    places = triton.next_power_of_2(pos.shape[1])
    _count_above[(rows,)](scores, pos, counts, n, pos.shape[1], tau, PADDED=places, COLS=256)


def smooth_slopes(
    scores: Tensor, pos: Tensor, grad: Tensor, grad_pos: Tensor, tau: float
) -> Tensor:
    """``w[b, j] = Σ_p grad[b, p]·σ'`` of `add_smooth_counts`, ``[B, n]``.

    Its row sums are subtracted from ``grad_pos``.
    """
    rows, n = scores.shape
    places = triton.next_power_of_2(pos.shape[1])
    out = torch.empty_like(scores)
    _slopes[(rows,)](
        scores, pos, grad, out, grad_pos, n, pos.shape[1], tau, PADDED=places, COLS=256
    )
    return out
