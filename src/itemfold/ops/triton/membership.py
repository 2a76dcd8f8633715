"""Membership of items in rows of sorted entries, a Triton kernel for the GPU."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit  # type: ignore[untyped-decorator]
def _contains(starts, entries, rows, wanted, out, n, COLS: tl.constexpr):  # type: ignore[no-untyped-def]
    b = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * COLS + tl.arange(0, COLS)
    item = tl.load(wanted + at, mask=at < n, other=0)
    row = tl.load(rows + b)
    begin = tl.load(starts + row)
    end = tl.load(starts + row + 1)
    low = tl.zeros((COLS,), dtype=tl.int32) + begin
    high = tl.zeros((COLS,), dtype=tl.int32) + end
    left = end - begin
    while left > 0:
        middle = low + (high - low) // 2  # low + high may exceed 32 bits
        going = low < high
        less = tl.load(entries + middle, mask=going, other=0) < item
        low = tl.where(going & less, middle + 1, low)
        high = tl.where(going & (less == 0), middle, high)
        left = left // 2
    found = tl.load(entries + low, mask=low < end, other=-1) == item
    tl.store(out + b * n + at, found, mask=at < n)


def contains(starts: Tensor, entries: Tensor, rows: Tensor, wanted: Tensor) -> Tensor:
    """Whether row ``rows[b]``, with sorted entries, contains ``wanted[j]``; ``[B], [N] → [B, N]``.

    A binary search within the row, which stays in the cache.
    """
    out = torch.empty(len(rows), len(wanted), dtype=torch.bool, device=rows.device)
    columns = 512
    _contains[(len(rows), triton.cdiv(len(wanted), columns))](
        starts, entries, rows, wanted, out, len(wanted), COLS=columns
    )
    return out
