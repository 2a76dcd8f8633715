"""Neighbourhood sums over a table that no cache holds: one block of its rows at a time.

A row that is gathered from memory costs several times one from a cache. The entries are therefore
grouped by blocks of the table; while a block is gathered from, it stays in the cache, and the
targets pass by in order. Every entry is still added once, in float32 between blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from itemrec.ops.segment import segment_sum

ROWS = 3 << 16  # of a block, or more; of 64 columns: 24 MB in bfloat16, 48 MB in float32
DENSE = 4  # entries of a target in a block on average; with fewer, adding blocks costs too much
TARGETS = 1 << 13  # summed at a time by each thread, so that sums stay in a cache


@dataclass(frozen=True)
class Block:
    """The entries of all targets whose sources are the rows ``first`` to ``last`` of a table."""

    first: int
    last: int
    starts: Tensor  # [targets + 1], in the type of the matrix
    index: Tensor  # int32 [entries], counted from `first`
    weight: Tensor | None  # float32 [entries]


def block_count(n_sources: int, n_targets: int, entries: int) -> int:
    """How many blocks of `ROWS` sources there are, if the entries are enough for as many."""
    return max(min(-(-n_sources // ROWS), entries // max(DENSE * n_targets, 1)), 1)


def source_blocks(
    starts: Tensor, index: Tensor, n_sources: int, weight: Tensor | None = None
) -> tuple[Block, ...]:
    """Group the entries of a CSR matrix by equal blocks of sources."""
    count = block_count(n_sources, len(starts) - 1, len(index))
    out = []
    for number in range(count):
        first, last = (n_sources * end // count for end in (number, number + 1))
        inside = (index >= first) & (index < last)
        ends = inside.cumsum(0, dtype=starts.dtype)
        before = torch.cat([ends.new_zeros(1), ends])
        own = None if weight is None else weight[inside]
        out.append(Block(first, last, before[starts.long()], index[inside] - first, own))
    return tuple(out)


def blocked_sum(
    blocks: tuple[Block, ...],
    x: Tensor,
    n_targets: int,
    buffer: Callable[[torch.dtype], Tensor],
    finish: Callable[[int, int, Tensor], None],
) -> None:
    """``Σ_e w_e · x[index[e]]`` of every target; ``x`` may be bfloat16.

    ``finish(begin, end, rows)`` is called as soon as the sums of these targets are complete, while
    they are still in the cache; it may overwrite them. ``buffer(dtype)`` gives memory for sums
    between blocks, ``[targets, d]``: of two blocks those of the first as they were computed, of
    more in float32.
    """
    width, between = TARGETS * torch.get_num_threads(), None
    if len(blocks) > 1:
        between = buffer(x.dtype if len(blocks) == 2 else torch.float32)
    for block in blocks:
        table = x[block.first : block.last]
        for begin in range(0, n_targets, width):
            end = min(begin + width, n_targets)
            low, high = int(block.starts[begin]), int(block.starts[end])
            weight = None if block.weight is None else block.weight[low:high].to(x.dtype)
            starts = (block.starts[begin : end + 1] - low).to(block.index.dtype)
            rows = segment_sum(starts, block.index[low:high], table, weight=weight)
            if between is not None and block is not blocks[0]:
                rows = rows.float().add_(between[begin:end])
            if block is blocks[-1]:
                finish(begin, end, rows)
            elif between is not None:
                between[begin:end] = rows
