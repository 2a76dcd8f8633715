"""Which items of a list that several rows share are not among the entries of a row.

A row has far fewer entries than the list has items, so its entries are searched in the sorted list
and not the items in the row.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit  # type: ignore[untyped-decorator]
def _places_below(keys, n, wanted, STEPS: tl.constexpr):  # type: ignore[no-untyped-def]
    low = tl.zeros_like(wanted)
    high = low + n
    for _ in range(STEPS):
        middle = (low + high) // 2
        less = tl.load(keys + middle, mask=low < high, other=0) < wanted
        less &= low < high
        low = tl.where(less, middle + 1, low)
        high = tl.where(less, high, middle)
    return low


@triton.jit  # type: ignore[untyped-decorator]
def _missing(  # type: ignore[no-untyped-def]
    starts,
    entries,
    rows,
    ordered,
    order,
    real,
    out,
    size,
    before,
    n,
    STEPS: tl.constexpr,
    COLS: tl.constexpr,
    ENTRIES: tl.constexpr,
):
    b = tl.program_id(0).to(tl.int64)
    first = (b + before) // size * n  # of the list of the part
    own = out + b * n
    for c in range(0, n, COLS):
        at = c + tl.arange(0, COLS)
        tl.store(own + at, tl.load(real + first + at, mask=at < n, other=0), mask=at < n)
    tl.debug_barrier()  # other threads write to the same places from here on
    row = tl.load(rows + b)
    begin = tl.load(starts + row)
    length = tl.load(starts + row + 1) - begin
    for k in range(0, length, ENTRIES):
        at = k + tl.arange(0, ENTRIES)
        item = tl.load(entries + begin + at, mask=at < length, other=-1).to(tl.int32)  # −1: no item
        place = _places_below(ordered + first, n, item, STEPS)
        times = _places_below(ordered + first, n, item + 1, STEPS) - place
        for i in range(tl.max(times, axis=0)):
            target = tl.load(order + first + place + i, mask=i < times, other=0)
            tl.store(own + target, False, mask=i < times)


def missing(
    starts: Tensor,
    entries: Tensor,
    rows: Tensor,
    lists: Tensor,
    real: Tensor,
    size: int,
    before: int,
) -> Tensor:
    """Whether an item of a list counts and row ``rows[b]`` does not contain it, bool ``[B, n]``.

    The list is that of part ``(b + before) // size``; lists and which items count, ``real``, are
    ``[parts, n]``, and a list may hold an item several times.
    """
    n = lists.shape[1]
    out = torch.empty(len(rows), n, dtype=torch.bool, device=rows.device)
    ordered, order = lists.int().sort(dim=1)
    _missing[(len(rows),)](
        *(starts, entries, rows.contiguous(), ordered, order, real.contiguous(), out),
        *(size, before, n),
        STEPS=n.bit_length(),
        COLS=2048,  # 16 bytes for each thread
        ENTRIES=128,
    )
    return out
