"""The nearest items of each item, and their Gram matrix, in memory far below items × items.

With interactions S [users, items] and G = SᵀS, a block of items j gets

    N_j = the k items of largest cosine, G_ij / √(G_ii G_jj)        G_NN  and  G_Nj

of each, so that a column of item–item weights can be solved on its neighbours alone. G itself is
never in memory. The most popular items, the head, have their part of it as one dense matrix. The
others have few interactions: their rows are computed where a block needs them. Blocks are made of
items that share neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import Tensor

from itemrec.models.item_item import gram_matrix

Ints = npt.NDArray[np.int64]
Watch = Callable[[Iterable[Any], str], Iterable[Any]]

HEAD = 16_384  # items whose Gram matrix is dense, 1 GiB
JOINT = 1024  # different items outside the head in a block
LOCAL = 2**24  # elements of the Gram matrices of a block
PRODUCTS = 2**24  # multiplications of a sparse product, and so its largest size
LINKS = 4  # neighbours of an item that decide which block it joins


@dataclass(frozen=True)
class Block:
    """Some items with their neighbours."""

    targets: Tensor  # items j [b]
    sources: Tensor  # their neighbours N [b, k]
    gram: Tensor  # G_NN [b, k, k]
    wanted: Tensor  # G_Nj [b, k]


class Neighbourhoods:
    """The neighbours of every item of a catalogue.

    Where fewer than k items share users with an item, the most popular others follow.

    Args:
        scaled: Interactions S, `[users, items]`.
        squares: The diagonal of G, `[items]`.
        k: Number of neighbours; at most all other items.
        watch: Shows progress.
    """

    def __init__(
        self, scaled: sp.csr_array, squares: npt.NDArray[np.float64], k: int, watch: Watch
    ) -> None:
        self.n_items = scaled.shape[1]
        self.k, self.watch = min(k, self.n_items - 1), watch
        popularity = np.bincount(scaled.indices, minlength=self.n_items)
        self.order = np.argsort(-popularity, kind="stable")  # from rank to item
        self.by_user = sp.csr_array(scaled[:, self.order])
        self.by_item = sp.csr_array(self.by_user.T)
        lengths = np.diff(self.by_user.indptr).astype(np.float64)
        ones = np.ones(self.by_item.nnz)
        pattern = sp.csr_array(
            (ones, self.by_item.indices, self.by_item.indptr), self.by_item.shape
        )
        self.work: npt.NDArray[np.float64] = np.asarray(
            pattern @ lengths
        )  # multiplications for the row of an item
        root = np.sqrt(np.where(squares > 0, squares, 1))[self.order]
        self.per_root = (1 / root).astype(np.float32)  # j's own does not change its order
        self.head = min(HEAD, self.n_items)
        self.dense = gram_matrix(sp.csr_array(self.by_user[:, : self.head]))
        self.place = np.full(self.n_items, -1, dtype=np.int32)
        self.ahead = max(LOCAL // max(self.k, 1) ** 2, 1)  # items that the next block may have

    def __iter__(self) -> Iterator[Block]:
        """Blocks that cover every item once."""
        if self.k < 1:
            return
        near = self.nearest()
        order = self._together(near)
        done = 0
        bar = iter(self.watch(range(self.n_items), "solving neighbourhoods"))
        while done < self.n_items:
            targets, items = self._next(near, order[done:])
            done += len(targets)
            for _ in range(len(targets)):
                next(bar, None)
            yield self._block(near[targets].astype(np.int64), targets, items)
        next(bar, None)  # the bar is complete

    def columns(self, solve: Callable[[Block], Tensor]) -> tuple[Tensor, Tensor]:
        """The neighbours of each item, and what is solved for them; ``[items, k]`` each."""
        sources = torch.empty(self.n_items, self.k, dtype=torch.int32)
        weights = torch.empty(self.n_items, self.k)
        for block in self:
            sources[block.targets] = block.sources.to(torch.int32)
            weights[block.targets] = solve(block).cpu()
        return sources, weights

    def nearest(self) -> npt.NDArray[np.int32]:
        """The k nearest items of each, by ranks, the nearest first, ``[items, k]``."""
        near = np.empty((self.n_items, self.k), dtype=np.int32)
        for part in self.watch(self._parts(np.arange(self.n_items)), "finding neighbours"):
            products = self.by_item[part] @ self.by_user
            scores = products.data * self.per_root[products.indices]
            starts = products.indptr
            for row, item in enumerate(part):
                there = slice(starts[row], starts[row + 1])
                near[item] = self._best(int(item), products.indices[there], scores[there])
        return near

    def _best(
        self, item: int, found: npt.NDArray[np.int32], scores: npt.NDArray[np.float32]
    ) -> npt.NDArray[np.int32]:
        """The k best of the items that share users; ties: the more popular item."""
        others = found != item
        found, scores = found[others], scores[others]
        if len(found) > self.k:
            least = np.partition(scores, len(scores) - self.k)[len(scores) - self.k]
            above, ties = scores > least, np.flatnonzero(scores == least)
            ties = ties[np.argsort(found[ties])][: self.k - int(above.sum())]
            chosen = np.concatenate([np.flatnonzero(above), ties])
            found, scores = found[chosen], scores[chosen]
        found = found[np.lexsort((found, -scores))]
        if len(found) == self.k:
            return found
        free = np.ones(self.k + 1, dtype=np.bool_)
        free[found[found <= self.k]] = False
        free[item : item + 1] = False
        popular = np.flatnonzero(free)[: self.k - len(found)]
        return np.concatenate([found, popular.astype(np.int32)])

    def _parts(self, items: Ints) -> list[Ints]:
        """Consecutive items, cut so that the product of a part is not too large."""
        cuts = np.flatnonzero(np.diff(self.work[items].cumsum() // PRODUCTS)) + 1
        return np.split(items, cuts)

    def _together(self, near: npt.NDArray[np.int32]) -> Ints:
        """An order of the items in which those that share neighbours follow each other."""
        if self.n_items <= self.head:
            return np.arange(self.n_items)
        links = near[:, : min(LINKS, self.k)]
        ends = np.arange(0, links.size + 1, links.shape[1])
        ones = np.ones(links.size, dtype=np.int8)
        graph = sp.csr_matrix((ones, links.ravel(), ends), shape=(self.n_items, self.n_items))
        order: Ints = reverse_cuthill_mckee(graph, symmetric_mode=False).astype(np.int64)
        return order

    def _next(self, near: npt.NDArray[np.int32], order: Ints) -> tuple[Ints, Ints]:
        """The first items whose neighbours are few together, and these with them, ascending."""
        targets = order[: self.ahead]
        listed = np.concatenate([near[targets], targets[:, None]], axis=1)  # [b, k + 1]
        if self.n_items <= self.head:
            return targets, np.arange(self.n_items)
        items, first = np.unique(listed, return_index=True)
        first //= self.k + 1  # the first target that has the item
        rare = np.bincount(first[items >= self.head], minlength=len(targets)).cumsum()
        most = max(int(np.searchsorted(rare, JOINT, side="right")), 1)
        self.ahead = min(2 * most, max(LOCAL // self.k**2, 1))
        return targets[:most], items[first < most].astype(np.int64)

    def _block(self, near: Ints, targets: Ints, items: Ints) -> Block:
        at, own = (torch.from_numpy(np.searchsorted(items, rows)) for rows in (near, targets))
        products = _Products(torch.from_numpy(self.dense), *self._rare(items))
        return Block(
            torch.from_numpy(self.order[targets]),
            torch.from_numpy(self.order[near]),
            products.of(at.unsqueeze(2), at.unsqueeze(1)),
            products.of(own.unsqueeze(1), at),
        )

    def _rare(self, items: Ints) -> tuple[Tensor, Tensor]:
        """Some items, by ascending ranks, and the rows of the Gram matrix that the head lacks."""
        known = int(np.searchsorted(items, self.head))
        rows = np.zeros((len(items) - known, len(items)), dtype=np.float32)
        self.place[items] = np.arange(len(items))
        for part in self._parts(items[known:]):
            at = self.place[part] - known
            rows[at] = self._products(self.by_item[part], len(items)).toarray()
        self.place[items] = -1
        return torch.from_numpy(items), torch.from_numpy(rows)

    def _products(self, rare: sp.csr_array, n_items: int) -> sp.csr_array:
        """The products of rare items with those that have a place, from their users alone."""
        users = np.unique(rare.indices)
        seat = np.searchsorted(users, rare.indices)
        histories = self.by_user[users]
        column = self.place[histories.indices]
        there = column >= 0
        ends = np.concatenate(([0], there.cumsum()))[histories.indptr]
        parts = (histories.data[there], column[there], ends)
        few = sp.csr_array(parts, shape=(len(users), n_items))
        shape = (rare.shape[0], len(users))
        return sp.csr_array(sp.csr_array((rare.data, seat, rare.indptr), shape=shape) @ few)


@dataclass(frozen=True)
class _Products:
    """Entries of the Gram matrix of some items, numbered from 0; the first ones are in the head."""

    dense: Tensor  # of the head
    items: Tensor  # ranks
    rare: Tensor  # the rows of all others [rare, items]

    def of(self, left: Tensor, right: Tensor) -> Tensor:
        """The products of pairs."""
        known, n = len(self.items) - len(self.rare), len(self.items)
        ranks = self.items.clamp(max=len(self.dense) - 1)
        both = self.dense.view(-1)[ranks[left] * len(self.dense) + ranks[right]]
        if not len(self.rare):
            return both
        high, low = torch.maximum(left, right), torch.minimum(left, right)
        other = self.rare.view(-1)[(high - known).clamp_(min=0) * n + low]
        return torch.where(high < known, both, other)
