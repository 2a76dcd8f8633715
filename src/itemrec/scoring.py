"""Scores of listed user–item pairs, with a backward that never scatters."""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from itemrec.bags import fused, row_dots, row_sums


def pair_scores(users: Tensor, items: Tensor, index: Tensor) -> Tensor:
    """``out[b, n] = users[b] · items[index[b, n]]``; ``[B, d], [I, d], [B, N] → [B, N]``.

    The gradient of the item table sums one row a pair. Grouping the pairs by item turns that into a
    neighbourhood sum: deterministic on every device, and far faster on a CPU than index_add.
    """
    out: Tensor = _PairScores.apply(users, items, index)  # type: ignore[no-untyped-call]
    return out


def take_rows(table: Tensor, index: Tensor) -> Tensor:
    """Rows of a table with a deterministic gradient, ``[n, d], [...] → [..., d]``."""
    if fused(table):
        out: Tensor = _TakeRows.apply(table, index)  # type: ignore[no-untyped-call]
        return out
    return F.embedding(index, table)


class _TakeRows(torch.autograd.Function):
    """On a GPU: torch's own gradient sorts 64-bit keys, and needs a dozen kernels around that."""

    @staticmethod
    def forward(ctx: Any, table: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.rows = len(table)
        return F.embedding(index, table)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (index,) = ctx.saved_tensors
        bounds, order = _sorted(index.reshape(-1).int(), ctx.rows)
        return row_sums(bounds, order.int(), grad.reshape(-1, grad.shape[-1])), None


class _PairScores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, users: Tensor, items: Tensor, index: Tensor) -> Tensor:
        n_lists, length = index.shape
        flat = index.reshape(-1).int()  # half the bytes to sort and to read
        starts = torch.arange(n_lists + 1, device=index.device, dtype=torch.int32) * length
        ctx.save_for_backward(users, items, flat, starts)
        return row_dots(starts, flat, users, items).view(index.shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        users, items, flat, starts = ctx.saved_tensors
        grad_users = grad_items = None
        if ctx.needs_input_grad[0]:  # Σ_n g[b, n] · items[index[b, n]]
            grad_users = row_sums(starts, flat, items, weight=grad.reshape(-1))
        if ctx.needs_input_grad[1]:  # the same pairs grouped by item
            regroup = _by_item_on_gpu if flat.is_cuda else _by_item
            bounds, owner, weight = regroup(starts, flat, grad.reshape(-1), len(items))
            grad_items = row_sums(bounds, owner, users, weight=weight)
        return grad_users, grad_items, None


Groups = tuple[Tensor, Tensor, Tensor]  # where each item's pairs begin, whose they are, weights


def _by_item(starts: Tensor, flat: Tensor, weight: Tensor, n_items: int) -> Groups:
    """The transpose of a CSR matrix is a counting sort: one pass, and an item's pairs in order."""
    parts = (weight.numpy(), flat.numpy(), starts.numpy())
    pairs = sp.csr_array(parts, shape=(len(starts) - 1, n_items)).tocsc()
    return (
        torch.from_numpy(pairs.indptr),
        torch.from_numpy(pairs.indices),
        torch.from_numpy(pairs.data),
    )


def _by_item_on_gpu(starts: Tensor, flat: Tensor, weight: Tensor, n_items: int) -> Groups:
    bounds, order = _sorted(flat, n_items)
    length = len(flat) // max(len(starts) - 1, 1)
    return bounds, (order // max(length, 1)).int(), weight[order]


def _sorted(flat: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Where each of n numbers begins in a sorted list ``[n + 1]``, and the order that sorts it."""
    ordered, order = torch.sort(flat, stable=True)
    every = torch.arange(n + 1, device=flat.device, dtype=flat.dtype)
    return torch.searchsorted(ordered, every, out_int32=True), order
