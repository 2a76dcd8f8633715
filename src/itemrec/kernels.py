"""Triton kernels for the GPU; importing this module needs triton, so only CUDA paths do.

All are sums over rows of gathered vectors: one program a row and a tile of columns, float32 sums in
a fixed order, so that results repeat bit for bit.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

GATHERED, COLUMNS = 32, 64  # a program's tile: rows gathered at a time × columns (H200)


@triton.jit  # type: ignore[untyped-decorator]
def _gather_sum(  # type: ignore[no-untyped-def]
    starts,
    index,
    order,
    x,
    weight,
    source_scale,
    scale,
    out,
    width,
    WEIGHTED: tl.constexpr,
    SCALED: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    row = tl.load(order + tl.program_id(0)).to(tl.int64)
    begin = tl.load(starts + row)
    end = tl.load(starts + row + 1)
    d = tl.program_id(1) * COLS + tl.arange(0, COLS)
    total = tl.zeros((COLS,), dtype=tl.float32)
    for k in range(begin, end, ROWS):
        at = k + tl.arange(0, ROWS)
        inside = at < end
        source = tl.load(index + at, mask=inside, other=0).to(tl.int64)
        mask = inside[:, None] & (d < width)[None, :]
        value = tl.load(x + source[:, None] * width + d[None, :], mask=mask, other=0.0)
        value = value.to(tl.float32)
        if WEIGHTED:
            value *= tl.load(weight + at, mask=inside, other=0.0)[:, None]
        if SCALED:
            value *= tl.load(source_scale + source, mask=inside, other=0.0)[:, None]
        total += tl.sum(value, axis=0)
    if SCALED:
        total *= tl.load(scale + row)
    tl.store(out + row * width + d, total, mask=d < width)


@triton.jit  # type: ignore[untyped-decorator]
def _edge_dots(starts, index, order, rows, x, out, width, ROWS: tl.constexpr, COLS: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.load(order + tl.program_id(0)).to(tl.int64)
    begin = tl.load(starts + row)
    end = tl.load(starts + row + 1)
    for k in range(begin, end, ROWS):
        at = k + tl.arange(0, ROWS)
        inside = at < end
        source = tl.load(index + at, mask=inside, other=0).to(tl.int64)
        total = tl.zeros((ROWS,), dtype=tl.float32)
        for c in range(0, width, COLS):
            d = c + tl.arange(0, COLS)
            own = tl.load(rows + row * width + d, mask=d < width, other=0.0)
            mask = inside[:, None] & (d < width)[None, :]
            value = tl.load(x + source[:, None] * width + d[None, :], mask=mask, other=0.0)
            total += tl.sum(value * own[None, :], axis=1)
        tl.store(out + at, total, mask=inside)


def gather_sum(
    starts: Tensor,
    index: Tensor,
    order: Tensor,
    x: Tensor,
    *,
    weight: Tensor | None = None,
    source_scale: Tensor | None = None,
    scale: Tensor | None = None,
) -> Tensor:
    """``out[v] = s_v · Σ_e w_e · t_j · x[j]`` over a row's entries ``e``, ``j = index[e]``.

    Row v has the entries ``starts[v]`` to ``starts[v+1]``; ``order`` lists the rows, longest first,
    so that no long one is left for the end. Weights and scales are 1 unless given.
    """
    x = x.contiguous()
    width = x.shape[1]
    out = torch.empty(len(starts) - 1, width, dtype=torch.float32, device=x.device)
    columns = min(COLUMNS, triton.next_power_of_2(width))
    _gather_sum[(len(order), triton.cdiv(width, columns))](
        starts,
        index,
        order,
        x,
        x if weight is None else weight.contiguous(),
        x if source_scale is None else source_scale,
        x if scale is None else scale,
        out,
        width,
        WEIGHTED=weight is not None,
        SCALED=scale is not None,
        ROWS=GATHERED,
        COLS=columns,
        num_warps=1,
    )
    return out


def edge_dots(starts: Tensor, index: Tensor, order: Tensor, rows: Tensor, x: Tensor) -> Tensor:
    """``out[e] = rows[v] · x[index[e]]`` for every entry e of every row v, [entries]."""
    x, rows = x.contiguous(), rows.contiguous()
    width = x.shape[1]
    out = torch.empty(len(index), dtype=torch.float32, device=x.device)
    columns = min(COLUMNS, triton.next_power_of_2(width))
    _edge_dots[(len(order),)](
        starts, index, order, rows, x, out, width, ROWS=GATHERED, COLS=columns, num_warps=1
    )
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _count_above(scores, pos, counts, n, P, tau, PADDED: tl.constexpr, COLS: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    p = tl.arange(0, PADDED)
    own = tl.load(pos + row * P + p, mask=p < P, other=0.0)
    total = tl.zeros((PADDED,), dtype=tl.float32)
    for c in range(0, n, COLS):
        at = c + tl.arange(0, COLS)
        score = tl.load(scores + row * n + at, mask=at < n, other=-float("inf"))
        total += tl.sum(tl.sigmoid((score[None, :] - own[:, None]) / tau), axis=1)
    before = tl.load(counts + row * P + p, mask=p < P, other=0.0)
    tl.store(counts + row * P + p, before + total, mask=p < P)


@triton.jit  # type: ignore[untyped-decorator]
def _slopes(  # type: ignore[no-untyped-def]
    scores, pos, grad, weight, grad_pos, n, P, tau, PADDED: tl.constexpr, COLS: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    p = tl.arange(0, PADDED)
    own = tl.load(pos + row * P + p, mask=p < P, other=0.0)
    pull = tl.load(grad + row * P + p, mask=p < P, other=0.0)
    total = tl.zeros((PADDED,), dtype=tl.float32)
    for c in range(0, n, COLS):
        at = c + tl.arange(0, COLS)
        score = tl.load(scores + row * n + at, mask=at < n, other=-float("inf"))
        sigma = tl.sigmoid((score[None, :] - own[:, None]) / tau)
        slope = (sigma - sigma * sigma) * pull[:, None]
        total += tl.sum(slope, axis=1)
        tl.store(weight + row * n + at, tl.sum(slope, axis=0), mask=at < n)
    before = tl.load(grad_pos + row * P + p, mask=p < P, other=0.0)
    tl.store(grad_pos + row * P + p, before - total, mask=p < P)


def count_above(scores: Tensor, pos: Tensor, counts: Tensor, tau: float) -> None:
    """``counts[b, p] += Σ_j σ((scores[b, j] − pos[b, p])/τ)``; ``[B, n], [B, P], [B, P]``."""
    rows, n = scores.shape
    places = triton.next_power_of_2(pos.shape[1])
    _count_above[(rows,)](scores, pos, counts, n, pos.shape[1], tau, PADDED=places, COLS=256)


def slopes(scores: Tensor, pos: Tensor, grad: Tensor, grad_pos: Tensor, tau: float) -> Tensor:
    """``w[b, j] = Σ_p grad[b, p]·σ'`` of `count_above`, ``[B, n]``; −its row sums into grad_pos."""
    rows, n = scores.shape
    places = triton.next_power_of_2(pos.shape[1])
    out = torch.empty_like(scores)
    _slopes[(rows,)](
        scores, pos, grad, out, grad_pos, n, pos.shape[1], tau, PADDED=places, COLS=256
    )
    return out
