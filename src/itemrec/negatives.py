"""Samplers that propose negative items: exact draws that never hit a training positive.

Every draw is one random number and one binary search, without rejection: a user's positives are
cut out of the distribution beforehand, so shapes are fixed and nothing waits for the device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemrec.bags import on_triton
from itemrec.binary import as_ones, row_of_entry
from itemrec.catalogue import All as All
from itemrec.draws import Draws, bits_for, prepared, refuse_full, uniform_integers
from itemrec.errors import ItemrecError
from itemrec.hard_negatives import Dynamic as Dynamic
from itemrec.hard_negatives import MixGCF as MixGCF
from itemrec.ppr import PPRScores, ppr
from itemrec.ppr_cache import cache_home
from itemrec.tempering import excess, rest_mean, row_sums, scale_free_temperature


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
        scale = 2.0 ** min(40, 61 - bits_for(n_users)) / share.sum()
        weight = np.ceil(share * scale).astype(np.int64)
        end = np.cumsum(weight)  # [n_items]
        own = weight[train.indices]  # [nnz]
        before = np.concatenate(([0], np.cumsum(own)))  # weight of the positives before an entry
        rows = row_of_entry(train)
        cut = before[train.indptr[:-1]]  # [n_users]
        mass = end[-1] - (before[train.indptr[1:]] - cut)
        refuse_full(mass)
        stride = int(end[-1]) + 1
        keys = end[train.indices] - own - (before[:-1] - cut[rows]) + rows * stride
        self._tables = tuple(torch.from_numpy(a).to(device) for a in (keys, before, cut, mass, end))
        self._stride = stride

    def __call__(self, users: Tensor, n: int, generator: torch.Generator) -> Tensor:
        """Draw ``[B, n]`` items for ``[B]`` users."""
        keys, before, cut, mass, end = prepared(self, "_tables")
        row = users.unsqueeze(1)  # [B, 1]
        draw = uniform_integers(
            mass[row], n, generator
        )  # [B, n] over the weight of the non-positives
        passed = torch.searchsorted(keys, draw + row * self._stride, right=True)
        draw += before[passed] - cut[row]  # past every positive before it
        return torch.searchsorted(end, draw, right=True)


@dataclass
class PPR:
    """By personalised PageRank: items near the user in the graph, so harder, are drawn more often.

    mode "temperature": p(i | u) ∝ exp(ppr_ui / T) over all items that are not positives of u;
        T = 1 is the paper's equation, which is uniform to within half a percent. exp(x) is
        1 + (exp(x) − 1): a uniform draw mixed with a sparse one over the stored entries.
        temperature "auto" sets each user's T so that the sparse part has the given share.
    mode "proportional": p(i | u) ∝ ppr_ui.
    mode "band": uniform over the items of PageRank rank band[0] (from 0) up to band[1], excluded.
    mode "avoid": uniform over all items but the `top` nearest, which are likely positives to come.

    share: how much of the draws follows the mode, the rest is uniform; None is all of them, and
    0.1 % with temperature "auto" (chosen on validation, see LOG.md). Only the `top` entries a user
    are stored; the others are drawn with their mean value.
    """

    mode: Literal["temperature", "proportional", "band", "avoid"] = "temperature"
    temperature: float | Literal["auto"] = "auto"
    share: float | None = None
    band: tuple[int, int] = (20, 200)
    restart: float = 0.15
    top: int = 256
    method: Literal["power", "push"] = "power"
    cache: bool = True

    def __post_init__(self) -> None:
        if self.mode not in (modes := ("temperature", "proportional", "band", "avoid")):
            raise ItemrecError(f"'mode' must be one of {', '.join(modes)}, got {self.mode!r}")
        if self.temperature != "auto" and not (
            isinstance(self.temperature, int | float) and self.temperature > 0
        ):
            raise ItemrecError(
                f"'temperature' must be a positive number or 'auto', got {self.temperature!r}"
            )
        if self.share is not None and not 0 <= self.share <= 1:
            raise ItemrecError(f"'share' must be in [0, 1], got {self.share}")
        if len(self.band) != 2 or not 0 <= self.band[0] < self.band[1]:
            raise ItemrecError(f"'band' must be two ranks 0 <= low < high, got {self.band}")
        if self.mode == "band" and self.band[1] > self.top:
            raise ItemrecError(f"'top' must reach the end of the band {self.band}, got {self.top}")

    def prepare(
        self, train: sp.csr_array, device: Any = "cpu", generator: torch.Generator | None = None
    ) -> None:
        """Compute the PageRank (or find it in the cache) and the tables to draw from."""
        # A small graph takes less time than a file; a large one is worth keeping.
        cache = cache_home() if self.cache and train.nnz >= 100_000 else None
        scores = ppr(
            train,
            restart=self.restart,
            method=self.method,
            top=self.top,
            device=device,
            cache=cache,
        )
        if self.mode == "avoid":
            self._draws = Draws(as_ones(train + scores.matrix()), device)
            return
        weights, share = self.mixture(train, scores)
        sparse = (scores.indptr, scores.indices, weights)
        self._draws = Draws(train, device, sparse=sparse, share=share)

    def mixture(
        self, train: sp.csr_array, scores: PPRScores
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Weights of the stored entries ``[stored]`` and their share of the draws ``[n_users]``."""
        size = np.diff(scores.indptr)
        free = train.shape[1] - np.diff(train.indptr).astype(np.int64)  # [n_users]
        if self.mode == "band":
            rank = np.arange(len(scores.values)) - np.repeat(scores.indptr[:-1], size)
            weights = ((rank >= self.band[0]) & (rank < self.band[1])).astype(np.float64)
            share = (row_sums(scores.indptr, weights) > 0).astype(np.float64)
            return weights, share * (1 if self.share is None else self.share)
        rest = rest_mean(scores, free)
        above = np.maximum(scores.values - np.repeat(rest, size), 0)
        if self.mode == "proportional":
            near = row_sums(scores.indptr, above)
            share = near / np.maximum(near + rest * free, 1e-300)
            return above, share * (1 if self.share is None else self.share)
        if self.temperature == "auto":
            part = 0.001 if self.share is None else self.share
            heat = scale_free_temperature(scores.indptr, above, free, part)
            return excess(scores.indptr, above, heat, free)
        heat = np.full(len(scores), float(self.temperature))
        weights, share = excess(scores.indptr, above, heat, free)
        return weights, share * (1 if self.share is None else self.share)

    def __call__(self, users: Tensor, n: int, generator: torch.Generator) -> Tensor:
        """Draw ``[B, n]`` items for ``[B]`` users."""
        draws: Draws = prepared(self, "_draws")
        return draws(users, n, generator)


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
        self.starts = torch.from_numpy(train.indptr.astype(np.int32)).to(device)
        self.items = torch.from_numpy(train.indices.astype(np.int32)).to(device)

    def is_positive(self, users: Tensor, items: Tensor) -> Tensor:
        """Users ``[B]`` against their items ``[B, N]`` or one shared list ``[N]``: bool [B, N]."""
        if items.dim() == 1 and on_triton(items):
            from itemrec.kernels import contains

            return contains(self.starts, self.items, users, items)
        if items.dim() == 1:
            return self._among(users, items)
        wanted = users.unsqueeze(1) * self.n_items + items  # [B, N]
        return self.keys[torch.searchsorted(self.keys, wanted)] == wanted

    def _among(self, users: Tensor, items: Tensor) -> Tensor:
        """Histories are marked among the distinct items, [B, D], instead of searched N times."""
        distinct, place = torch.unique(items, return_inverse=True)  # [D], [N]
        column = items.new_full((self.n_items,), len(distinct))  # of an item; D where there is none
        column[distinct] = torch.arange(len(distinct), device=items.device)
        start, length = self.starts[users], self.starts[users + 1] - self.starts[users]
        row = torch.repeat_interleave(length)  # [E], entries of all histories
        entry = torch.arange(len(row), device=row.device) - (length.cumsum(0) - length)[row]
        taken = torch.zeros(len(users), len(distinct) + 1, dtype=torch.bool, device=items.device)
        taken[row, column[self.items[start[row] + entry].long()]] = True
        return taken[:, place]


NEGATIVES: dict[str, type[Any]] = {
    "uniform": Uniform,
    "popularity": Popularity,
    "ppr": PPR,
    "in-batch": InBatch,
    "dynamic": Dynamic,
    "mixgcf": MixGCF,
    "all": All,
}
