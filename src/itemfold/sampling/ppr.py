"""Negatives drawn by personalised PageRank (the ITEM paper's equation 5, with a temperature).

With π_u the PageRank of a walk that restarts at user u, and N_u the items that u has not interacted
with:

    p(i | u) = exp(π_ui / T) / Σ_{j∈N_u} exp(π_uj / T)        i ∈ N_u

`reference_distribution` is this definition. It takes a dense matrix; `PPR` draws from the same
distribution with the largest entries of π_u alone. An entry x above the rest has the weight
``exp(x / T) = 1 + (exp(x / T) − 1)``, so p is a mixture of a uniform draw over N_u and a sparse one
over the stored entries, which `Draws` makes with one binary search. A test keeps the two equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.data.csr import as_ones
from itemfold.errors import ItemfoldError
from itemfold.graph.ppr import PPRScores, personalised_pagerank
from itemfold.graph.ppr_cache import cache_home
from itemfold.sampling.base import DrawnNegatives
from itemfold.sampling.exact import Draws, prepared

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def reference_distribution(
    train: sp.csr_array, pagerank: Floats, temperature: float = 1.0
) -> Floats:
    """p(i | u) of all users and items, `[users, items]`; 0 for the items of the user.

    Args:
        train: Training interactions, `[users, items]`.
        pagerank: Personalised PageRank of every item for every user, `[users, items]`.
        temperature: T; 1 in the paper.

    Examples:
        >>> train = sp.csr_array(np.array([[1.0, 0.0, 0.0]]))
        >>> reference_distribution(train, np.array([[0.5, 0.2, 0.2 + np.log(3)]])).round(2)
        array([[0.  , 0.25, 0.75]])
    """
    logits = np.where(train.toarray() != 0, -np.inf, pagerank / temperature)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))  # no overflow
    out: Floats = weights / weights.sum(axis=1, keepdims=True)
    return out


@dataclass
class PPR(DrawnNegatives):
    """Draws by personalised PageRank: items near the user in the graph are harder and more likely.

    The modes:

    - "temperature": `p(i | u) ∝ exp(ppr_ui / T)` over all items that are not positives of u. T = 1
      is the paper's equation, which is uniform to within half a percent.
    - "proportional": `p(i | u) ∝ ppr_ui`.
    - "band": uniform over the items of PageRank rank `band[0]` (from 0) up to `band[1]`, excluded.
    - "avoid": uniform over all items except the `top` nearest, which are likely future positives.

    Args:
        mode: One of the four.
        temperature: T, or "auto", which sets each user's T so that the sparse part has the given
            share.
        share: Fraction of the draws that follow the mode, the rest is uniform; None means all of
            them, or 0.1 % with temperature "auto" (chosen on validation:
            docs/research/negatives.md).
        band: Ranks of the mode "band".
        restart: Restart probability of the walk.
        top: Entries stored for each user; the others are drawn by their mean value.
        method: "power" iteration, or "push", which is local.
        cache: Whether to store the PageRank of a large graph in the user's cache.

    Examples:
        >>> from itemfold.negatives import PPR
        >>> import itemfold as ir
        >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> model, sampler = ir.models.LightGCN(dim=8), PPR(mode="band", band=(5, 20))
        >>> run = ir.train(split, model, negatives=sampler, epochs=2)
        >>> run.config["negatives"]["mode"]
        'band'
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
            raise ItemfoldError(f"'mode' must be one of {', '.join(modes)}, got {self.mode!r}")
        if self.temperature != "auto" and not (
            isinstance(self.temperature, int | float) and self.temperature > 0
        ):
            raise ItemfoldError(
                f"'temperature' must be a positive number or 'auto', got {self.temperature!r}"
            )
        if self.share is not None and not 0 <= self.share <= 1:
            raise ItemfoldError(f"'share' must be in [0, 1], got {self.share}")
        if len(self.band) != 2 or not 0 <= self.band[0] < self.band[1]:
            raise ItemfoldError(f"'band' must be two ranks 0 <= low < high, got {self.band}")
        if self.mode == "band" and self.band[1] > self.top:
            raise ItemfoldError(f"'top' must reach the end of the band {self.band}, got {self.top}")

    def prepare(self, train: sp.csr_array, device: Any = "cpu") -> None:
        """Compute the PageRank (or find it in the cache) and the tables to draw from."""
        # A small graph is computed faster than read from a file; a large one is worth caching.
        cache = cache_home() if self.cache and train.nnz >= 100_000 else None
        scores = personalised_pagerank(
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

    def mixture(self, train: sp.csr_array, scores: PPRScores) -> tuple[Floats, Floats]:
        """Weights of the stored entries ``[stored]`` and their share of the draws ``[n_users]``.

        p(i | u) is (1 − share_u) / |N_u|, plus share_u · weight_ui / Σ_j weight_uj for a stored i.
        """
        size = np.diff(scores.indptr)
        most = 1.0 if self.share is None else self.share
        free = train.shape[1] - np.diff(train.indptr).astype(np.int64)  # [n_users]
        if self.mode == "band":
            rank = np.arange(len(scores.values)) - np.repeat(scores.indptr[:-1], size)
            weights = ((rank >= self.band[0]) & (rank < self.band[1])).astype(np.float64)
            share = (sum_rows(scores.indptr, weights) > 0).astype(np.float64)
            return weights, share * most
        left = free - size  # items that are not stored; each has their mean PageRank
        rest = np.where(left > 0, scores.dropped / np.maximum(left, 1), 0.0)
        above = np.maximum(scores.values - np.repeat(rest, size), 0)
        if self.mode == "proportional":
            near = sum_rows(scores.indptr, above)
            return above, near / np.maximum(near + rest * free, 1e-300) * most
        if self.temperature == "auto":
            part = 0.001 if self.share is None else self.share
            heat = scale_free_temperature(scores.indptr, above, free, part)
            return excess(scores.indptr, above, heat, free)
        heat = np.full(len(scores), float(self.temperature))
        weights, share = excess(scores.indptr, above, heat, free)
        return weights, share * most

    def __call__(self, users: Tensor, n: int, generator: torch.Generator) -> Tensor:
        """Draw ``[B, n]`` items for ``[B]`` users."""
        draws: Draws = prepared(self, "_draws")
        return draws(users, n, generator)


def excess(indptr: Ints, values: Floats, temperature: Floats, free: Ints) -> tuple[Floats, Floats]:
    """exp(value / T) − 1, scaled to a maximum of 1 per row, and its share of the draws.

    Each of the ``free`` items of N_u adds one to the total mass before scaling.
    """
    x = values / np.repeat(temperature, np.diff(indptr))
    with np.errstate(divide="ignore"):  # a value of 0 has no excess: log 0
        log = x + np.log(-np.expm1(-x))
    peak = max_rows(indptr, log)  # [n_users]
    weights = np.exp(log - np.repeat(peak, np.diff(indptr)))
    mass = sum_rows(indptr, weights)
    return weights, mass / (mass + free * np.exp(-np.maximum(peak, -700.0)))


def scale_free_temperature(indptr: Ints, values: Floats, free: Ints, share: float) -> Floats:
    """The T of every user ``[n_users]`` at which Σ_i (exp(x_i / T) − 1) has the given share.

    The sparse part then has mass share / (1 − share) · free, for any size and density of the data
    and any number of items of the user. The mass falls with T; with n entries and the largest x it
    is between exp(x/T) − 1 and n times that, which brackets T for a bisection.
    """
    if not 0 < share < 1:
        raise ItemfoldError(f"'share' must be in (0, 1) with temperature 'auto', got {share}")
    size = np.diff(indptr)
    target = share / (1 - share) * free  # [n_users]
    largest = np.maximum(max_rows(indptr, values), 1e-300)
    low = np.log1p(target / np.maximum(size, 1)) / largest  # of 1 / T
    high = np.log1p(target) / largest
    for _ in range(30):
        middle = (low + high) / 2
        mass = sum_rows(indptr, np.expm1(values * np.repeat(middle, size)))
        low, high = np.where(mass < target, middle, low), np.where(mass < target, high, middle)
    heat: Floats = 1 / np.maximum((low + high) / 2, 1e-300)
    return heat


def sum_rows(indptr: Ints, values: Floats) -> Floats:
    """Sum of every CSR row, 0 for an empty one."""
    return _reduce_rows(np.add, indptr, values)


def max_rows(indptr: Ints, values: Floats) -> Floats:
    """Largest value of every CSR row, 0 for an empty one or one without a finite value."""
    peaks = _reduce_rows(np.maximum, indptr, values)
    return np.where(np.isfinite(peaks), peaks, 0.0)


def _reduce_rows(how: np.ufunc, indptr: Ints, values: Floats) -> Floats:
    out = np.zeros(len(indptr) - 1)
    some = np.diff(indptr) > 0
    if some.any():
        out[some] = how.reduceat(values, indptr[:-1][some])
    return out
