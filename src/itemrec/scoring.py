"""Scores of listed user–item pairs, with a backward that never scatters."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from itemrec.propagate import bag_dots


def pair_scores(users: Tensor, items: Tensor, index: Tensor) -> Tensor:
    """``out[b, n] = users[b] · items[index[b, n]]``; ``[B, d], [I, d], [B, N] → [B, N]``.

    The gradient of the item table sums one row a pair. Sorting the pairs by item turns that into a
    neighbourhood sum: deterministic on every device, and far faster on a CPU than index_add.
    """
    out: Tensor = _PairScores.apply(users, items, index)  # type: ignore[no-untyped-call]
    return out


def take_rows(table: Tensor, index: Tensor) -> Tensor:
    """Rows of a table with a deterministic gradient, ``[n, d], [...] → [..., d]``."""
    return F.embedding(index, table)


class _PairScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, users: Tensor, items: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(users, items, index)
        n_lists, length = index.shape
        owner = torch.arange(n_lists * length, device=index.device) // max(length, 1)
        starts = torch.arange(n_lists, device=index.device) * length
        return bag_dots(users, items, index.reshape(-1), starts, owner).view(index.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        users, items, index = ctx.saved_tensors
        n_lists, length = index.shape
        grad_users = grad_items = None
        if ctx.needs_input_grad[0]:  # Σ_n g[b, n] · items[index[b, n]]
            starts = torch.arange(n_lists, device=index.device) * length
            grad_users = _bags(index.reshape(-1), items, starts, grad)
        if ctx.needs_input_grad[1]:  # the same pairs grouped by item
            ordered, order = torch.sort(index.reshape(-1), stable=True)
            starts = torch.searchsorted(ordered, torch.arange(len(items), device=index.device))
            grad_items = _bags(order // length, users, starts, grad.reshape(-1)[order])
        return grad_users, grad_items, None


def _bags(index: Tensor, table: Tensor, starts: Tensor, weight: Tensor) -> Tensor:
    return F.embedding_bag(
        index, table, starts, mode="sum", per_sample_weights=weight.reshape(-1).contiguous()
    )
