"""The nearest items of each item, and their Gram matrix, in memory far below items × items.

With interactions S [users, items] and G = SᵀS, this computes for each item j, block by block,

    N_j = the k items of largest cosine, G_ij / √(G_ii G_jj)        G_NN  and  G_Nj

so that a column of item–item weights can be solved on its neighbours alone. G itself is never in
memory. The most popular items, the head, have their part of it as one dense matrix. The others have
few users: from a sparse matrix with a row for each of these users, separate for each j, that marks
the user's items in N_j, G_NN is a sparse product.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.data.csr import from_parts, row_of_entry, take_entries
from itemfold.models.item_item import gram_matrix
from itemfold.models.nearest_items import Ints, nearest_items
from itemfold.ops.inverse import Progress
from itemfold.ops.thread_map import thread_map

HEAD = 8192  # items whose Gram matrix is dense, 256 MiB; more take longer on sparse data
LOCAL = 2**22  # elements of the Gram matrices of a block, unless it has one item
PRODUCTS = 2**22  # multiplications of a sparse product, which bound its size
LEADERS = (32, 1024)  # most popular items by which others are put in order, in two levels
PLACES = 2**24  # elements of the table of positions of the head's items in a block


@dataclass(frozen=True)
class NeighbourBlock:
    """Some items with their neighbours."""

    targets: Tensor  # items j [b]
    sources: Tensor  # their neighbours N [b, k]
    gram: Tensor  # G_NN [b, k, k], the lower triangle
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
        self, scaled: sp.csr_array, squares: npt.NDArray[np.float64], k: int, watch: Progress
    ) -> None:
        scaled = scaled.astype(np.float32, copy=False)
        self.n_items = scaled.shape[1]
        self.k, self.watch = min(k, self.n_items - 1), watch
        popularity = np.bincount(scaled.indices, minlength=self.n_items)
        self.order = np.argsort(-popularity, kind="stable")  # from rank to item
        root = np.sqrt(np.where(squares > 0, squares, 1))[self.order]
        self.per_root = (1 / root).astype(np.float32)  # j's own does not change its order
        self.squares = squares[self.order].astype(np.float32)
        self.by_user = sp.csr_array(scaled[:, self.order])
        self.by_user.sort_indices()
        self.by_item = sp.csr_array(self.by_user.T)
        self.head = min(HEAD, self.n_items)
        self.of_head = sp.csr_array(self.by_user[:, : self.head])
        self.dense = gram_matrix(self.of_head).numpy()
        self.rare = _without_rows(self.by_item, self.head)
        self.work = _sums(self.by_item, np.diff(self.by_user.indptr))  # for the row of an item
        self.rare_work = _sums(self.rare, 1 + np.diff(self.of_head.indptr))  # as a neighbour

    def columns(self, solve: Callable[[NeighbourBlock], Tensor]) -> tuple[Tensor, Tensor]:
        """The neighbours of each item, and the solutions for them; ``[items, k]`` each.

        ``solve`` is called from several threads, each with other items.
        """
        near, work = self.nearest()
        weights = torch.empty(self.n_items, max(self.k, 0))

        def fill(targets: Ints) -> None:
            rows = self.order[targets]
            block = self.block(targets, near[rows], float(work[targets].sum()))
            weights[block.targets] = solve(block).cpu()
            near[rows] = self.order[near[rows]]  # from ranks to items

        if self.k > 0:
            most = min(LOCAL // (self.k + 1) ** 2, PLACES // self.head)
            order = self.by_leader()
            parts = [order[part] for part in _parts(work[order], most)]
            self._each(fill, parts, "solving neighbourhoods")
        return torch.from_numpy(near), weights

    def nearest(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]:
        """The ranks of the k nearest items of each, ascending, and the work for their products.

        A row of the former has the number of the item, ``[items, k]``; the latter is in the order
        of ranks, ``[items]``.
        """
        near = np.empty((self.n_items, max(self.k, 0)), dtype=np.int32)
        work = np.zeros(self.n_items)

        def find(part: Ints) -> None:
            scores = sp.csr_array(self.by_item[part] @ self.by_user)
            scores.data *= self.per_root[scores.indices]
            found = nearest_items(part, scores, self.k)
            near[self.order[part]] = found
            work[part] = self.rare_work[found].sum(1) + self.rare_work[part]

        if self.k > 0:
            self._each(find, _parts(self.work, LOCAL // (self.k + 1)), "finding neighbours")
        return near, work

    def by_leader(self) -> Ints:
        """All ranks in an order in which items with common neighbours are close to each other.

        Each item follows the one of largest cosine among the most popular items, its leader; the
        leaders follow theirs in the same way.
        """
        first, all_leaders = (sp.csr_array(self.by_user[:, :number]) for number in LEADERS)
        of_item = np.zeros(self.n_items, np.int64)

        def find(part: Ints) -> None:
            of_item[part] = self._nearest_of(part, all_leaders)

        self._each(find, _parts(self.work, LOCAL), "sorting items")
        of_leader = self._nearest_of(np.arange(all_leaders.shape[1]), first)
        out: Ints = np.lexsort((of_item, of_leader[of_item]))
        return out

    def _nearest_of(self, items: Ints, leaders: sp.csr_array) -> Ints:
        """The leader of largest cosine of each item."""
        cosines = sp.csr_array(self.by_item[items] @ leaders)
        cosines.data *= self.per_root[cosines.indices]
        return _argmax(cosines)

    def _each(self, task: Callable[[Ints], None], parts: list[Ints], text: str) -> None:
        with thread_map() as spread:
            for _ in zip(self.watch(parts, text), spread(task, parts), strict=False):
                pass

    def block(self, targets: Ints, near: npt.NDArray[np.int32], work: float) -> NeighbourBlock:
        """The products of some items, by rank, with their neighbours and of these."""
        listed = np.concatenate([near, targets[:, None].astype(np.int32)], axis=1)  # [b, k + 1]
        entries, pieces = self.rare[listed.ravel()], int(work // PRODUCTS) + 1
        parts = [entries]
        if pieces > 1:
            of_user = entries.indices % pieces
            parts = [take_entries(entries, of_user == piece) for piece in range(pieces)]
        gram = reduce(np.add, (self._rare_products(listed, part) for part in parts))
        self._fill_head(gram, listed)
        np.einsum("bii->bi", gram)[:] = self.squares[listed]
        of_head = (targets < self.head)[:, None] & (near >= self.head)
        wanted = np.where(of_head, gram[:, :-1, -1], gram[:, -1, :-1])
        whole = torch.from_numpy(gram)
        return NeighbourBlock(
            torch.from_numpy(self.order[targets]),
            torch.from_numpy(self.order[near]),
            whole[:, :-1, :-1],
            torch.from_numpy(wanted),
        )

    def _rare_products(
        self, listed: npt.NDArray[np.int32], entries: sp.csr_array
    ) -> npt.NDArray[np.float32]:
        """The products of the listed items outside the head with all that are listed with them.

        Other rows are 0, and so may the diagonal be.

        Args:
            listed: Ranks of the items that go together, `[b, k + 1]`.
            entries: The interactions of those outside the head, `[b · (k + 1), users]`.

        Returns:
            `[b, k + 1, k + 1]`.
        """
        b, width = listed.shape
        if not entries.nnz:
            return np.zeros((b, width, width), np.float32)
        rare, group, user = _by_group_and_user(entries, width)
        popular = self._of_groups(listed, group, user)
        shared = np.flatnonzero(np.diff(rare.indptr) + np.diff(popular.indptr) > 1)
        rare, popular = rare[shared], popular[shared]  # others are squares of one item
        places = (rare.data, rare.indices % width, rare.indptr)
        right = sp.csr_array(places, shape=popular.shape) + popular
        products = sp.csr_array(rare.T) @ right
        return np.asarray(products.toarray()).reshape(b, width, width)

    def _of_groups(self, listed: npt.NDArray[np.int32], group: Ints, user: Ints) -> sp.csr_array:
        """Interactions of users with items of the head that are listed in a group, by place."""
        row, column = np.nonzero(listed < self.head)
        items, number = np.unique(listed[row, column], return_inverse=True)
        place = np.full((len(listed), len(items)), -1, np.int32)
        place[row, number] = column
        histories = sp.csr_array(self.by_item[items].T)[user]
        line = row_of_entry(histories)
        found = place.ravel()[group[line] * len(items) + histories.indices]
        there = np.flatnonzero(found >= 0)
        lengths = np.bincount(line[there], minlength=len(user))
        parts = (histories.data[there], found[there], np.append(0, np.cumsum(lengths)))
        return sp.csr_array(parts, shape=(len(user), listed.shape[1]))

    def _fill_head(self, gram: npt.NDArray[np.float32], listed: npt.NDArray[np.int32]) -> None:
        """Add the products of items of the head, which are the first that are listed."""
        for own, items, size in zip(gram, listed, (listed[:, :-1] < self.head).sum(1), strict=True):
            first = items[:size]
            own[:size, :size] = self.dense[first[:, None], first]
            if items[-1] < self.head:
                own[-1, :size] = self.dense[items[-1], first]


def _argmax(rows: sp.csr_array) -> Ints:
    """The column of the largest entry of each row, the first of equals; 0 if there is none."""
    out, filled = np.zeros(rows.shape[0], np.int64), np.flatnonzero(np.diff(rows.indptr))
    if len(filled):
        largest = np.maximum.reduceat(rows.data, rows.indptr[filled])
        is_it = rows.data == np.repeat(largest, np.diff(rows.indptr)[filled])
        line = row_of_entry(rows)[is_it]
        out[line[::-1]] = rows.indices[is_it][::-1]
    return out


def _by_group_and_user(entries: sp.csr_array, width: int) -> tuple[sp.csr_array, Ints, Ints]:
    """Entries in the order of users and of groups of ``width`` rows.

    Returns:
        A row for each user of each group, `[…, rows of entries]`, its group, and its user.
    """
    number = np.arange(entries.nnz, dtype=entries.indices.dtype)
    numbered = sp.csr_array((number, entries.indices, entries.indptr), shape=entries.shape)
    by_user = sp.csc_array(numbered)
    user, row = entries.indices[by_user.data], by_user.indices
    group = row // width
    is_new = np.ones(len(row), dtype=np.bool_)
    is_new[1:] = (group[1:] != group[:-1]) | (user[1:] != user[:-1])
    first = np.flatnonzero(is_new)
    parts = (row, np.append(first, len(row)), entries.shape[0], entries.data[by_user.data])
    return from_parts(*parts), group[first].astype(np.int64), user[first].astype(np.int64)


def _without_rows(matrix: sp.csr_array, n: int) -> sp.csr_array:
    """The matrix with nothing in its first n rows."""
    first = matrix.indptr[n]
    ends = np.maximum(matrix.indptr - first, 0)
    return from_parts(matrix.indices[first:], ends, matrix.shape[1], matrix.data[first:])


def _sums(pattern: sp.csr_array, values: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """The sum of values over the entries of each row."""
    before = np.concatenate(([0.0], np.cumsum(values[pattern.indices], dtype=np.float64)))
    return before[pattern.indptr[1:]] - before[pattern.indptr[:-1]]


def _parts(work: npt.NDArray[np.float64], most: int) -> list[Ints]:
    """Consecutive items: at most ``most``, with work of at most `PRODUCTS` unless it is one."""
    out, start, before = [], 0, np.concatenate(([0.0], np.cumsum(work)))
    while start < len(work):
        end = int(np.searchsorted(before, before[start] + PRODUCTS, side="right")) - 1
        end = max(min(end, start + max(most, 1)), start + 1)
        out.append(np.arange(start, end))
        start = end
    return out
