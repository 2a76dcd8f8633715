"""The smooth counts of `itemfold.ops.smooth_rank` and their gradients, one Triton kernel each.

One program compares all positives of a row with a block of its scores at a time. Nothing of the
size ``[B, P, n]`` is stored, and neither is a copy of scores without those that are masked.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 256  # scores that a program compares at a time


@triton.jit  # type: ignore[untyped-decorator]
def _sigmoids(scores, mask, positive, first, at, n, tau, MASKED: tl.constexpr):  # type: ignore[no-untyped-def]
    inside = at < n
    score = tl.load(scores + first + at, mask=inside, other=0.0)
    if MASKED:
        inside &= tl.load(mask + first + at, mask=inside, other=0)
    above = (score[None, :] - positive[:, None]) / tau
    return tl.sigmoid(tl.where(inside[None, :], above, -float("inf")))  # masked: 0 for any score


@triton.jit  # type: ignore[untyped-decorator]
def _count_above(  # type: ignore[no-untyped-def]
    scores,
    mask,
    pos,
    counts,
    n,
    P,
    tau,
    MASKED: tl.constexpr,
    PADDED: tl.constexpr,
    COLS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    p = tl.arange(0, PADDED)
    positive = tl.load(pos + row * P + p, mask=p < P, other=0.0)
    total = tl.zeros((PADDED,), dtype=tl.float32)
    for c in range(0, n, COLS):
        at = c + tl.arange(0, COLS)
        total += tl.sum(_sigmoids(scores, mask, positive, row * n, at, n, tau, MASKED), axis=1)
    before = tl.load(counts + row * P + p, mask=p < P, other=0.0)
    tl.store(counts + row * P + p, before + total, mask=p < P)


@triton.jit  # type: ignore[untyped-decorator]
def _slopes(  # type: ignore[no-untyped-def]
    scores,
    mask,
    pos,
    grad,
    weight,
    grad_pos,
    n,
    P,
    tau,
    MASKED: tl.constexpr,
    PADDED: tl.constexpr,
    COLS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    p = tl.arange(0, PADDED)
    positive = tl.load(pos + row * P + p, mask=p < P, other=0.0)
    upstream = tl.load(grad + row * P + p, mask=p < P, other=0.0)
    total = tl.zeros((PADDED,), dtype=tl.float32)
    for c in range(0, n, COLS):
        at = c + tl.arange(0, COLS)
        sigma = _sigmoids(scores, mask, positive, row * n, at, n, tau, MASKED)
        slope = (sigma - sigma * sigma) * upstream[:, None]
        total += tl.sum(slope, axis=1)
        tl.store(weight + row * n + at, tl.sum(slope, axis=0), mask=at < n)
    before = tl.load(grad_pos + row * P + p, mask=p < P, other=0.0)
    tl.store(grad_pos + row * P + p, before - total, mask=p < P)


def add_smooth_counts(
    scores: Tensor, pos: Tensor, counts: Tensor, tau: float, mask: Tensor | None = None
) -> None:
    """``counts[b, p] += Σ_j σ((scores[b, j] − pos[b, p])/τ)``; ``[B, n], [B, P], [B, P]``.

    Where ``mask`` ``[B, n]`` is False, j does not count, whatever its score.
    """
    rows, n = scores.shape
    _count_above[(rows,)](
        *(scores, scores if mask is None else mask, pos, counts, n, pos.shape[1], tau),
        MASKED=mask is not None,
        PADDED=triton.next_power_of_2(pos.shape[1]),
        COLS=BLOCK,
    )


def smooth_slopes(
    scores: Tensor,
    pos: Tensor,
    grad: Tensor,
    grad_pos: Tensor,
    tau: float,
    mask: Tensor | None = None,
) -> Tensor:
    """``w[b, j] = Σ_p grad[b, p]·σ'`` of `add_smooth_counts`, ``[B, n]``.

    Its row sums are subtracted from ``grad_pos``.
    """
    rows, n = scores.shape
    out = torch.empty_like(scores)
    _slopes[(rows,)](
        *(scores, scores if mask is None else mask, pos, grad, out, grad_pos),
        *(n, pos.shape[1], tau),
        MASKED=mask is not None,
        PADDED=triton.next_power_of_2(pos.shape[1]),
        COLS=BLOCK,
    )
    return out
