"""Neighbourhood sums over a table larger than the cache, one block of its rows at a time.

Gathering a row from memory costs several times as much as from a cache. The entries are therefore
grouped by blocks of the table: a block stays in the cache while all targets gather from it. The sum
of a target over the blocks so far is one more entry of the next block, so that no extra pass adds
up blocks; it is rounded to the type of the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from itemfold.ops.segment import segment_sum

ROWS = 1 << 17  # sources of a block: 16 MB of 64 columns in bfloat16, 32 MB in float32
DENSE = 8  # least mean number of a target's entries in a block, so that adding blocks costs little
TARGETS = 1 << 13  # targets summed at a time by each thread, so that sums stay in a cache


@dataclass(frozen=True)
class SourceBlock:
    """The entries of all targets whose sources are some consecutive rows of a table.

    After the first block each target has one more entry, its last: the sum of the blocks before,
    stored behind the sources in the table.
    """

    first: int  # row of the table
    starts: Tensor  # [targets + 1], in the type of the matrix
    index: Tensor  # int32 [entries], counted from `first`
    weight: Tensor | None  # float32 [entries]


def block_count(n_sources: int, n_targets: int, entries: int) -> int:
    """Number of blocks of about `ROWS` sources; fewer if targets would have too few entries."""
    return max(min(-(-n_sources // ROWS), entries // max(DENSE * n_targets, 1)), 1)


def source_blocks(
    starts: Tensor, index: Tensor, n_sources: int, weight: Tensor | None = None
) -> tuple[SourceBlock, ...]:
    """Group the entries of a CSR matrix by equal blocks of sources."""
    count = block_count(n_sources, len(starts) - 1, len(index))
    out = []
    for number in range(count):
        first, last = (n_sources * end // count for end in (number, number + 1))
        inside = (index >= first) & (index < last)
        ends = inside.cumsum(0, dtype=starts.dtype)
        before = torch.cat([ends.new_zeros(1), ends])[starts.long()]
        own = SourceBlock(
            first, before, index[inside] - first, None if weight is None else weight[inside]
        )
        out.append(_with_sums(own, n_sources - first) if number else own)
    return tuple(out)


def _with_sums(block: SourceBlock, behind: int) -> SourceBlock:
    """The block with one more entry for each target, its row from ``behind`` on."""
    target = torch.arange(len(block.starts) - 1, dtype=block.index.dtype)
    starts = block.starts + torch.arange(len(block.starts), dtype=block.starts.dtype)
    last = starts[1:].long() - 1
    own = torch.ones(len(block.index) + len(target), dtype=torch.bool).index_fill_(0, last, False)
    index = block.index.new_empty(len(own))
    index[own], index[last] = block.index, target + behind
    weight = block.weight
    if weight is not None:
        weight = weight.new_ones(len(own)).masked_scatter_(own, weight)
    return SourceBlock(block.first, starts, index, weight)


def cached_slices(rows: int) -> Iterator[slice]:
    """Slices of rows that a cache holds while they are computed."""
    width = TARGETS * torch.get_num_threads()
    return (slice(begin, min(begin + width, rows)) for begin in range(0, rows, width))


def blocked_sum(
    blocks: tuple[SourceBlock, ...],
    x: Tensor,
    n_targets: int,
    finish: Callable[[slice, Tensor], None],
) -> None:
    """``Σ_e w_e · x[index[e]]`` of every target; ``x`` may be bfloat16.

    The last rows of ``x``, one for each target, hold partial sums. ``finish(targets, rows)`` is
    called as soon as the sums of these targets are complete, while they are still in the cache; it
    may overwrite them.
    """
    partial = x[len(x) - n_targets :]
    for block in blocks:
        table = x[block.first :]
        for part in cached_slices(n_targets):
            low, high = int(block.starts[part.start]), int(block.starts[part.stop])
            weight = None if block.weight is None else block.weight[low:high].to(x.dtype)
            starts = (block.starts[part.start : part.stop + 1] - low).to(block.index.dtype)
            rows = segment_sum(starts, block.index[low:high], table, weight=weight)
            if block is blocks[-1]:
                finish(part, rows)
            else:
                partial[part] = rows
