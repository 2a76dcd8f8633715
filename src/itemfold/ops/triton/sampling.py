"""Draws of the positives and negatives of a batch, one Triton kernel each.

From the same random numbers they draw the same items as `batches.draw_positives` and `exact.Draws`,
which need dozens of operations on small tensors.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit  # type: ignore[untyped-decorator]
def _floyd(  # type: ignore[no-untyped-def]
    crow,
    col,
    users,
    uniform,
    items,
    real,
    batch,
    n_users,
    COUNT: tl.constexpr,
    PADDED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < batch
    user = tl.load(users + at, mask=inside, other=0)
    start = tl.load(crow + user, mask=inside, other=0).to(tl.int64)
    degree = tl.load(crow + user + 1, mask=inside, other=0).to(tl.int64) - start
    few = degree <= COUNT
    place = tl.arange(0, PADDED)
    picked = tl.full((BLOCK, PADDED), -1, dtype=tl.int64)
    for j in range(COUNT):
        last = tl.maximum(degree - COUNT + j, j)
        number = tl.load(uniform + at * COUNT + j, mask=inside, other=0.0)
        draw = tl.where(few, j, (number * (last + 1)).to(tl.int64))
        same = (picked == draw[:, None]) & (place < j)[None, :]
        taken = tl.max(same.to(tl.int32), axis=1) > 0
        draw = tl.where(taken & (few == 0), last, draw)
        picked = tl.where((place == j)[None, :], draw[:, None], picked)
    there = picked < degree[:, None]
    mask = inside[:, None] & (place < COUNT)[None, :]
    source = start[:, None] + tl.where(there, picked, 0)
    item = tl.load(col + source, mask=mask, other=0).to(tl.int64) - n_users
    target = at[:, None] * COUNT + place[None, :]
    tl.store(items + target, item, mask=mask)
    tl.store(real + target, there, mask=mask)


def floyd(
    crow: Tensor, col: Tensor, users: Tensor, uniform: Tensor, n_users: int
) -> tuple[Tensor, Tensor]:
    """Distinct items per user and which are real, from numbers in [0, 1) ``[B, count]``."""
    count, block = uniform.shape[1], 64
    items = torch.empty(uniform.shape, dtype=torch.int64, device=users.device)
    real = torch.empty(uniform.shape, dtype=torch.bool, device=users.device)
    _floyd[(triton.cdiv(len(users), block),)](
        *(crow, col, users.contiguous(), uniform, items, real, len(users), n_users),
        COUNT=count,
        PADDED=triton.next_power_of_2(count),
        BLOCK=block,
    )
    return items, real


@triton.jit  # type: ignore[untyped-decorator]
def _negatives(  # type: ignore[no-untyped-def]
    users,
    uniform,
    keys,
    start,
    plain,
    total,
    unit,
    items,
    out,
    size,
    n,
    stride,
    MIXED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    user = tl.load(users + at // n, mask=inside, other=0)
    begin = tl.load(start + user)
    low, high = begin, tl.load(start + user + 1)
    number = tl.load(uniform + at, mask=inside, other=0.0)
    draw = (number * tl.load(total + user)).to(tl.int64)
    wanted = draw + user * stride
    left = tl.max(high - low, axis=0)
    while left > 0:  # count the user's keys that are at most the draw
        middle = (low + high) // 2
        going = low < high
        passed = tl.load(keys + middle, mask=going, other=0) <= wanted
        low = tl.where(going & passed, middle + 1, low)
        high = tl.where(going & (passed == 0), middle, high)
        left = left // 2
    found = draw + low - begin
    if MIXED:
        stretch = tl.load(items + tl.maximum(low - 1, 0), mask=inside, other=0).to(tl.int64)
        rank = draw // tl.load(unit + user) + low - begin
        found = tl.where(draw < tl.load(plain + user), rank, stretch)
    tl.store(out + at, found, mask=inside)


def negatives(
    users: Tensor,
    uniform: Tensor,
    tables: tuple[Tensor, Tensor, Tensor, Tensor],
    mixed: tuple[Tensor | None, Tensor | None],
    stride: int,
) -> Tensor:
    """Items ``[B, n]`` from random numbers in [0, 1) ``[B, n]`` and the tables of `Draws`.

    ``tables`` are keys, start, plain and total; ``mixed`` are unit and items of a sparse part.
    """
    (keys, start, plain, total), (unit, items) = tables, mixed
    out = torch.empty(uniform.shape, dtype=torch.int64, device=users.device)
    size, block = uniform.numel(), 512
    _negatives[(triton.cdiv(size, block),)](
        *(users.contiguous(), uniform, keys, start, plain, total),
        *(total if unit is None else unit, total if items is None else items),
        *(out, size, uniform.shape[1], stride),
        MIXED=items is not None,
        BLOCK=block,
    )
    return out
