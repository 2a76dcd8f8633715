"""EASE and RLAE after new interactions: the cheapest of three ways to the same weights.

Both models solve ``P = (SᵀS + diag λ)⁻¹`` with the interactions S, scaled by user:

- *refit*: a new inverse, 2n³ operations for n items;
- *correct*: P is recovered from the stored weights, which fix it up to rounding, and corrected for
  the rows of users that changed and for the changes of λ;
- *expand*: the ridge diag λ is corrected for the rows of all users, which is less work than an
  inverse if there are fewer users than about half of the items.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemrec.models.ease import EASE
from itemrec.models.rlae import RLAE
from itemrec.ops.woodbury import correct_inverse, correction_flops, inverse_flops

Floats = npt.NDArray[np.float64]
USERS = 2048  # rows of a dense product at a time


@dataclass(frozen=True)
class LinearUpdate:
    """How the weights were brought up to date, and the work of every way that was possible."""

    how: str  # "refit", "correct" or "expand"
    rank: int  # of the correction, 0 for a refit
    flops: dict[str, float]

    def __str__(self) -> str:
        share = self.flops[self.how] / self.flops["refit"]
        if self.how == "refit":
            others = {way: n / self.flops["refit"] for way, n in self.flops.items()}
            del others["refit"]
            more = min(others.values(), default=0.0)
            return "refitted" + (f" (a correction is {more:.2g} times the work)" if others else "")
        what = "its inverse" if self.how == "correct" else "its ridge"
        return f"rank-{self.rank:,} correction of {what}, {share:.1%} of the work of a refit"


@dataclass(frozen=True)
class Problem:
    """The matrix to invert, ``SᵀS + diag λ``, in parts."""

    scaled: sp.csr_array  # S, [users, items]
    ridge: Floats  # λ, [items]

    @classmethod
    def of(cls, model: EASE | RLAE, train: sp.csr_array) -> Problem:
        """The problem that a model solves for these interactions."""
        user_power, dropout = getattr(model, "user_power", 0.0), getattr(model, "dropout", 0.0)
        assert model.l2 is not None
        length = np.maximum(np.diff(train.indptr), 1).astype(np.float32)
        scaled = sp.csr_array(sp.diags_array(length ** np.float32(-user_power / 2)) @ train)
        ridge = model.l2 + dropout / (1 - dropout) * _squares(scaled)
        return cls(scaled, ridge)


def update_linear(
    model: EASE | RLAE, old: EASE | RLAE, before: sp.csr_array, train: sp.csr_array
) -> LinearUpdate:
    """Fit a model that is set up for ``train``, given one that was fitted to ``before``.

    ``before`` has the shape of ``train``: users and items that are new have no entries in it.
    """
    part, items = model.covered(train)
    problem, n = Problem.of(model, part), part.shape[1]
    flops = {"refit": _gram_flops(part) + inverse_flops(n)}
    ways: dict[str, Callable[[], tuple[Tensor, int]]] = {}
    rows = _filled(problem.scaled)
    flops["expand"] = correction_flops(n, rows.shape[0], rows.nnz)
    ways["expand"] = lambda: _expand(model, problem, rows)
    if items is None and old.has_all_weights:
        first = Problem.of(model, before)
        change, factors = _change(first, problem)
        flops["correct"] = correction_flops(n, change.shape[0], change.nnz) + 2.0 * before.nnz * n
        ways["correct"] = lambda: _correct(model, old, before, first, (change, factors))
    how = min(flops, key=flops.__getitem__)
    if how == "refit":
        model.fit(train)
        return LinearUpdate(how, 0, flops)
    inverse, rank = ways[how]()
    model.take_inverse(inverse, problem.ridge, part, items)
    return LinearUpdate(how, rank, flops)


def _expand(model: EASE | RLAE, problem: Problem, rows: sp.csr_array) -> tuple[Tensor, int]:
    """The inverse as a correction of the inverse of the ridge."""
    start = torch.diag(torch.from_numpy((1 / problem.ridge).astype(np.float32))).to(model.device)
    return correct_inverse(start, rows, np.ones(rows.shape[0]), model.watch), rows.shape[0]


def _correct(
    model: EASE | RLAE,
    old: EASE | RLAE,
    before: sp.csr_array,
    first: Problem,
    change: tuple[sp.csr_array, Floats],
) -> tuple[Tensor, int]:
    """The inverse as a correction of the old one."""
    weights = old.dense_weights(before).to(model.device)
    missing = before.shape[1] - len(weights)
    if missing:
        weights = torch.nn.functional.pad(weights, (0, missing, 0, missing))
    inverse = recover_inverse(weights, first, getattr(model, "relax", 0.0))
    return correct_inverse(inverse, *change, model.watch), change[0].shape[0]


def recover_inverse(weights: Tensor, problem: Problem, relax: float) -> Tensor:
    """P from ``B_ij = −P_ij·s_j`` with ``s_j = max(λ_j, (1−ξ)/P_jj)``, in the memory of B.

    The diagonal follows from ``Σ_i A_ji P_ij = 1`` for A = SᵀS + diag λ.
    """
    total = np.zeros(len(weights))  # Σ_i A_ji B_ij, i ≠ j
    for start in range(0, problem.scaled.shape[0], USERS):
        block = problem.scaled[start : start + USERS]
        rows, columns = block.nonzero()
        found = _times(block, weights)
        total += np.bincount(columns, block.data * found[rows, columns], len(weights))
    ridge = problem.ridge
    own = _squares(problem.scaled) + ridge  # A_jj
    relaxed = own - total / (1 - relax)  # 1 / P_jj, if it is what limits s_j
    limited = (1 - relax) * relaxed >= ridge
    diagonal = np.where(limited, 1 / relaxed, (1 + total / ridge) / own)
    scale = np.maximum(ridge, (1 - relax) / diagonal)
    inverse = weights.div_(torch.from_numpy(-scale).to(weights))
    inverse.diagonal().copy_(torch.from_numpy(diagonal))
    return inverse


def _change(first: Problem, second: Problem) -> tuple[sp.csr_array, Floats]:
    """Rows U and coefficients c with ``A₂ = A₁ + Uᵀ diag(c) U``."""
    apart = first.scaled - second.scaled
    apart.eliminate_zeros()
    changed = np.flatnonzero(np.diff(sp.csr_array(apart).indptr))
    added, taken = _filled(second.scaled[changed]), _filled(first.scaled[changed])
    ridge = second.ridge - first.ridge
    touched = np.flatnonzero(np.abs(ridge) > 1e-9 * second.ridge)
    place = (np.ones(len(touched), np.float32), (np.arange(len(touched)), touched))
    units = sp.csr_array(place, shape=(len(touched), len(ridge)))
    rows = sp.csr_array(sp.vstack([added, taken, units]))
    signs = np.repeat([1.0, -1.0], [added.shape[0], taken.shape[0]])
    return rows, np.concatenate([signs, ridge[touched]])


def _times(block: sp.csr_array, weights: Tensor) -> npt.NDArray[np.float32]:
    """The product with dense weights, wherever these are."""
    if weights.device.type == "cpu":
        return np.asarray(block @ weights.numpy())
    dense = torch.from_numpy(block.toarray().astype(np.float32)).to(weights.device)
    return np.asarray((dense @ weights).cpu().numpy())


def _squares(scaled: sp.csr_array) -> Floats:
    """The diagonal of SᵀS."""
    squares = scaled.data.astype(np.float64) ** 2
    out: Floats = np.bincount(scaled.indices, squares, scaled.shape[1]).astype(np.float64)
    return out


def _filled(rows: sp.csr_array) -> sp.csr_array:
    """The rows that have entries."""
    return sp.csr_array(rows[np.flatnonzero(np.diff(rows.indptr))])


def _gram_flops(train: sp.csr_array) -> float:
    """Operations of the product XᵀX."""
    return 2.0 * float((np.diff(train.indptr).astype(np.float64) ** 2).sum())
