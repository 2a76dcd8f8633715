"""Samplers that propose negative items: exact draws that never hit a training positive.

Every draw is one random number and one binary search, without rejection: a user's positives are
cut out of the distribution beforehand, so shapes are fixed and nothing waits for the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemrec.binary import as_ones, row_of_entry
from itemrec.errors import ItemrecError


class Sampler(Protocol):
    """What the trainer knows of a sampler; its dataclass fields are its settings."""

    def prepare(
        self, train: sp.csr_array, device: Any, generator: torch.Generator | None = None
    ) -> None:
        """Build the tables for the training interactions ``[n_users, n_items]`` on a device."""

    def __call__(self, users: Tensor, n: int, generator: torch.Generator) -> Tensor:
        """Item ids ``[B, n]`` (int64), none of them a training positive of its user."""


@dataclass
class Uniform:
    """Every item that is not a training positive of the user, with equal chance."""

    def prepare(
        self, train: sp.csr_array, device: Any = "cpu", generator: torch.Generator | None = None
    ) -> None:
        """Cut every user's positives out of the range of items."""
        self._draws = Draws(train, device)

    def __call__(self, users: Tensor, n: int, generator: torch.Generator) -> Tensor:
        """Draw ``[B, n]`` items for ``[B]`` users."""
        draws: Draws = prepared(self, "_draws")
        return draws(users, n, generator)


@dataclass
class Popularity:
    """In proportion to an item's number of training interactions to the given power.

    p(i | u) = d_i^power / Σ_{j ∉ u} d_j^power; items without an interaction are drawn only with
    power 0, which is Uniform.
    """

    power: float = 0.75

    def __post_init__(self) -> None:
        if not self.power >= 0:
            raise ItemrecError(f"'power' must be a number of at least 0, got {self.power}")

    def prepare(
        self, train: sp.csr_array, device: Any = "cpu", generator: torch.Generator | None = None
    ) -> None:
        """Cumulate integer weights over the catalogue and note where each positive cuts them."""
        train = as_ones(train)
        n_users, n_items = train.shape
        degree = np.bincount(train.indices, minlength=n_items).astype(np.float64)
        share = degree**self.power
        if not share.any():
            raise ItemrecError("popularity negatives need training interactions, got none")
        # Integers make cutting out exact; their sum leaves room for a block of keys a user.
        scale = 2.0 ** min(40, 61 - _log2(n_users)) / share.sum()
        weight = np.ceil(share * scale).astype(np.int64)
        end = np.cumsum(weight)  # [n_items]
        own = weight[train.indices]  # [nnz]
        before = np.concatenate(([0], np.cumsum(own)))  # weight of the positives before an entry
        rows = row_of_entry(train)
        cut = before[train.indptr[:-1]]  # [n_users]
        mass = end[-1] - (before[train.indptr[1:]] - cut)
        _refuse_full(mass)
        stride = int(end[-1]) + 1
        keys = end[train.indices] - own - (before[:-1] - cut[rows]) + rows * stride
        self._tables = tuple(torch.from_numpy(a).to(device) for a in (keys, before, cut, mass, end))
        self._stride = stride

    def __call__(self, users: Tensor, n: int, generator: torch.Generator) -> Tensor:
        """Draw ``[B, n]`` items for ``[B]`` users."""
        keys, before, cut, mass, end = prepared(self, "_tables")
        row = users.unsqueeze(1)  # [B, 1]
        draw = _integers(mass[row], n, generator)  # [B, n] over the weight of the non-positives
        passed = torch.searchsorted(keys, draw + row * self._stride, right=True)
        draw += before[passed] - cut[row]  # past every positive before it
        return torch.searchsorted(end, draw, right=True)


@dataclass
class InBatch:
    """The positives of the whole batch are the negatives of each of its users.

    The trainer asks for them once a step (`shared`) and leaves a user's own positives out
    (`keep`); there is nothing to draw.
    """

    def prepare(
        self, train: sp.csr_array, device: Any = "cpu", generator: torch.Generator | None = None
    ) -> None:
        """Remember the training positives, to leave them out."""
        self.positives = Positives(train, device)

    def shared(self, positives: Tensor, pos_mask: Tensor) -> Tensor:
        """The batch's positives ``[B, P]`` as one list ``[B · P]``, padding included."""
        return positives.reshape(-1)

    def keep(self, users: Tensor, items: Tensor, pos_mask: Tensor) -> Tensor:
        """Which of the shared items are negatives of which user, bool ``[B, B · P]``."""
        positives: Positives = prepared(self, "positives")
        return pos_mask.reshape(1, -1) & ~positives.is_positive(users, items)

    def __call__(self, users: Tensor, n: int, generator: torch.Generator) -> Tensor:
        """Refused: the negatives are those of the batch, see `shared`."""
        raise ItemrecError("in-batch negatives are shared, not drawn: ask 'shared' for them")


class Positives:
    """Looks up whether an item is a training positive: one sorted table of user–item keys."""

    def __init__(self, train: sp.csr_array, device: Any = "cpu") -> None:
        train = as_ones(train)
        self.n_items = int(train.shape[1])
        keys = row_of_entry(train) * self.n_items + train.indices
        # a last key that nothing equals: a position found is always one that exists
        self.keys = torch.from_numpy(np.append(keys, np.iinfo(np.int64).max)).to(device)

    def is_positive(self, users: Tensor, items: Tensor) -> Tensor:
        """Users ``[B]`` against their items ``[B, N]`` or one shared list ``[N]``: bool [B, N]."""
        wanted = users.unsqueeze(1) * self.n_items + items  # [B, N]
        return self.keys[torch.searchsorted(self.keys, wanted)] == wanted


class Draws:
    """A mixture of a uniform and a sparse part for every user, drawn by one binary search.

    p(i | u) = (1 − share_u) / |non-positives of u| + share_u · weight_ui / Σ_j weight_uj

    for every item i that is not a positive of u. A user's distribution is a range of integers:
    `unit` of them for each non-positive item in order, then a stretch for each sparse entry. The
    keys of a user are the places where a positive was cut out of the first part (in units), then
    the beginnings of the stretches; the number of keys at or below a draw tells how many positives
    it passed, or which stretch it fell into. Rounding is below 1e-9 of a user's total.
    """

    def __init__(
        self,
        train: sp.csr_array,
        device: Any = "cpu",
        *,
        sparse: tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.float64]] | None = None,
        share: npt.NDArray[np.float64] | None = None,
    ) -> None:
        """`sparse`: (indptr, items, weights > 0) without positives; `share`: [n_users] in [0, 1].

        A user without sparse entries draws uniformly, whatever its share.
        """
        train = as_ones(train)
        n_users, n_items = train.shape
        size = np.diff(train.indptr).astype(np.int64)
        free = n_items - size  # [n_users] non-positive items
        _refuse_full(free)
        rows = row_of_entry(train)
        key = train.indices - (np.arange(train.nnz) - train.indptr[rows])  # non-positives before it
        if sparse is None or share is None:
            self.stride = n_items + 1
            self._store(device, key + rows * self.stride, train.indptr, free, free)
            return
        indptr, items, weights = sparse
        self.stride = 1 << min(40, 62 - _log2(n_users))
        share = np.where(np.diff(indptr) > 0, share, 0.0)
        unit = ((self.stride - 1) * (1 - share) / free).astype(np.int64)  # [n_users]
        plain = unit * free
        owner = np.repeat(np.arange(n_users), np.diff(indptr))
        total = np.where(share > 0, self.stride - 1, plain)
        begin = plain[owner] + _stretches(indptr, weights, total - plain)
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

        self.keys, self.start = put(keys), put(start[:-1].astype(np.int64))
        self.plain, self.total = put(plain), put(total)
        self.unit = None if unit is None else put(np.maximum(unit, 1))
        self.items = None if items is None else put(items)

    def __call__(self, users: Tensor, n: int, generator: torch.Generator) -> Tensor:
        """Draw ``[B, n]`` items for ``[B]`` users."""
        row = users.unsqueeze(1)  # [B, 1]
        draw = _integers(self.total[row], n, generator)  # [B, n]
        below = torch.searchsorted(self.keys, draw + row * self.stride, right=True)
        passed = below - self.start[row]
        if self.items is None or self.unit is None:
            return draw + passed
        stretch = self.items[(below - 1).clamp_(min=0)].long()
        uniform = draw < self.plain[row]
        rank = torch.div(draw, self.unit[row], rounding_mode="floor")
        return torch.where(uniform, rank + passed, stretch)


def prepared(sampler: object, name: str) -> Any:
    """A table that `prepare` builds, or one sentence that it has not been called."""
    table = getattr(sampler, name, None)
    if table is None:
        raise ItemrecError(f"{type(sampler).__name__} must be prepared before it draws")
    return table


NEGATIVES: dict[str, type[Any]] = {
    "uniform": Uniform,
    "popularity": Popularity,
    "in-batch": InBatch,
}


def _integers(high: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Uniform int64 ``[B, n]`` in [0, high) for high ``[B, 1]``, far below 2^53."""
    shape = (high.shape[0], n)
    uniform = torch.rand(shape, generator=generator, device=high.device, dtype=torch.float64)
    return uniform.mul_(high).long()


def _stretches(
    indptr: npt.NDArray[Any], weights: npt.NDArray[np.float64], length: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Where each entry's stretch begins when a row's weights share `length` integers."""
    size = np.diff(indptr)
    some = size > 0
    starts = indptr[:-1][some]
    sums = np.add.reduceat(weights, starts) if len(weights) else weights
    part = weights / np.repeat(sums, size[some])  # one a row: the long sum keeps nine digits
    before = np.cumsum(part) - part
    before -= np.repeat(before[starts], size[some])
    begin: npt.NDArray[np.int64] = np.clip(before, 0, 1) * np.repeat(length, size)
    return begin.astype(np.int64)


def _log2(n: int) -> int:
    return max(int(n) - 1, 1).bit_length()


def _refuse_full(mass: npt.NDArray[np.int64]) -> None:
    full = np.flatnonzero(mass <= 0)
    if len(full):
        raise ItemrecError(
            f"the user in row {full[0]} has every item that could be drawn as a negative "
            f"({len(full)} such users)"
        )
