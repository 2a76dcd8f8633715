"""Noise of a fixed length, added to every row by one Triton kernel (see `noisy_propagation`)."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

TILE = 2048  # elements per program


@triton.jit  # type: ignore[untyped-decorator]
def _add_noise(x, noise, epsilon, n, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    d = tl.arange(0, COLS)
    place = row[:, None] * WIDTH + d[None, :]
    mask = (row < n)[:, None] & (d < WIDTH)[None, :]
    value = tl.load(x + place, mask=mask, other=0.0)
    drawn = tl.load(noise + place, mask=mask, other=0.0)
    length = tl.maximum(tl.sqrt(tl.sum(drawn * drawn, axis=1)), 1e-12)
    move = epsilon * drawn / length[:, None]
    value = tl.where(value > 0, value + move, tl.where(value < 0, value - move, value))
    tl.store(x + place, value, mask=mask)


def add_noise(x: Tensor, noise: Tensor, epsilon: float) -> Tensor:
    """``x + ε · sign(x) ⊙ n/|n|`` row by row, in place; both contiguous float32 ``[n, d]``."""
    n, width = x.shape
    columns = triton.next_power_of_2(width)
    rows = max(TILE // columns, 1)
    _add_noise[(triton.cdiv(n, rows),)](x, noise, epsilon, n, WIDTH=width, ROWS=rows, COLS=columns)
    return x
