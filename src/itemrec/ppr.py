"""Personalised PageRank of many users on the bipartite graph, as sparse top entries.

A walk starts at user u, goes back there with probability ``restart`` at every step and else moves
to a random neighbour: p = restart · e_u + (1 − restart) · Pᵀ p. Users and items alternate, so the
item part x (in mass per item degree, z = x / d) solves a system of half the size,

    z = a² B z + restart · a · z₁,    B = D_i⁻¹ Rᵀ D_u⁻¹ R,    a = 1 − restart,

with z₁ one step from u. B has its spectrum in [0, 1], which Chebyshev's iteration uses: eight
products do what takes twenty terms of this series, and forty steps of p itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from itemrec.binary import as_ones
from itemrec.errors import ItemrecError

Method = Literal["power", "push"]


@dataclass(frozen=True)
class PPRScores:
    """The largest item entries of each user's PageRank, CSR, by falling value within a row."""

    indptr: npt.NDArray[np.int64]  # [rows + 1]
    indices: npt.NDArray[np.int32]  # [stored] items
    values: npt.NDArray[np.float32]  # [stored] probabilities, above the threshold
    error: npt.NDArray[np.float32]  # [rows] bound of the L1 error over all items, before the cut
    dropped: npt.NDArray[np.float32]  # [rows] mass that was computed and not stored
    n_items: int

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def matrix(self) -> sp.csr_array:
        """The stored entries as a matrix ``[rows, n_items]`` (indices sorted, a copy)."""
        parts = (self.values.copy(), self.indices.copy(), self.indptr.copy())
        out = sp.csr_array(parts, shape=(len(self), self.n_items))
        out.sort_indices()
        return out


def ppr(
    train: sp.csr_array,
    users: npt.ArrayLike | None = None,
    *,
    restart: float = 0.15,
    method: Method = "power",
    tolerance: float = 1e-3,
    epsilon: float = 1e-5,
    top: int = 512,
    threshold: float = 0.0,
    positives: bool = False,
    device: torch.device | str = "cpu",
    block: int | None = None,
    cache: str | Path | None = None,
) -> PPRScores:
    """PageRank of the given rows of ``train`` (all by default), its `top` items a user.

    method: "power" iterates on dense blocks of users until every user's L1 error is provably at
        most `tolerance`; "push" moves only mass above `epsilon` · degree, touches only the
        neighbourhood of a user, and stays below the true values; `error` says by how much.
    threshold: entries must be above it. positives: keep the user's own training items too.
    block: users computed together. cache: a folder where the result is kept and found again.
    """
    if not 0 < restart < 1:
        raise ItemrecError(f"'restart' must be a probability in (0, 1), got {restart}")
    if method not in ("power", "push"):
        raise ItemrecError(f"'method' must be 'power' or 'push', got {method!r}")
    for name, value in (("tolerance", tolerance), ("epsilon", epsilon), ("top", top)):
        if not value > 0:
            raise ItemrecError(f"{name!r} must be positive, got {value}")
    if block is not None and block < 1:
        raise ItemrecError(f"'block' must be a positive integer, got {block}")
    train = as_ones(train)
    rows = np.arange(train.shape[0]) if users is None else np.asarray(users, np.int64)
    settings: dict[str, Any] = {"restart": restart, "method": method, "top": top}
    settings |= {"threshold": threshold, "positives": positives}
    settings |= {"tolerance": tolerance} if method == "power" else {"epsilon": epsilon}

    def compute() -> PPRScores:
        cut = (top, threshold, positives)
        if method == "push":
            blocks = _push(train, rows, restart, epsilon, cut, block or 1024)
        else:
            blocks = _power(train, rows, restart, tolerance, cut, torch.device(device), block)
        return _join(blocks, int(train.shape[1]))

    if cache is None:
        return compute()
    from itemrec.ppr_cache import cached

    return cached(Path(cache), train, rows, settings, compute)


# A block's counts [b], items and values [stored], error and dropped mass [b].
_Block = tuple[npt.NDArray[Any], ...]
_Cut = tuple[int, float, bool]


def _join(blocks: Iterator[_Block], n_items: int) -> PPRScores:
    none = tuple(np.zeros(0) for _ in range(5))
    columns = zip(*(list(blocks) or [none]), strict=True)
    counts, items, values, error, dropped = (np.concatenate(c) for c in columns)
    return PPRScores(
        indptr=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        indices=items.astype(np.int32, copy=False),
        values=values.astype(np.float32, copy=False),
        error=error.astype(np.float32),
        dropped=dropped.astype(np.float32),
        n_items=n_items,
    )


def _power(
    train: sp.csr_array,
    rows: npt.NDArray[np.int64],
    restart: float,
    tolerance: float,
    cut: _Cut,
    device: torch.device,
    block: int | None,
) -> Iterator[_Block]:
    """Blocks of users as dense columns ``[n_items, b]``; the block that fits the cache is best."""
    walk = _Walk(train, restart, device)
    if block is None:
        block = 32 if device.type == "cpu" else max(32, min(2048, 2**26 // int(train.shape[1])))
    for start in range(0, len(rows), block):
        own = train[rows[start : start + block]]
        width = own.shape[0]
        column = np.repeat(np.arange(width), np.diff(own.indptr))
        flat = torch.from_numpy(own.indices.astype(np.int64) * width + column).to(device)
        degree = np.maximum(np.diff(own.indptr), 1)[column]
        first = torch.from_numpy((restart * (1 - restart) / degree).astype(np.float32)).to(device)
        z, error = walk.solve(
            flat, first * walk.item_share.view(-1)[flat // width], width, tolerance
        )
        z.mul_(walk.item_degree)  # mass per degree → mass
        yield _cut_dense(z, flat, error, cut)


class _Walk:
    """Products with B and the solution of z = a² B z + f on columns."""

    def __init__(self, train: sp.csr_array, restart: float, device: torch.device) -> None:
        def put(matrix: sp.csr_array) -> tuple[Tensor, Tensor, Tensor]:
            crow = torch.from_numpy(matrix.indptr.astype(np.int32)).to(device)
            col = torch.from_numpy(matrix.indices.astype(np.int32)).to(device)
            if device.type == "cpu":
                return crow, col, col
            ones = torch.ones(len(col), device=device)
            size = matrix.shape
            return crow, col, torch.sparse_csr_tensor(crow, col, ones, size=size)

        self.damping = (1 - restart) ** 2  # a²
        self.by_user, self.by_item = put(train), put(sp.csr_array(train.T))
        self.user_degree, self.item_degree = (
            m[0].diff().float().unsqueeze(1) for m in (self.by_user, self.by_item)
        )
        self.user_share = self.damping / self.user_degree.clamp(min=1)
        self.item_share = 1 / self.item_degree.clamp(min=1)
        self.enough = 1  # steps after which the last block was near its end

    def step(self, z: Tensor) -> Tensor:
        """a² B z, columns ``[n_items, b]``."""
        users = _gather(self.by_user, z).mul_(self.user_share)
        return _gather(self.by_item, users).mul_(self.item_share)

    def solve(
        self, flat: Tensor, value: Tensor, width: int, tolerance: float
    ) -> tuple[Tensor, Tensor]:
        """z for f with the given flat entries, and a bound of every column's L1 error.

        For any y the residual f + a² B y − y of L1 norm s leaves an error of at most s / (1 − a²),
        and one plain step from y at most a² of that.
        """
        low = 1 - self.damping  # 1 − a² B has its spectrum in [low, 1]
        centre, radius = (1 + low) / 2, (1 - low) / 2
        sigma = centre / radius
        rate = sigma - math.sqrt(sigma * sigma - 1)
        # looking at the residual costs a pass: no use before it can be small enough
        check = max(math.log(tolerance) / math.log(rate) - 1, self.enough)
        before = torch.zeros(len(self.item_degree), width, device=value.device)
        now = torch.zeros_like(before)
        now.view(-1)[flat] = value / centre
        weight = 1 / sigma
        for count in range(1, 1001):
            plain = self.step(now)
            plain.view(-1)[flat] += value
            if count >= check:
                residual = torch.sub(plain, now).abs_()
                bound = (self.item_degree.T @ residual).squeeze(0) * (self.damping / low)
                if bool((bound <= tolerance).all()) or count == 1000:
                    break
            following = 1 / (2 * sigma - weight)
            pull = 2 * following / radius
            keep = following * weight
            before.mul_(-keep).add_(now, alpha=1 + keep - pull).add_(plain, alpha=pull)
            before, now, weight = now, before, following
        self.enough = count - 1
        return plain.clamp_(min=0), bound  # the truth is not negative: only nearer to it


def _gather(matrix: tuple[Tensor, Tensor, Tensor], x: Tensor) -> Tensor:
    crow, col, product = matrix
    if x.is_cuda:
        return product @ x
    return F.embedding_bag(col, x, crow, mode="sum", include_last_offset=True)


def _cut_dense(x: Tensor, own: Tensor, error: Tensor, cut: _Cut) -> _Block:
    """The top entries above the threshold of columns ``[n_items, b]``."""
    top, threshold, positives = cut
    if not positives:
        x.view(-1)[own] = 0
    mass = x.sum(0)
    values, items = torch.topk(x.T.contiguous(), min(top, len(x)), dim=1)  # [b, top]
    keep = values > threshold
    dropped = mass - (values * keep).sum(1)
    parts = (keep.sum(1), items[keep].int(), values[keep], error, dropped.clamp_(min=0))
    return tuple(part.cpu().numpy() for part in parts)


def _push(
    train: sp.csr_array,
    rows: npt.NDArray[np.int64],
    restart: float,
    epsilon: float,
    cut: _Cut,
    block: int,
) -> Iterator[_Block]:
    """Forward push with sparse frontiers: rows of a block, columns where its mass still waits.

    A node with waiting mass r above epsilon · degree keeps restart · r and hands the rest to its
    neighbours. What waits in the end (its sum is the L1 error over all nodes) leaves at least its
    own share restart · r where it is, which is kept too.
    """
    train = train.astype(np.float64)
    degree_u = np.maximum(np.diff(train.indptr), 1)
    back = sp.csr_array(train.T)
    degree_i = np.maximum(np.diff(back.indptr), 1)
    to_items = sp.csr_array(sp.diags_array((1 - restart) / degree_u) @ train)
    to_users = sp.csr_array(sp.diags_array((1 - restart) / degree_i) @ back)
    for start in range(0, len(rows), block):
        chosen = rows[start : start + block]
        shape = (len(chosen), int(train.shape[0]))
        waiting_u = sp.csr_array((np.ones(len(chosen)), (np.arange(len(chosen)), chosen)), shape)
        waiting_i = sp.csr_array((len(chosen), int(train.shape[1])))
        settled = sp.csr_array(waiting_i.shape)
        moved = True
        while moved:
            ready, waiting_u = _above(waiting_u, epsilon * degree_u)
            moved = ready.nnz > 0
            waiting_i = sp.csr_array(waiting_i + ready @ to_items)
            ready, waiting_i = _above(waiting_i, epsilon * degree_i)
            moved |= ready.nnz > 0
            settled = sp.csr_array(settled + restart * ready)
            waiting_u = sp.csr_array(waiting_u + ready @ to_users)
        error = waiting_u.sum(1) + (1 - restart) * waiting_i.sum(1)
        x = sp.csr_array(settled + restart * waiting_i)
        if not cut[2]:
            x = sp.csr_array(x - x.multiply(train[chosen]))
        yield _cut_sparse(x, error, cut)


def _above(
    waiting: sp.csr_array, bound: npt.NDArray[np.float64]
) -> tuple[sp.csr_array, sp.csr_array]:
    """Part entries into those above their column's bound and the rest."""
    high = waiting.data > bound[waiting.indices]
    return _masked(waiting, high), _masked(waiting, ~high)


def _masked(matrix: sp.csr_array, mask: npt.NDArray[np.bool_]) -> sp.csr_array:
    before = np.concatenate(([0], np.cumsum(mask)))
    parts = (matrix.data[mask], matrix.indices[mask], before[matrix.indptr])
    return sp.csr_array(parts, shape=matrix.shape)


def _cut_sparse(x: sp.csr_array, error: npt.NDArray[np.float64], cut: _Cut) -> _Block:
    top, threshold, _ = cut
    mass = x.sum(1)
    x = _masked(x, x.data > threshold)
    owner = np.repeat(np.arange(x.shape[0]), np.diff(x.indptr))
    order = np.lexsort((-x.data, owner))
    rank = np.arange(x.nnz) - x.indptr[owner]
    order, owner = order[rank < top], owner[rank < top]
    values = x.data[order]
    kept = np.bincount(owner, values, minlength=x.shape[0])
    counts = np.bincount(owner, minlength=x.shape[0])
    return counts, x.indices[order], values, error, np.maximum(mass - kept, 0)
