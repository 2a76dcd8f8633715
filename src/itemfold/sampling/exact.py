"""Exact draws for a batch of users: one random number and one binary search each, no rejection."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.data.csr import as_ones, row_of_entry
from itemfold.errors import ItemfoldError
from itemfold.ops.segment import on_triton
from itemfold.sampling.positives import Positives


class Draws:
    """A mixture of a uniform and a sparse part for every user, drawn by one binary search.

    p(i | u) = (1 − share_u) / |non-positives of u| + share_u · weight_ui / Σ_j weight_uj

    for every item i that is not a positive of u. A user's distribution is a range of integers:
    `unit` of them for each non-positive item in order, then an interval for each sparse entry. The
    keys of a user are the positions where a positive was cut out of the first part (in units), then
    the starts of the intervals; the number of keys at or below a draw gives the number of positives
    before it, or the interval it is in. Rounding errors are below 1e-9 of a user's total.
    """

    def __init__(
        self,
        train: sp.csr_array,
        device: Any = "cpu",
        *,
        sparse: tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.float64]] | None = None,
        share: npt.NDArray[np.float64] | None = None,
        search: bool | None = None,
    ) -> None:
        """`sparse`: (indptr, items, weights) without positives; `share`: [n_users] in [0, 1].

        A user without sparse weights draws uniformly for any share. With `search` every draw is a
        binary search, the default on a GPU; otherwise only those that need one, as on a CPU.
        """
        train = as_ones(train)
        by_search = torch.device(device).type != "cpu" if search is None else search
        self.redraws = None if by_search else Redraws(train)
        n_users, n_items = train.shape
        size = np.diff(train.indptr).astype(np.int64)
        free = n_items - size  # [n_users] non-positive items
        check_negatives_left(free)
        rows = row_of_entry(train)
        key = train.indices - (np.arange(train.nnz) - train.indptr[rows])  # non-positives before it
        if sparse is None or share is None:
            self.stride = n_items + 1
            self._store(device, key + rows * self.stride, train.indptr, free, free)
            return
        keep = sparse[2] > 0
        indptr = np.concatenate(([0], np.cumsum(keep)))[sparse[0]]
        items, weights = sparse[1][keep], sparse[2][keep]
        self.stride = 1 << min(40, 62 - bits_for(n_users))
        share = np.where(np.diff(indptr) > 0, share, 0.0)
        unit = ((self.stride - 1) * (1 - share) / free).astype(np.int64)  # [n_users]
        plain = unit * free
        owner = np.repeat(np.arange(n_users), np.diff(indptr))
        total = np.where(share > 0, self.stride - 1, plain)
        begin = plain[owner] + _intervals(indptr, weights, total - plain)
        both = train.indptr + indptr.astype(np.int64)  # a user's positives, then its entries
        keys = np.empty(train.nnz + len(items), np.int64)
        found = np.zeros(len(keys), np.int32)
        at = np.arange(len(items)) + train.indptr[owner + 1]
        keys[at], found[at] = begin + owner * self.stride, items
        keys[np.arange(train.nnz) + indptr[rows]] = key * unit[rows] + rows * self.stride
        self._store(device, keys, both, plain, total, unit, found)

    def _store(
        self,
        device: Any,
        keys: npt.NDArray[np.int64],
        start: npt.NDArray[Any],
        plain: npt.NDArray[np.int64],
        total: npt.NDArray[np.int64],
        unit: npt.NDArray[np.int64] | None = None,
        items: npt.NDArray[np.int32] | None = None,
    ) -> None:
        def put(array: npt.NDArray[Any]) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(array)).to(device)

        self.keys, self.start = put(keys), put(start.astype(np.int64))
        self.plain, self.total = put(plain), put(total)
        self.unit = None if unit is None else put(np.maximum(unit, 1))
        self.items = None if items is None else put(items)

    def __call__(self, users: Tensor, n: int, generator: torch.Generator) -> Tensor:
        """Draw ``[B, n]`` items for ``[B]`` users."""
        if self.redraws is not None:
            return self._redrawn(self.redraws, users, n, generator)
        if on_triton(users):
            from itemfold.ops.triton.sampling import negatives

            uniform = uniform_numbers((len(users), n), generator)
            tables = self.keys, self.start, self.plain, self.total
            return negatives(users, uniform, tables, (self.unit, self.items), self.stride)
        row = users.unsqueeze(1)  # [B, 1]
        return self._found(row, uniform_integers(self.total[row], n, generator))

    def _redrawn(
        self, redraws: Redraws, users: Tensor, n: int, generator: torch.Generator
    ) -> Tensor:
        items, hit = redraws.draw(users, n, generator)
        flat = items.view(-1)
        row = users[hit // n].unsqueeze(1)
        flat[hit] = self._found(row, uniform_integers(self.plain[row], 1, generator)).squeeze(1)
        if self.items is not None:
            near = 1 - self.plain[users] / self.total[users].double()  # [B]
            coin = torch.rand(items.shape, generator=generator)
            chosen = torch.nonzero((coin < near.unsqueeze(1)).view(-1)).squeeze(1)
            row = users[chosen // n].unsqueeze(1)
            first = self.plain[row]
            draw = first + uniform_integers(self.total[row] - first, 1, generator)
            flat[chosen] = self._found(row, draw).squeeze(1)
        return items

    def _found(self, row: Tensor, draw: Tensor) -> Tensor:
        """The items of integers ``[B, n]`` in the users' ranges."""
        below = torch.searchsorted(self.keys, draw + row * self.stride, right=True)
        passed = below - self.start[row]
        if self.items is None or self.unit is None:
            return draw + passed
        interval = self.items[(below - 1).clamp_(min=0)].long()
        uniform = draw < self.plain[row]
        rank = torch.div(draw, self.unit[row], rounding_mode="floor")
        return torch.where(uniform, rank + passed, interval)


def uniform_integers(high: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Uniform int64 ``[B, n]`` in [0, high) for high ``[B, 1]``, far below 2^53."""
    return uniform_numbers((high.shape[0], n), generator).mul_(high).long()


def uniform_numbers(shape: tuple[int, int], generator: torch.Generator) -> Tensor:
    """Uniform float64 in [0, 1) on the device of the generator."""
    return torch.rand(shape, generator=generator, device=generator.device, dtype=torch.float64)


def _intervals(
    indptr: npt.NDArray[Any], weights: npt.NDArray[np.float64], length: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Start of each entry's interval if a row's weights divide `length` integers."""
    size = np.diff(indptr)
    some = size > 0
    starts = indptr[:-1][some]
    sums = np.add.reduceat(weights, starts) if len(weights) else weights
    # Each row of parts sums to one, so that the long cumulative sum keeps nine digits.
    part = weights / np.repeat(sums, size[some])
    before = np.cumsum(part) - part
    before -= np.repeat(before[starts], size[some])
    begin: npt.NDArray[np.int64] = np.clip(before, 0, 1) * np.repeat(length, size)
    return begin.astype(np.int64)


def bits_for(n: int) -> int:
    """Bits needed to number n things."""
    return max(int(n) - 1, 1).bit_length()


def check_negatives_left(mass: npt.NDArray[np.int64]) -> None:
    """Raise if a user has no item left to draw as a negative."""
    full = np.flatnonzero(mass <= 0)
    if len(full):
        raise ItemfoldError(
            f"the user in row {full[0]} has every item that could be drawn as a negative (so do "
            f"{len(full)} of {len(mass)} users); use another sampler or remove such users"
        )


def prepared(sampler: object, name: str) -> Any:
    """A table built by `prepare`; raise if `prepare` has not been called."""
    table = getattr(sampler, name, None)
    if table is None:
        raise ItemfoldError(f"{type(sampler).__name__} must be prepared first: call its 'prepare'")
    return table


# --- on a CPU: draw from all items, and again where a positive was hit ---------------------------
#
# A binary search for every draw suits a GPU; a CPU spends its time on mispredicted branches. Here a
# small table of marks shows for nearly every draw that it is not a positive of its user, and only
# the few marked ones are searched. The draws are as exact as `Draws`: an item drawn from the whole
# catalogue is kept unless it *is* a positive; then it is replaced by a draw from the others.

MARKS = 1 << 22  # entries of the table, which fits into a cache
FILLED = MARKS >> 5  # positives in the table at a time; with more, too many draws are searched
SPREAD = 0x9E3779B1 & (MARKS - 1) | 1  # odd, so that rows map to different positions
SEARCHED = 5  # marking this many positives costs as much as searching one draw


class Redraws:
    """Finds draws that are positives of their users, some users of a batch at a time."""

    def __init__(self, train: sp.csr_array) -> None:
        self.known = Positives(train)

    def draw(self, users: Tensor, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Uniform items ``[B, n]``, and the flat positions of those that are positives."""
        items = torch.randint(self.known.n_items, (len(users), n), generator=generator)
        starts = self.known.starts
        positives = int((starts[users + 1] - starts[users]).sum())
        if positives > SEARCHED * items.numel():  # few draws per row, as in BPR
            return items, self._positives_at(torch.arange(items.numel()), users, items)
        size = max(FILLED * len(users) // max(positives, 1), 1)  # users at a time
        hits = [
            self._hits(users[at : at + size], items[at : at + size]) + at * n
            for at in range(0, len(users), size)
        ]
        return items, torch.cat(hits) if hits else users.new_empty(0)

    def _hits(self, users: Tensor, items: Tensor) -> Tensor:
        """Flat positions of the items ``[B, n]`` that are positives of their users."""
        marks = torch.zeros(MARKS, dtype=torch.bool)
        start = self.known.starts[users].long()
        count = self.known.starts[users + 1].long() - start
        owner = torch.repeat_interleave(torch.arange(len(users)), count)
        place = torch.arange(len(owner)) - (count.cumsum(0) - count - start)[owner]
        positives = self.known.items.index_select(0, place) + owner * SPREAD
        marks.index_fill_(0, positives.bitwise_and_(MARKS - 1), True)
        shift = torch.arange(len(users)).unsqueeze(1) * SPREAD  # [B, 1]
        places = (items + shift).bitwise_and_(MARKS - 1).view(-1)
        marked = torch.nonzero(marks.index_select(0, places)).squeeze(1)
        return self._positives_at(marked, users, items)

    def _positives_at(self, places: Tensor, users: Tensor, items: Tensor) -> Tensor:
        """Those of some flat positions whose items ``[B, n]`` are positives, by binary search."""
        row, item = users[places // items.shape[1]], items.view(-1, 1)[places]
        return places[self.known.is_positive(row, item).squeeze(1)]
