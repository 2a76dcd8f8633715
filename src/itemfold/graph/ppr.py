"""Personalised PageRank of many users on the bipartite graph, as sparse top entries.

A walk starts at user u. At every step it returns there with probability ``restart`` or moves to a
random neighbour: p = restart · e_u + (1 − restart) · Pᵀ p. Users and items alternate, so the
item part x (in mass per item degree, z = x / d) solves a system of half the size,

    z = a² B z + restart · a · z₁,    B = D_i⁻¹ Rᵀ D_u⁻¹ R,    a = 1 − restart,

with z₁ one step from u. The spectrum of B is in [0, 1], which Chebyshev's iteration uses: eight
products replace twenty terms of this series, or forty steps of p itself.
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
from torch import Tensor

from itemfold.data.csr import as_ones, row_of_entry
from itemfold.errors import ItemfoldError
from itemfold.graph.graph import row_type
from itemfold.ops.segment import segment_sum
from itemfold.ops.thread_map import thread_map
from itemfold.validation import one_of, positive, positive_integers

Method = Literal["power", "push"]


@dataclass(frozen=True)
class PPRScores:
    """The largest item entries of each user's PageRank, CSR, in descending order within a row."""

    indptr: npt.NDArray[np.int64]  # [rows + 1]
    indices: npt.NDArray[np.int32]  # [stored] items
    values: npt.NDArray[np.float32]  # [stored] probabilities, above the threshold
    error: npt.NDArray[np.float32]  # [rows] bound on the L1 error over all items, before the cut
    dropped: npt.NDArray[np.float32]  # [rows] mass that was computed but not stored
    n_items: int

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def matrix(self) -> sp.csr_array:
        """The stored entries as a matrix ``[rows, n_items]`` (indices sorted, a copy)."""
        parts = (self.values.copy(), self.indices.copy(), self.indptr.copy())
        out = sp.csr_array(parts, shape=(len(self), self.n_items))
        out.sort_indices()
        return out


@dataclass(frozen=True)
class PageRank:
    """Settings of the computation, and of which entries are stored.

    Attributes:
        restart: Restart probability of the walk.
        method: "power" iterates on dense blocks of users until every user's L1 error is provably at
            most `tolerance`; "push" moves only mass above `epsilon` · degree, touches only the
            neighbourhood of a user, and stays below the true values; `error` bounds the difference.
        tolerance: See `method`.
        epsilon: See `method`.
        top: Entries stored for each user.
        threshold: Stored entries are above it.
        positives: Whether to store the user's training items as well.
    """

    restart: float = 0.15
    method: Method = "power"
    tolerance: float = 1e-3
    epsilon: float = 1e-5
    top: int = 512
    threshold: float = 0.0
    positives: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.restart < 1:
            raise ItemfoldError(f"'restart' must be a probability in (0, 1), got {self.restart}")
        one_of("method", self.method, ("power", "push"))
        positive(tolerance=self.tolerance, epsilon=self.epsilon)
        positive_integers(top=self.top)

    def key(self) -> dict[str, Any]:
        """The settings that a result depends on."""
        unused = "epsilon" if self.method == "power" else "tolerance"
        return {name: value for name, value in vars(self).items() if name != unused}


def personalised_pagerank(
    train: sp.csr_array,
    users: npt.ArrayLike | None = None,
    *,
    device: torch.device | str = "cpu",
    block: int | None = None,
    cache: str | Path | None = None,
    **settings: Any,
) -> PPRScores:
    """PageRank of the given rows of ``train`` (all by default), the top items of each user.

    Args:
        train: Training interactions, `[users, items]`.
        users: Rows of ``train``.
        device: Device of the power iteration.
        block: Users computed together.
        cache: A folder in which results are stored.
        **settings: The fields of `PageRank`.
    """
    config = PageRank(**settings)
    if block is not None:
        positive_integers(block=block)
    train = as_ones(train)
    rows = np.arange(train.shape[0]) if users is None else np.asarray(users, np.int64)

    def compute() -> PPRScores:
        cut, restart = (config.top, config.threshold, config.positives), config.restart
        if config.method == "push":
            blocks = _push(train, rows, restart, config.epsilon, cut, block or 1024)
        else:
            where = torch.device(device)
            blocks = _power(train, rows, restart, config.tolerance, cut, where, block)
        return _join(blocks, len(rows), int(train.shape[1]))

    if cache is None:
        return compute()
    from itemfold.graph.ppr_cache import cached

    return cached(Path(cache), train, rows, config.key(), compute)


# A block's counts [b], items and values [stored], error and dropped mass [b].
_Block = tuple[npt.NDArray[Any], ...]
_Cut = tuple[int, float, bool]


def _join(blocks: Iterator[_Block], n_rows: int, n_items: int) -> PPRScores:
    """One CSR of all blocks, copied as they arrive: many small arrays would fragment memory."""
    indptr = np.zeros(n_rows + 1, np.int64)
    error, dropped = np.zeros(n_rows, np.float32), np.zeros(n_rows, np.float32)
    items, values = np.empty(0, np.int32), np.empty(0, np.float32)
    row = used = 0
    for count, item, value, wrong, drop in blocks:
        after, need = row + len(count), used + len(item)
        if need > len(items):
            items, values = _grown(items, need), _grown(values, need)
        items[used:need], values[used:need] = item, value
        indptr[row + 1 : after + 1] = used + np.cumsum(count)
        error[row:after], dropped[row:after] = wrong, drop
        row, used = after, need
    return PPRScores(indptr, items[:used], values[:used], error, dropped, n_items)


def _grown(array: npt.NDArray[Any], need: int) -> npt.NDArray[Any]:
    out = np.empty(need + need // 2, array.dtype)  # untouched pages cost nothing
    out[: len(array)] = array
    return out


def _power(
    train: sp.csr_array,
    rows: npt.NDArray[np.int64],
    restart: float,
    tolerance: float,
    cut: _Cut,
    device: torch.device,
    block: int | None,
) -> Iterator[_Block]:
    """Blocks of users as dense columns ``[n_items, b]``; a block should fit into the cache."""
    walk = _Walk(train, restart, device)
    if block is None:
        block = 32 if device.type == "cpu" else max(32, min(2048, 2**26 // int(train.shape[1])))

    def one(chosen: npt.NDArray[np.int64]) -> _Block:
        history = train[chosen]
        width = len(chosen)
        size = np.diff(history.indptr)
        column = np.repeat(np.arange(width), size)
        flat = torch.from_numpy(history.indices.astype(np.int64) * width + column).to(device)
        first = restart * (1 - restart) / np.repeat(size, size)
        value = torch.from_numpy(first.astype(np.float32)).to(device)
        z, error = walk.solve(
            flat, value * walk.item_share.view(-1)[flat // width], width, tolerance
        )
        return _cut_dense(z.mul_(walk.item_degree), flat, error, cut)

    parts = [rows[start : start + block] for start in range(0, len(rows), block)]
    if parts:
        yield one(parts[0])  # first: it determines the number of steps for the others
    if device.type != "cpu":
        yield from map(one, parts[1:])
        return
    with thread_map() as spread:
        yield from spread(one, parts[1:])


class _Walk:
    """Products with B and the solution of z = a² B z + f on columns."""

    def __init__(self, train: sp.csr_array, restart: float, device: torch.device) -> None:
        def put(matrix: sp.csr_array) -> tuple[Tensor, Tensor, Tensor]:
            crow = torch.from_numpy(matrix.indptr.astype(row_type(matrix.nnz))).to(device)
            col = torch.from_numpy(matrix.indices.astype(np.int32)).to(device)
            if device.type == "cpu":
                return crow, col, col
            ones = torch.ones(len(col), device=device)
            size = matrix.shape
            both = crow, col.to(crow.dtype)
            csr = torch.sparse_csr_tensor(*both, ones, size=size, check_invariants=False)
            return crow, col, csr

        self.damping = (1 - restart) ** 2  # a²
        self.by_user, self.by_item = put(train), put(sp.csr_array(train.T))
        self.user_degree, self.item_degree = (
            m[0].diff().float().unsqueeze(1) for m in (self.by_user, self.by_item)
        )
        self.user_share = self.damping / self.user_degree.clamp(min=1)
        self.item_share = 1 / self.item_degree.clamp(min=1)
        self.steps = 0  # of the first block

    def step(self, z: Tensor) -> Tensor:
        """a² B z, columns ``[n_items, b]``."""
        users = _gather(self.by_user, z).mul_(self.user_share)
        return _gather(self.by_item, users).mul_(self.item_share)

    def solve(
        self, flat: Tensor, value: Tensor, width: int, tolerance: float
    ) -> tuple[Tensor, Tensor]:
        """z for f with the given flat entries, and a bound on every column's L1 error.

        For any y the residual f + a² B y − y of L1 norm s leaves an error of at most s / (1 − a²),
        and one plain step from y at most a² of that.
        """
        low = 1 - self.damping  # 1 − a² B has its spectrum in [low, 1]
        centre, radius = (1 + low) / 2, (1 - low) / 2
        sigma = centre / radius
        rate = sigma - math.sqrt(sigma * sigma - 1)
        # computing the residual costs a pass: skip it until it can be small enough
        check = self.steps - 1 if self.steps else math.log(tolerance) / math.log(rate) - 1
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
        self.steps = self.steps or count
        # The exact solution is not negative, so clamping only reduces the error.
        return plain.clamp_(min=0), bound


def _gather(matrix: tuple[Tensor, Tensor, Tensor], x: Tensor) -> Tensor:
    crow, col, product = matrix
    if x.is_cuda:
        return (product @ x).contiguous()  # entries are added in place later
    return segment_sum(crow, col, x)


def _cut_dense(x: Tensor, known: Tensor, error: Tensor, cut: _Cut) -> _Block:
    """The top entries above the threshold of columns ``[n_items, b]``."""
    top, threshold, positives = cut
    if not positives:
        x.view(-1)[known] = 0
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
    """Forward push with sparse frontiers: rows of a block, columns with residual mass.

    A node with residual mass r above epsilon · degree keeps restart · r and passes the rest to its
    neighbours. Of the remaining residual mass (its sum is the L1 error over all nodes) at least the
    share restart · r stays at its node, so it is added as well.
    """
    to_items, bound_u = _transition(train, 1 - restart, epsilon)
    to_users, bound_i = _transition(sp.csr_array(train.T), 1 - restart, epsilon)
    for start in range(0, len(rows), block):
        chosen = rows[start : start + block]
        shape = (len(chosen), int(train.shape[0]))
        residual_u = sp.csr_array((np.ones(len(chosen)), (np.arange(len(chosen)), chosen)), shape)
        residual_i = sp.csr_array((len(chosen), int(train.shape[1])))
        resolved = sp.csr_array(residual_i.shape)
        moved = True
        while moved:
            ready, residual_u = _above(residual_u, bound_u)
            moved = ready.nnz > 0
            residual_i = sp.csr_array(residual_i + ready @ to_items)
            ready, residual_i = _above(residual_i, bound_i)
            moved |= ready.nnz > 0
            resolved = sp.csr_array(resolved + restart * ready)
            residual_u = sp.csr_array(residual_u + ready @ to_users)
        error = residual_u.sum(1) + (1 - restart) * residual_i.sum(1)
        x = sp.csr_array(resolved + restart * residual_i)
        if not cut[2]:
            x = sp.csr_array(x - x.multiply(train[chosen]))
        yield _cut_sparse(x, error, cut)


def _transition(
    matrix: sp.csr_array, share: float, epsilon: float
) -> tuple[sp.csr_array, npt.NDArray[np.float64]]:
    """The share divided equally over each row's entries; and epsilon · degree, [rows]."""
    size = np.diff(matrix.indptr)
    data = np.repeat(share / np.maximum(size, 1), size)
    out = sp.csr_array((data, matrix.indices, matrix.indptr), shape=matrix.shape)
    return out, epsilon * np.maximum(size, 1).astype(np.float64)


def _above(
    residual_mass: sp.csr_array, bound: npt.NDArray[np.float64]
) -> tuple[sp.csr_array, sp.csr_array]:
    """Divide entries into those above their column's bound and the rest."""
    high = residual_mass.data > bound[residual_mass.indices]
    return _masked(residual_mass, high), _masked(residual_mass, ~high)


def _masked(matrix: sp.csr_array, mask: npt.NDArray[np.bool_]) -> sp.csr_array:
    before = np.concatenate(([0], np.cumsum(mask)))
    parts = (matrix.data[mask], matrix.indices[mask], before[matrix.indptr])
    return sp.csr_array(parts, shape=matrix.shape)


def _cut_sparse(x: sp.csr_array, error: npt.NDArray[np.float64], cut: _Cut) -> _Block:
    top, threshold, _ = cut
    mass = x.sum(1)
    x = _masked(x, x.data > threshold)
    owner = row_of_entry(x)
    order = np.lexsort((-x.data, owner))
    rank = np.arange(x.nnz) - x.indptr[owner]
    order, owner = order[rank < top], owner[rank < top]
    values = x.data[order]
    kept = np.bincount(owner, values, minlength=x.shape[0])
    counts = np.bincount(owner, minlength=x.shape[0])
    items = x.indices[order].astype(np.int32, copy=False)
    return counts, items, values.astype(np.float32), error, np.maximum(mass - kept, 0)
