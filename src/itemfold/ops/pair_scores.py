"""Scores of listed user–item pairs, with a backward pass that never scatters."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from itemfold.errors import ItemfoldError
from itemfold.ops.pair_blocks import (
    Groups,
    PairBlock,
    item_gradient,
    pair_blocks,
    scores_by_block,
    user_gradient,
)
from itemfold.ops.segment import MOST_NARROW, fused, sampled_dot, segment_sum


def pair_scores(users: Tensor, items: Tensor, index: Tensor) -> Tensor:
    """``out[b, n] = users[b] · items[index[b, n]]``; ``[B, d], [I, d], [B, N] → [B, N]``.

    The gradient of the item table sums one row per pair. Grouping the pairs by item makes it a
    neighbourhood sum: deterministic on every device, and far faster on a CPU than index_add.
    """
    n_lists, length = index.shape
    if index.numel() > MOST_NARROW:
        raise ItemfoldError(
            f"a step must score fewer than 2^31 pairs, got {n_lists:,} lists of {length:,} items: "
            "choose a smaller 'batch' or 'n_negatives', or fewer 'candidates'"
        )
    starts = torch.arange(n_lists + 1, device=index.device, dtype=torch.int32) * length
    flat = index.reshape(-1).int()  # half the bytes to sort and to read
    return row_scores(users, items, starts, flat).view(index.shape)


def row_scores(
    users: Tensor, items: Tensor, starts: Tensor, index: Tensor, owner: Tensor | None = None
) -> Tensor:
    """`pair_scores` of lists of any length: ``out[e] = users[owner[e]] · items[index[e]]``.

    List v has the entries ``starts[v]`` to ``starts[v+1]``. Entries after the last list are
    padding: their ``index`` is ``len(items)``, their result is meaningless and has no gradient.
    Lists of the same length need no ``owner``.
    """
    out: Tensor
    if index.is_cuda:
        out = _ScoresOnGpu.apply(users, items, starts, index, owner)  # type: ignore[no-untyped-call]
    else:
        blocks = pair_blocks(starts, index, len(items))
        out = _ScoresByBlocks.apply(users, items, blocks, len(index))  # type: ignore[no-untyped-call]
    return out


def take_rows(table: Tensor, index: Tensor) -> Tensor:
    """Rows of a table with a deterministic gradient, ``[n, d], [...] → [..., d]``."""
    if fused(table):
        out: Tensor = _TakeRows.apply(table, index)  # type: ignore[no-untyped-call]
        return out
    return F.embedding(index, table)


def squared_lengths(table: Tensor) -> Tensor:
    """``[n, d] → [n]``; the backward pass reads the table once, torch's own three times."""
    out: Tensor = _SquaredLengths.apply(table)  # type: ignore[no-untyped-call]
    return out


class _SquaredLengths(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor) -> Tensor:
        ctx.save_for_backward(table)
        return table.square().sum(1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (table,) = ctx.saved_tensors
        out: Tensor = (2 * grad).unsqueeze(1) * table
        return out


class _TakeRows(torch.autograd.Function):
    """For a GPU, where torch's own gradient sorts 64-bit keys and launches a dozen kernels."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.rows = len(table)
        return F.embedding(index, table)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        bounds, order = _sorted(index.reshape(-1).int(), ctx.rows)
        return segment_sum(bounds, order.int(), grad.reshape(-1, grad.shape[-1])), None


Grads = tuple[Tensor | None, ...]


class _ScoresByBlocks(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, users: Tensor, items: Tensor, blocks: tuple[PairBlock, ...], count: int
    ) -> Tensor:
        ctx.blocks = blocks
        ctx.save_for_backward(users, items)
        return scores_by_block(blocks, users, items, count)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Grads:
        users, items = (x.detach() for x in ctx.saved_tensors)  # other threads would record
        of_users, of_items = ctx.needs_input_grad[:2]
        grads = [block.of(grad) for block in ctx.blocks]
        grad_users = user_gradient(ctx.blocks, items, grads) if of_users else None
        grad_items = item_gradient(ctx.blocks, users, grads) if of_items else None
        return grad_users, grad_items, None, None


class _ScoresOnGpu(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, users: Tensor, items: Tensor, starts: Tensor, flat: Tensor, owner: Tensor | None
    ) -> Tensor:
        ctx.save_for_backward(users, items, starts, flat, owner)
        return sampled_dot(starts, flat, users, items)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Grads:
        users, items, starts, flat, owner = ctx.saved_tensors
        grad_users = grad_items = None
        if ctx.needs_input_grad[0]:  # Σ_e g[e] · items[index[e]]
            grad_users = segment_sum(starts, flat, items, weight=grad)
        if ctx.needs_input_grad[1]:  # the same pairs grouped by item
            bounds, owner, weight = _by_item_on_gpu(starts, flat, grad, len(items), owner)
            grad_items = segment_sum(bounds, owner, users, weight=weight)
        return grad_users, grad_items, None, None, None


def _by_item_on_gpu(
    starts: Tensor, flat: Tensor, weight: Tensor, n_items: int, owner: Tensor | None
) -> Groups:
    """`by_item` by sorting; without owners all lists must have the same length."""
    bounds, order = _sorted(flat, n_items)
    length = len(flat) // max(len(starts) - 1, 1)
    owners = order // max(length, 1) if owner is None else owner[order]
    return bounds, owners.int(), weight[order]


def _sorted(flat: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Start of each of n values in the sorted list ``[n + 1]``, and the order that sorts it."""
    ordered, order = torch.sort(flat, stable=True)
    every = torch.arange(n + 1, device=flat.device, dtype=flat.dtype)
    return torch.searchsorted(ordered, every, out_int32=True), order
