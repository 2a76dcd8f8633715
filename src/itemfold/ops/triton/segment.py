"""Operations over rows of gathered vectors, Triton kernels for the GPU.

Importing this module needs triton, so only CUDA code does. Sums have one program per row and tile
of columns and add float32 in a fixed order, so that results repeat bit for bit. Widths are
constants so that the compiler knows the alignment of rows and loads 16 bytes at a time.
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
    out,
    WIDTH: tl.constexpr,
    WEIGHTED: tl.constexpr,
    HEADS: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    row = tl.load(order + tl.program_id(0)).to(tl.int64)
    begin = tl.load(starts + row)
    end = tl.load(starts + row + 1)
    tiles: tl.constexpr = (WIDTH // HEADS + COLS - 1) // COLS  # of a head
    head = tl.program_id(1) // tiles
    d = tl.program_id(1) % tiles * COLS + tl.arange(0, COLS)
    column = head * (WIDTH // HEADS) + d
    total = tl.zeros((COLS,), dtype=tl.float32)
    for k in range(begin, end, ROWS):
        at = k + tl.arange(0, ROWS)
        inside = at < end
        source = tl.load(index + at, mask=inside, other=0).to(tl.int64)
        mask = inside[:, None] & (d < WIDTH // HEADS)[None, :]
        value = tl.load(x + source[:, None] * WIDTH + column[None, :], mask=mask, other=0.0)
        value = value.to(tl.float32)
        if WEIGHTED:
            factor = tl.load(weight + at.to(tl.int64) * HEADS + head, mask=inside, other=0.0)
            value *= factor[:, None]
        total += tl.sum(value, axis=0)
    tl.store(out + row * WIDTH + column, total, mask=d < WIDTH // HEADS)


@triton.jit  # type: ignore[untyped-decorator]
def _edge_dots(  # type: ignore[no-untyped-def]
    starts,
    index,
    order,
    rows,
    x,
    out,
    WIDTH: tl.constexpr,
    HEADS: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
):
    row = tl.load(order + tl.program_id(0)).to(tl.int64)
    begin = tl.load(starts + row)
    end = tl.load(starts + row + 1)
    for k in range(begin, end, ROWS):
        at = k + tl.arange(0, ROWS)
        inside = at < end
        source = tl.load(index + at, mask=inside, other=0).to(tl.int64)
        for h in range(HEADS):
            total = tl.zeros((ROWS,), dtype=tl.float32)
            for c in range(0, WIDTH // HEADS, COLS):
                d = c + tl.arange(0, COLS)
                column = h * (WIDTH // HEADS) + d
                within = d < WIDTH // HEADS
                target = tl.load(rows + row * WIDTH + column, mask=within, other=0.0)
                mask = inside[:, None] & within[None, :]
                value = tl.load(x + source[:, None] * WIDTH + column[None, :], mask=mask, other=0.0)
                total += tl.sum(value.to(tl.float32) * target[None, :], axis=1)
            tl.store(out + at.to(tl.int64) * HEADS + h, total, mask=inside)


def gather_sum(
    starts: Tensor, index: Tensor, order: Tensor, x: Tensor, *, weight: Tensor | None = None
) -> Tensor:
    """``out[v] = Σ_e w_e · x[index[e]]`` over a row's entries e, float32 of any float type.

    Weights may be ``[entries]``, or ``[entries, heads]`` for as many equal parts of the columns; 1
    by default. Row v has the entries ``starts[v]`` to ``starts[v+1]``; ``order`` lists the rows,
    longest first, so that no long row is processed last.
    """
    x = x.contiguous()
    width = x.shape[1]
    heads = 1 if weight is None or weight.dim() == 1 else weight.shape[1]
    out = torch.empty(len(starts) - 1, width, dtype=torch.float32, device=x.device)
    columns = min(COLUMNS, triton.next_power_of_2(width // heads))
    _gather_sum[(len(order), heads * triton.cdiv(width // heads, columns))](
        starts,
        index,
        order,
        x,
        x if weight is None else weight.contiguous(),
        out,
        WIDTH=width,
        WEIGHTED=weight is not None,
        HEADS=heads,
        ROWS=GATHERED,
        COLS=columns,
        num_warps=1,
    )
    return out


def edge_dots(
    starts: Tensor, index: Tensor, order: Tensor, rows: Tensor, x: Tensor, heads: int = 1
) -> Tensor:
    """``out[e, h] = rows[v] · x[index[e]]`` for every entry e of every row v, ``[entries, heads]``.

    Head h is the product over the h-th part of the columns.
    """
    x, rows = x.contiguous(), rows.contiguous()
    width = x.shape[1]
    out = torch.empty(len(index), heads, dtype=torch.float32, device=x.device)
    columns = min(COLUMNS, triton.next_power_of_2(width // heads))
    _edge_dots[(len(order),)](
        starts,
        index,
        order,
        rows,
        x,
        out,
        WIDTH=width,
        HEADS=heads,
        ROWS=GATHERED,
        COLS=columns,
        num_warps=1,
    )
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _rows_at(x, index, out, size, WIDTH: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    source = tl.load(index + at // WIDTH, mask=inside, other=0).to(tl.int64)
    value = tl.load(x + source * WIDTH + at % WIDTH, mask=inside, other=0.0)
    tl.store(out + at, value, mask=inside)


def rows_at(x: Tensor, index: Tensor) -> Tensor:
    """``x[index]`` for short rows, for which torch still starts a block of threads each."""
    x = x.contiguous()
    out = torch.empty(len(index), x.shape[1], dtype=x.dtype, device=x.device)
    block = 1024
    _rows_at[(triton.cdiv(out.numel(), block),)](
        x, index, out, out.numel(), WIDTH=x.shape[1], BLOCK=block
    )
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _scaled_rows(x, scale, share, out, size, WIDTH: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    factor = tl.load(scale + at // WIDTH, mask=inside, other=0.0) * share
    value = tl.load(x + at, mask=inside, other=0.0) * factor
    tl.store(out + at, value.to(out.dtype.element_ty), mask=inside)


def scaled_rows(x: Tensor, scale: Tensor, share: float, dtype: torch.dtype) -> Tensor:
    """``share · s_v · x_v`` in another type, in one pass."""
    x = x.contiguous()
    out = torch.empty_like(x, dtype=dtype)
    block = 1024
    _scaled_rows[(triton.cdiv(x.numel(), block),)](
        x, scale, share, out, x.numel(), WIDTH=x.shape[1], BLOCK=block
    )
    return out


@triton.jit  # type: ignore[untyped-decorator]
def _smooth_step(  # type: ignore[no-untyped-def]
    starts,
    index,
    order,
    messages,
    scale,
    base,
    share,
    outgoing,
    out,
    WIDTH: tl.constexpr,
    ADDED: tl.constexpr,
    SENDS: tl.constexpr,
    WRITES: tl.constexpr,
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
        mask = inside[:, None] & (d < WIDTH)[None, :]
        value = tl.load(messages + source[:, None] * WIDTH + d[None, :], mask=mask, other=0.0)
        total += tl.sum(value.to(tl.float32), axis=0)
    factor = tl.load(scale + row)
    total *= factor
    place = row * WIDTH + d
    if ADDED:
        total += share * tl.load(base + place, mask=d < WIDTH, other=0.0)
    if SENDS:
        tl.store(outgoing + place, (total * factor).to(outgoing.dtype.element_ty), mask=d < WIDTH)
    if WRITES:
        tl.store(out + place, total, mask=d < WIDTH)


def smooth_step(
    rows: tuple[Tensor, Tensor, Tensor],
    messages: Tensor,
    scale: Tensor,
    base: Tensor | None,
    share: float,
    *,
    sends: bool,
    writes: bool,
) -> tuple[Tensor, Tensor]:
    """``y_v = share·base_v + s_v Σ_j m_j`` in float32, and ``s_v·y_v`` in the type of messages m.

    The second output is the next message of v. Outputs that are not requested are not written.
    ``rows`` are starts, index and order of the adjacency.
    """
    width = messages.shape[1]
    shape = (len(rows[2]), width)
    out = torch.empty(shape if writes else 1, dtype=torch.float32, device=messages.device)
    outgoing = torch.empty(shape if sends else 1, dtype=messages.dtype, device=messages.device)
    columns = min(COLUMNS, triton.next_power_of_2(width))
    _smooth_step[(shape[0], triton.cdiv(width, columns))](
        *rows,
        messages,
        scale,
        out if base is None else base.contiguous(),
        share,
        outgoing,
        out,
        WIDTH=width,
        ADDED=base is not None,
        SENDS=sends,
        WRITES=writes,
        ROWS=GATHERED,
        COLS=columns,
        num_warps=1,
    )
    return out, outgoing


@triton.jit  # type: ignore[untyped-decorator]
def _row_max(starts, index, order, x, out, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.load(order + tl.program_id(0)).to(tl.int64)
    end = tl.load(starts + row + 1)
    largest = tl.full((ROWS,), -float("inf"), dtype=tl.float32)
    for k in range(tl.load(starts + row), end, ROWS):
        at = k + tl.arange(0, ROWS)
        source = tl.load(index + at, mask=at < end, other=0).to(tl.int64)
        largest = tl.maximum(largest, tl.load(x + source, mask=at < end, other=-float("inf")))
    tl.store(out + row, tl.max(largest, axis=0))


def row_max(starts: Tensor, index: Tensor, order: Tensor, x: Tensor) -> Tensor:
    """``out[v] = max_e x[index[e]]`` over a row's entries, −∞ without any, ``[rows]``."""
    out = torch.empty(len(starts) - 1, dtype=torch.float32, device=x.device)
    _row_max[(len(order),)](starts, index, order, x.contiguous(), out, ROWS=64, num_warps=1)
    return out
