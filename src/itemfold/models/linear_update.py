"""Update of EASE and RLAE after new interactions: correct the old inverse, or fit again.

Both models follow from ``P = (SᵀS + diag λ)⁻¹`` with the interactions S, scaled by user. P is
recovered from the stored weights, up to rounding, and corrected for the users whose rows changed
and for the changes of λ. The model is fitted again if that is less work or if weights were pruned.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.models.ease import EASE
from itemfold.models.ridge_problem import Floats, RidgeProblem, filled_rows
from itemfold.models.rlae import RLAE
from itemfold.ops.segment import dense_rows
from itemfold.ops.woodbury import correct_inverse, correction_flops

USERS = 2048  # rows of a dense product at a time


@dataclass(frozen=True)
class LinearUpdate:
    """How the weights were updated, and the number of operations either way."""

    rank: int  # of the correction, 0 for a new fit
    fit_flops: float
    correction_flops: float | None  # None: weights were pruned

    def __str__(self) -> str:
        if self.correction_flops is None:
            return "refitted, because its stored weights are pruned"
        ratio = self.correction_flops / self.fit_flops
        if not self.rank:
            return f"refitted, because a correction is {ratio:.2g} times the work"
        return f"corrected by rank {self.rank:,}, {ratio:.1%} of the work of a refit"


def update_linear(
    model: EASE | RLAE, old: EASE | RLAE, before: sp.csr_array, train: sp.csr_array
) -> LinearUpdate:
    """Fit a model that is set up for ``train``, given one that was fitted to ``before``.

    ``before`` has the shape of ``train``: users and items that are new have no entries in it.
    """
    part, items = model.covered(train)
    second, cost = model.problem(part), None
    if items is None and old.has_all_weights and model.has_all_weights:
        first = model.problem(before)
        rows, factors = _change(model, first, second)
        n, rank = part.shape[1], rows.shape[0]
        cost = correction_flops(n, rank, rows.nnz) + 2.0 * before.nnz * n
        if rank and cost < second.flops:
            weights = old.dense_weights(before).to(model.device)
            if missing := n - len(weights):  # new items have no weights yet
                weights = torch.nn.functional.pad(weights, (0, missing, 0, missing))
            inverse = recover_inverse(weights, model, first)
            correct_inverse(inverse, rows, factors, model.watch)
            model.take_inverse(inverse, model.ridge_of(second), part, items)
            return LinearUpdate(rank, second.flops, cost)
    model.solve(train)
    return LinearUpdate(0, second.flops, cost)


def recover_inverse(weights: Tensor, model: EASE | RLAE, problem: RidgeProblem) -> Tensor:
    """P from ``B_ij = −P_ij·s_j`` with ``s_j = max(λ_j, (1−ξ)/P_jj)``, in the memory of B.

    The diagonal follows from ``Σ_i A_ji P_ij = 1`` for A = SᵀS + diag λ.
    """
    total = np.zeros(len(weights))  # Σ_i A_ji B_ij, i ≠ j
    for start in range(0, problem.scaled.shape[0], USERS):
        block = problem.scaled[start : start + USERS]
        rows, columns = block.nonzero()
        if weights.device.type == "cpu":
            found = np.asarray(block @ weights.numpy())
        else:
            found = (dense_rows(block, weights.device) @ weights).cpu().numpy()
        total += np.bincount(columns, block.data * found[rows, columns], len(weights))
    ridge, relax = model.ridge_of(problem), getattr(model, "relax", 0.0)
    own = problem.squares + ridge  # A_jj
    relaxed = own - total / (1 - relax)  # 1 / P_jj, if it is what limits s_j
    limited = (1 - relax) * relaxed >= ridge
    diagonal = np.where(limited, 1 / relaxed, (1 + total / ridge) / own)
    scale = np.maximum(ridge, (1 - relax) / diagonal)
    inverse = weights.div_(torch.from_numpy(-scale).to(weights))
    inverse.diagonal().copy_(torch.from_numpy(diagonal))
    return inverse


def _change(
    model: EASE | RLAE, first: RidgeProblem, second: RidgeProblem
) -> tuple[sp.csr_array, Floats]:
    """Rows U and coefficients c with ``A₂ = A₁ + Uᵀ diag(c) U``."""
    apart = sp.csr_array(first.scaled - second.scaled)
    apart.eliminate_zeros()
    changed = np.flatnonzero(np.diff(apart.indptr))
    added, taken = (filled_rows(problem.scaled[changed]) for problem in (second, first))
    new = model.ridge_of(second)
    ridge = new - model.ridge_of(first)
    touched = np.flatnonzero(np.abs(ridge) > 1e-9 * new)
    place = (np.ones(len(touched), np.float32), (np.arange(len(touched)), touched))
    units = sp.csr_array(place, shape=(len(touched), len(ridge)))
    rows = sp.csr_array(sp.vstack([added, taken, units]))
    signs = np.repeat([1.0, -1.0], [added.shape[0], taken.shape[0]])
    return rows, np.concatenate([signs, ridge[touched]])
