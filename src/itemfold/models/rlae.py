"""RLAE: linear item–item weights with a relaxed diagonal, of which EASE is a special case.

Moon et al., "It's Enough: Relaxing Diagonal Constraints in Linear Autoencoders for Recommendation",
SIGIR 2023; the normalisations by popularity are those of Park et al., "Why is Normalization
Necessary for Linear Recommenders?", SIGIR 2025. With interactions X and degrees D_U, D_I:

    G = Xᵀ D_U^−b X       λ_j = λ + p/(1−p)·G_jj       P = (G + diag λ_j)⁻¹
    B_ij = −P_ij·max(λ_j, (1−ξ)/P_jj) for i ≠ j        W = D_I^a B D_I^−a

Weights are the entries of X, and degrees are sums of weights. In the sparse form each column of P
is solved on the nearest items of its item alone (`ridge_problem.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.environment import check_square_fits, memory_of
from itemfold.models.ease import FORMS, NEIGHBOURS, Form, wants_sparse
from itemfold.models.item_item import SparseWeights, row_sums
from itemfold.models.ridge_problem import Floats, RidgeProblem
from itemfold.ops.segment import dense_rows
from itemfold.validation import (
    at_least_zero,
    one_of,
    positive,
    positive_integers,
    share_below_one,
)

# Settings are compared on the most popular items. An inverse of 2,048 takes an eighth of that of
# 4,096. With all users both chose alike on electronic, food and Yelp2018; on ML-1M the former chose
# settings that are .3 % worse on validation.
TRIED_ITEMS = {"cpu": 2048, "cuda": 8192}
STORED = 2**23  # weights that a part of a hybrid stores at most, but at least KEPT for each item
KEPT = 200
ALL = 2**27  # weights up to which all are stored, 1 GiB: 11,585 items
SHARE = 8  # all are stored if they take at most an eighth of the memory
COLUMNS = 1024  # columns pruned at a time


# What is tried on validation if 'l2' is not given, the typical settings first; settings of the same
# `user_power` share a Gram matrix.
TRIED: list[dict[str, float]] = [
    {"l2": l2, "item_power": a, "user_power": b, "dropout": p, "relax": relax}
    for a, b, p, relax, several in (
        (0.2, 0.3, 0.5, 0.1, (50.0, 5.0, 10.0, 20.0, 100.0, 200.0)),
        (0.3, 0.3, 0.7, 0.1, (10.0, 50.0)),
        (0.1, 0.3, 0.5, 0.0, (20.0, 100.0)),
        (0.0, 0.0, 0.0, 0.0, (200.0, 1000.0)),  # EASE
    )
    for l2 in several
]
TYPICAL = TRIED[0]  # without validation data


class RLAE(SparseWeights):
    """Linear item–item weights in closed form, with a relaxed diagonal (SIGIR 2023).

    With only `l2` it is EASE, with `l2` and `dropout` EDLAE. Without `l2` a dozen settings are
    tried on validation.

    All weights are stored, 8 bytes each, up to 11,585 items or an eighth of the memory. Above, and
    as a part of a hybrid, only the largest of each item are: 2²³ in all, but at least 200 for each
    item. The run has a note if weights were dropped, and trials are scored without as many.

    Args:
        l2: Regularisation λ; default: all settings but `keep` are chosen on validation.
        item_power: Exponent a of the normalisation by item popularity.
        user_power: Exponent b of the normalisation by the length of histories.
        dropout: Share p of the input that is dropped in expectation, below 1.
        relax: How far the diagonal may be above 0, between 0 and 1.
        keep: Weights to store for each item; default: all if memory allows, see above.
        items: How many items have weights, the most popular ones; default: all. In the dense form
            the cost grows with the third power of it.
        form: "dense" to invert one items × items matrix, "sparse" to solve each item on its nearest
            items; "auto" is sparse if the dense matrix takes more than half of the memory.
        neighbours: Items that each item's weights come from in the sparse form.

    Raises:
        ItemfoldError: A setting is invalid.

    Examples:
        >>> import itemfold as ir
        >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> run = ir.train(split, ir.models.RLAE())
        >>> run.model.l2 is None, len(run.metrics["trials"])
        (False, 12)
    """

    paper = "It's Enough: Relaxing Diagonal Constraints in Linear Autoencoders for Recommendation"
    year = 2023
    compact = False  # a part of a hybrid, which is small and quick rather than exact

    def __init__(
        self,
        l2: float | None = None,
        item_power: float = 0.0,
        user_power: float = 0.0,
        dropout: float = 0.0,
        relax: float = 0.0,
        keep: int | None = None,
        items: int | None = None,
        form: Form = "auto",
        neighbours: int = NEIGHBOURS,
    ) -> None:
        super().__init__()
        if l2 is not None:
            positive(l2=l2)
        one_of("form", form, FORMS)
        positive_integers(neighbours=neighbours)
        self.form, self.neighbours = form, neighbours
        at_least_zero(item_power=item_power, user_power=user_power)
        share_below_one(dropout=dropout, relax=relax)
        for name, value in (("keep", keep), ("items", items)):
            if value is not None:
                positive_integers(**{name: value})
        self.l2, self.item_power, self.user_power = l2, item_power, user_power
        self.dropout, self.relax, self.kept, self.items = dropout, relax, keep, items
        self._dense: tuple[Tensor, Tensor | None] | None = None  # weights of a trial

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Check the memory that `solve` will need."""
        super().setup(train, inductive=inductive, generator=generator)
        self._check_memory()

    def solve(self, train: sp.csr_array) -> None:
        """Compute one items × items inverse, and store the largest weights, or solve each item."""
        self._check_memory()
        if self.l2 is None:
            self.apply_settings(TYPICAL)
        part, items = self.covered(train)
        problem = self.problem(part)
        ridge = self.ridge_of(problem)
        if self.is_sparse:
            self._fit_neighbours(problem, ridge, part, items)
            return
        self.take_inverse(problem.inverse(ridge, self.watch), ridge, part, items)

    def trials(self, train: sp.csr_array) -> Iterator[dict[str, Any]]:
        """The settings of `TRIED` on the most popular items; a Gram matrix is used many times."""
        if self.l2 is not None:
            return
        most = TRIED_ITEMS["cuda" if self.device.type == "cuda" else "cpu"]
        if 2 * train.shape[0] < most and self.device.type == "cpu":
            most *= 2  # with few users an inverse takes less, and lucky settings are more likely
        most = min(most, self.items or self.n_items)
        part, items = self._popular(train, most)
        for _, options in groupby(TRIED, key=lambda option: option["user_power"]):
            problem = None
            for option in options:
                self.apply_settings(option)
                problem = problem or self.problem(part)
                ridge = self.ridge_of(problem)
                inverse = problem.inverse(ridge, self.watch, again=True)
                self._dense = self._as_stored(self._weights(inverse, ridge, part)), items
                yield option
        self._dense = None

    def typical_settings(self) -> dict[str, Any]:
        """The first settings of `TRIED`, unless 'l2' is given."""
        return dict(TYPICAL) if self.l2 is None else {}

    def apply_settings(self, settings: Mapping[str, float]) -> None:
        """Continue with other settings, one of those tried or the typical ones."""
        for name, value in settings.items():
            setattr(self, name, value)
        self.settings = {**self.settings, **settings}

    @torch.no_grad()
    def scores(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
        """A sparse product; during trials one with dense weights, which are not worth storing."""
        if self._dense is None:
            return super().scores(history, users)
        weights, items = self._dense
        part = history if items is None else sp.csr_array(history[:, items.numpy()])
        if weights.is_cuda:
            found = dense_rows(part, weights.device) @ weights
        else:
            found = row_sums(part, weights)
        if items is None:
            return found
        out = found.new_full(history.shape, -torch.inf)
        return out.index_copy_(1, items.to(weights.device), found)

    @property
    def is_sparse(self) -> bool:
        """Whether each item is solved on its nearest items."""
        return wants_sparse(self.form, self._covers, self.device)

    @property
    def _covers(self) -> int:
        """How many items have weights."""
        return min(self.items or self.n_items, self.n_items)

    def _check_memory(self) -> None:
        if not self.is_sparse:
            check_square_fits("rlae", self._covers, self.device)

    def _fit_neighbours(
        self, problem: RidgeProblem, ridge: Floats, part: sp.csr_array, items: Tensor | None
    ) -> None:
        """``B_ij = w_ij · max(λ_j P_jj, 1−ξ)`` with the regressions w."""
        sources, weights, rest = problem.columns(ridge, self.neighbours, self.watch)
        least = torch.from_numpy(ridge.astype(np.float32)) / rest
        weights *= least.clamp(min=1 - self.relax).unsqueeze(1)
        if self.item_power:
            power = self._power(part)
            weights *= power[sources]
            weights /= power.unsqueeze(1)
        if self.kept is not None and self.kept < weights.shape[1]:
            largest = weights.abs().topk(self.kept, dim=1, sorted=False).indices
            sources, weights = sources.gather(1, largest), weights.gather(1, largest)
        self.keep([(0, sources, weights)], items)

    def _popular(self, train: sp.csr_array, most: int | None) -> tuple[sp.csr_array, Tensor | None]:
        """The interactions with the most popular items, and which these are (None: all)."""
        if most is None or most >= self.n_items:
            return train, None
        degree = np.bincount(train.indices, minlength=self.n_items)
        items = np.sort(np.argsort(-degree, kind="stable")[:most])
        return sp.csr_array(train[:, items]), torch.from_numpy(items)

    def problem(self, part: sp.csr_array) -> RidgeProblem:
        """The matrix to invert for the interactions with the covered items."""
        return RidgeProblem(part, self.user_power, self.device)

    def ridge_of(self, problem: RidgeProblem) -> Floats:
        """λ_j of every covered item."""
        assert self.l2 is not None
        return self.l2 + self.dropout / (1 - self.dropout) * problem.squares

    def _weights(self, inverse: Tensor, ridge: Floats, train: sp.csr_array) -> Tensor:
        """W from P and λ, in the memory of P."""
        least = torch.from_numpy(ridge).to(inverse)
        scale = torch.maximum(least, (1 - self.relax) / inverse.diagonal())
        weights = inverse.mul_(-scale)
        weights.fill_diagonal_(0)
        if self.item_power:
            power = self._power(train).to(weights.device)
            weights.mul_(power.unsqueeze(1)).div_(power)
        return weights

    def _power(self, train: sp.csr_array) -> Tensor:
        """The diagonal of D_I^a."""
        total = np.bincount(train.indices, train.data, train.shape[1])
        degree = np.where(total > 0, total, 1)
        power: Tensor = torch.from_numpy(degree.astype(np.float32)) ** self.item_power
        return power

    def covered(self, train: sp.csr_array) -> tuple[sp.csr_array, Tensor | None]:
        """The interactions with the items that have weights, and which these are (None: all)."""
        return self._popular(train, self.items)

    def take_inverse(
        self, inverse: Tensor, ridge: Floats, part: sp.csr_array, items: Tensor | None
    ) -> None:
        """Store the weights that follow from P and λ of the covered items."""
        self._store(self._weights(inverse, ridge, part), items)

    @property
    def has_all_weights(self) -> bool:
        """Whether no weight was dropped, so that P can be recovered from them."""
        n = self.n_items
        if self._covers < n or self.is_sparse or self._stored(n) < n:
            return False
        stored = self._buffers.get("weight_values")
        # a run of release 0.2 with so many items has no more than these
        return stored is None or self._limit(n) == n or len(stored) > self._limit(n) * n

    def dense_weights(self, train: sp.csr_array) -> Tensor:
        """B for the interactions that it was fitted to, ``[items, items]``."""
        weights = torch.from_numpy(self._matrix().toarray())
        power = self._power(train)[: self.n_items]
        return weights.mul_(power).div_(power.unsqueeze(1))

    def _stored(self, n: int) -> int:
        """How many weights of each of n items are stored."""
        if self.kept is not None:
            return min(self.kept, n)
        memory = memory_of(self.device)
        if not self.compact and n * n <= ALL and 8 * n * n * SHARE <= memory:
            return n
        return self._limit(n)

    def _limit(self, n: int) -> int:
        """How many weights of each of n items are stored if not all can be."""
        return min(max(KEPT, STORED // max(n, 1)), n)

    def _as_stored(self, weights: Tensor) -> Tensor:
        """The weights of a trial, with the share of them that will be stored, in their memory.

        Parts of a hybrid are tried with all weights: dropping them would take most of the time of a
        trial, and the blend is chosen with what is stored.
        """
        covers, n = self._covers, len(weights)
        if self.compact or self.is_sparse:
            return weights
        most = max(round(n * self._stored(covers) / max(covers, 1)), 1)
        return weights if most >= n else drop_smallest(weights, most)

    def _store(self, weights: Tensor, items: Tensor | None = None) -> None:
        """Keep the largest weights of each column, by absolute value."""
        n = len(weights)
        most = self._stored(n)
        if most < n:
            self.fit_notes = (
                f"rlae stores the {most:,} largest of the {n - 1:,} weights of each item; "
                f"model.keep={n - 1} stores all, {8 * n * n / 2**30:,.1f} GiB",
            )
        if items is None and 2 * most > n:  # faster to drop the smallest
            self.keep_all(drop_smallest(weights, most))
            return

        def blocks() -> Iterator[tuple[int, Tensor, Tensor]]:
            for start in range(0, n, COLUMNS):
                columns = weights[:, start : start + COLUMNS].T.contiguous()  # [b, items]
                sources = columns.abs().topk(most, dim=1, sorted=False).indices
                yield start, sources.cpu(), columns.gather(1, sources).cpu()

        self.keep(blocks(), items)


def drop_smallest(weights: Tensor, most: int) -> Tensor:
    """Set all but the largest ``most`` weights of each column to 0, in their memory."""
    n = len(weights)
    for start in range(0, n if most < n else 0, COLUMNS):
        columns = weights[:, start : start + COLUMNS]
        smallest = columns.T.abs().topk(n - most, dim=1, largest=False, sorted=False)
        columns.scatter_(0, smallest.indices.T, 0)
    return weights
