"""Sinkhorn's iteration for a whole batch as one Triton kernel, and its gradient as another.

One program holds the matrix of one list in registers through all iterations. The plain form in
`neural_sort` takes three operations per iteration, each on matrices read from memory.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

LONGEST = 128  # entries of a list that fit into registers
LEAST = 1e-10  # lower bound of the sums


@triton.jit  # type: ignore[untyped-decorator]
def _forward(  # type: ignore[no-untyped-def]
    matrix, r_path, c_path, steps, length, iterations, tolerance, least, SIZE: tl.constexpr
):
    b = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, SIZE)
    inside = at < length
    place = at[:, None] * length + at[None, :]
    mask = inside[:, None] & inside[None, :]
    m = tl.load(matrix + b * length * length + place, mask=mask, other=0.0)
    rows = (tl.max(m, axis=1) > 0).to(tl.float32)
    columns = (tl.max(m, axis=0) > 0).to(tl.float32)
    r, c = rows, columns
    path = b * (iterations + 1) * length
    tl.store(r_path + path + at, r, mask=inside)
    tl.store(c_path + path + at, c, mask=inside)
    t, going = 0, 1
    while (t < iterations) & (going > 0):
        total = tl.sum(m * r[:, None], axis=0)
        off = tl.where(columns > 0, tl.abs(c * total - 1), 0.0)
        going = (tl.max(off, axis=0) >= tolerance).to(tl.int32)
        if going > 0:
            c = columns / tl.maximum(total, least)
            r = rows / tl.maximum(tl.sum(m * c[None, :], axis=1), least)
            t += 1
            tl.store(r_path + path + t * length + at, r, mask=inside)
            tl.store(c_path + path + t * length + at, c, mask=inside)
    tl.store(steps + b, t)


@triton.jit  # type: ignore[untyped-decorator]
def _backward(  # type: ignore[no-untyped-def]
    matrix,
    r_path,
    c_path,
    steps,
    grad_r,
    grad_c,
    out,
    length,
    iterations,
    least,
    SIZE: tl.constexpr,
):
    b = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, SIZE)
    inside = at < length
    place = b * length * length + at[:, None] * length + at[None, :]
    mask = inside[:, None] & inside[None, :]
    m = tl.load(matrix + place, mask=mask, other=0.0)
    dr = tl.load(grad_r + b * length + at, mask=inside, other=0.0)
    dc = tl.load(grad_c + b * length + at, mask=inside, other=0.0)
    dm = tl.zeros((SIZE, SIZE), dtype=tl.float32)
    path = b * (iterations + 1) * length
    t = tl.load(steps + b)
    while t > 0:
        r = tl.load(r_path + path + t * length + at, mask=inside, other=0.0)
        c = tl.load(c_path + path + t * length + at, mask=inside, other=0.0)
        before = tl.load(r_path + path + (t - 1) * length + at, mask=inside, other=0.0)
        # r = 1/(M c): a sum at the lower bound has no slope
        down = tl.where(r * least < 0.5, -dr * r * r, 0.0)
        dm += down[:, None] * c[None, :]
        dc += tl.sum(m * down[:, None], axis=0)
        down = tl.where(c * least < 0.5, -dc * c * c, 0.0)  # c = 1/(rᵀ M) with the previous r
        dm += before[:, None] * down[None, :]
        dr = tl.sum(m * down[None, :], axis=1)
        dc = tl.zeros((SIZE,), dtype=tl.float32)
        t -= 1
    tl.store(out + place, dm, mask=mask)


def balance(matrix: Tensor, iterations: int, tolerance: float) -> tuple[Tensor, Tensor]:
    """`neural_sort.sinkhorn` of matrices ``[B, L, L]``, L at most `LONGEST`; both ``[B, L]``."""
    r, c = _Sinkhorn.apply(matrix, iterations, tolerance)  # type: ignore[no-untyped-call]
    return r, c


class _Sinkhorn(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, matrix: Tensor, iterations: int, tolerance: float
    ) -> tuple[Tensor, Tensor]:
        matrix = matrix.contiguous()
        lists, length, _ = matrix.shape
        r, c = matrix.new_empty(2, lists, iterations + 1, length)
        steps = torch.empty(lists, dtype=torch.int64, device=matrix.device)
        size = triton.next_power_of_2(length)
        _forward[(lists,)](
            *(matrix, r, c, steps, length, iterations, tolerance, LEAST),
            SIZE=size,
            num_warps=4 if size <= 64 else 8,
        )
        ctx.save_for_backward(matrix, r, c, steps)
        last = steps.view(-1, 1, 1).expand(-1, 1, length)
        return r.gather(1, last).squeeze(1), c.gather(1, last).squeeze(1)

    @staticmethod
    def backward(ctx: Any, grad_r: Tensor, grad_c: Tensor) -> tuple[Tensor, None, None]:
        matrix, r, c, steps = ctx.saved_tensors
        lists, length, _ = matrix.shape
        out = torch.empty_like(matrix)
        size = triton.next_power_of_2(length)
        _backward[(lists,)](
            *(matrix, r, c, steps, grad_r.contiguous(), grad_c.contiguous()),
            *(out, length, r.shape[1] - 1, LEAST),
            SIZE=size,
            num_warps=4 if size <= 64 else 8,
        )
        return out, None, None
