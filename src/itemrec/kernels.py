"""Triton kernels for the GPU; importing this module needs triton, so only CUDA paths do."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

NEIGHBOURS, COLUMNS = 32, 64  # a program gathers such a tile at a time (measured on an H200)


@triton.jit  # type: ignore[untyped-decorator]
def _neighbour_sum(  # type: ignore[no-untyped-def]
    crow,
    col,
    order,
    x,
    source_scale,
    scale,
    out,
    width,
    SCALED: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    row = tl.load(order + tl.program_id(0))
    start = tl.load(crow + row)
    end = tl.load(crow + row + 1)
    d = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    total = tl.zeros((BLOCK_D,), dtype=tl.float32)
    for k in range(start, end, BLOCK_K):
        at = k + tl.arange(0, BLOCK_K)
        inside = at < end
        source = tl.load(col + at, mask=inside, other=0).to(tl.int64)
        mask = inside[:, None] & (d < width)[None, :]
        value = tl.load(x + source[:, None] * width + d[None, :], mask=mask, other=0.0)
        value = value.to(tl.float32)
        if SCALED:
            value *= tl.load(source_scale + source, mask=inside, other=0.0)[:, None]
        total += tl.sum(value, axis=0)
    if SCALED:
        total *= tl.load(scale + row)
    tl.store(out + row.to(tl.int64) * width + d, total, mask=d < width)


def gather_sum(
    crow: Tensor,
    col: Tensor,
    order: Tensor,
    x: Tensor,
    source_scale: Tensor | None = None,
    scale: Tensor | None = None,
    warps: int = 1,
    block: int = NEIGHBOURS,
) -> Tensor:
    """``out[v] = s_v · Σ_j t_j · x[j]`` over CSR rows, accumulated in float32; one program a row.

    ``order`` lists the rows, longest first, so that no long row is left for the end.
    """
    x = x.contiguous()
    width = x.shape[1]
    out = torch.empty(len(crow) - 1, width, dtype=torch.float32, device=x.device)
    scaled = source_scale is not None
    columns = min(COLUMNS, triton.next_power_of_2(width))
    _neighbour_sum[(len(order), triton.cdiv(width, columns))](
        crow,
        col,
        order,
        x,
        source_scale if scaled else x,
        scale if scaled else x,
        out,
        width,
        SCALED=scaled,
        BLOCK_K=block,
        BLOCK_D=columns,
        num_warps=warps,
    )
    return out
