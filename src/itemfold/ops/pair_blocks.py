"""Scores of listed pairs on a CPU, one block of items at a time.

Lists contain items at random. If the table exceeds the cache, each row comes from memory, three
times in a step; so the pairs are grouped by blocks of items that fit into the cache. Within a block
they keep the order of the lists.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.ops.segment import sampled_dot, segment_sum
from itemfold.ops.thread_map import thread_map

LARGE = 1 << 16  # items from which pairs are grouped: 16 MB at 64 columns
BITS = 15  # a block has 2^15 items


@dataclass(frozen=True)
class PairBlock:
    """The pairs of all lists whose items are the rows ``first`` to ``last`` of a table."""

    first: int
    last: int
    starts: Tensor  # int32 [lists + 1]
    index: Tensor  # int32 [pairs], counted from `first`
    place: Tensor | None  # int32 [pairs], where they were before; None: nothing was moved

    def of(self, values: Tensor) -> Tensor:
        """The values of these pairs, from those of all."""
        if self.place is None:
            return values[: len(self.index)]  # without padding
        return values.index_select(0, self.place)


def pair_blocks(starts: Tensor, index: Tensor, n_items: int) -> tuple[PairBlock, ...]:
    """Group the pairs of a CSR matrix by blocks of items; what follows them is padding."""
    lists, end = len(starts) - 1, int(starts[-1])
    starts, index = starts.int(), index[:end].int()
    if n_items <= LARGE:
        return (PairBlock(0, n_items, starts, index, None),)
    order, count = np.arange(end, dtype=np.int32), -(-n_items >> BITS)
    parts = order, (index >> BITS).numpy(), starts.numpy()
    grouped = sp.csr_array(parts, shape=(lists, count)).tocsc()  # a counting sort, and stable
    place, owner = torch.from_numpy(grouped.data), torch.from_numpy(grouped.indices)
    blocks = []
    for number, first in enumerate(range(0, n_items, 1 << BITS)):
        here = slice(int(grouped.indptr[number]), int(grouped.indptr[number + 1]))
        own = index.index_select(0, place[here]).sub_(first)
        ends = torch.bincount(owner[here], minlength=lists).cumsum(0, dtype=torch.int32)
        starts, last = torch.cat([ends.new_zeros(1), ends]), min(first + (1 << BITS), n_items)
        blocks.append(PairBlock(first, last, starts, own, place[here]))
    return tuple(blocks)


def scores_by_block(
    blocks: tuple[PairBlock, ...], users: Tensor, items: Tensor, count: int
) -> Tensor:
    """``users[v] · items[index[e]]`` of every pair, in the order before grouping, ``[count]``."""
    out = users.new_empty(count)
    for block in blocks:
        part = sampled_dot(block.starts, block.index, users, items[block.first : block.last])
        if block.place is None:
            out[: len(part)] = part
        else:
            out.index_copy_(0, block.place.long(), part)
    return out


def user_gradient(blocks: tuple[PairBlock, ...], items: Tensor, grads: list[Tensor]) -> Tensor:
    """``Σ_e g[e] · items[index[e]]`` of each list; gradients are those of each block's pairs."""
    parts = (
        segment_sum(block.starts, block.index, items[block.first : block.last], weight=grad)
        for block, grad in zip(blocks, grads, strict=True)
    )
    out = next(parts)
    for part in parts:
        out.add_(part)
    return out


def item_gradient(blocks: tuple[PairBlock, ...], users: Tensor, grads: list[Tensor]) -> Tensor:
    """``Σ_e g[e] · users[v]`` of each item: the same pairs grouped by item."""

    def of_block(block: PairBlock, grad: Tensor) -> Tensor:
        bounds, owner, weight = by_item(block.starts, block.index, grad, block.last - block.first)
        return segment_sum(bounds, owner, users, weight=weight)

    if len(blocks) == 1:
        return of_block(blocks[0], grads[0])
    with thread_map() as each_at_once:  # grouping has one thread
        return torch.cat(list(each_at_once(of_block, blocks, grads)))


Groups = tuple[Tensor, Tensor, Tensor]  # start of each item's pairs, their users, weights


def by_item(starts: Tensor, flat: Tensor, weight: Tensor, n_items: int) -> Groups:
    """Transpose a CSR matrix, a counting sort: one pass, and an item's pairs stay in order."""
    end = int(starts[-1])  # the rest is padding
    parts = (weight[:end].numpy(), flat[:end].numpy(), starts.numpy())
    pairs = sp.csr_array(parts, shape=(len(starts) - 1, n_items)).tocsc()
    return (
        torch.from_numpy(pairs.indptr),
        torch.from_numpy(pairs.indices),
        torch.from_numpy(pairs.data),
    )
