"""The inverse behind EASE and RLAE, ``(SᵀS + diag λ)⁻¹``, by the method of fewest operations.

Either the Gram matrix of n items is inverted, 2n³ operations, or that of m users, 2m³, if they are
fewer; with L = diag λ and H = S·L^−½:

    (SᵀS + L)⁻¹ = L^−½ (I − Hᵀ(I + HHᵀ)⁻¹H) L^−½

The products with H are sparse.

In a large catalogue that matrix does not fit: each column of weights is solved on its k nearest
items alone, about nk³/3 operations (Steck, "Markov Random Fields for Collaborative Filtering",
NeurIPS 2019). With all items as neighbours both are the same.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.errors import ItemfoldError
from itemfold.models.item_item import DENSE_SPEED, gram_matrix
from itemfold.models.neighbourhoods import NeighbourBlock, Neighbourhoods
from itemfold.ops.inverse import Progress, invert
from itemfold.ops.segment import row_tensors, segment_sum

Floats = npt.NDArray[np.float64]
ITEMS = 256  # rows of the inverse at a time


class RidgeProblem:
    """Interactions S, scaled by the length of histories, and the inverse for a given λ.

    Args:
        train: Interactions X, `[users, items]`.
        user_power: Exponent b of ``S = D_U^−b/2 X``.
        device: Where the inverse is computed.
    """

    def __init__(self, train: sp.csr_array, user_power: float, device: torch.device) -> None:
        total = np.asarray(train.sum(axis=1, dtype=np.float64)).ravel()
        length = np.where(total > 0, total, 1).astype(np.float32)
        self.scaled = sp.csr_array(sp.diags_array(length ** np.float32(-user_power / 2)) @ train)
        self.squares = sum_of_squares(self.scaled)  # the diagonal of SᵀS
        self.device, n = device, train.shape[1]
        sizes = np.diff(train.indptr).astype(np.float64)
        m = int((sizes > 0).sum())
        self.flops_by_items = 2.0 * float((sizes**2).sum()) + 2.0 * n**3
        self.flops_by_users = 2.0 * m**3 + DENSE_SPEED * 2.0 * train.nnz * (m + n)
        self._gram: Tensor | None = None

    @property
    def by_users(self) -> bool:
        """Whether the matrix of the users is inverted."""
        return self.flops_by_users < self.flops_by_items

    @property
    def flops(self) -> float:
        """Operations of `inverse`."""
        return min(self.flops_by_users, self.flops_by_items)

    def inverse(self, ridge: Floats, watch: Progress, *, again: bool = False) -> Tensor:
        """``(SᵀS + diag λ)⁻¹``; ``again`` keeps the Gram matrix for another λ."""
        if self.by_users:
            return self._inverse_by_users(ridge, watch)
        if self._gram is None:
            self._gram = gram_matrix(self.scaled, self.device)
        gram = self._gram.clone() if again else self._gram
        if not again:
            self._gram = None
        gram.diagonal().add_(torch.from_numpy(ridge).to(gram))
        return invert(gram, watch)

    def _inverse_by_users(self, ridge: Floats, watch: Progress) -> Tensor:
        root = 1 / np.sqrt(ridge)
        half = filled_rows(self.scaled) @ sp.diags_array(root)  # H [m, n]
        by_item = sp.csr_array(half.T)
        inner = gram_matrix(by_item, self.device)  # HHᵀ [m, m]
        inner.diagonal().add_(1)
        inner = invert(inner, watch)
        starts, index, weight = row_tensors(by_item, self.device)
        scale = torch.from_numpy(root.astype(np.float32)).to(self.device)
        n = len(root)
        out = torch.empty(n, n, device=self.device)
        for start in watch(range(0, n, ITEMS), "multiplying"):
            part = slice(start, start + ITEMS)
            own, users, values = row_tensors(by_item[part], self.device)
            shares = segment_sum(own, users, inner, weight=values).T.contiguous()  # [m, b]
            out[part] = segment_sum(starts, index, shares, weight=weight).T
        out.neg_().diagonal().add_(1)
        return out.mul_(scale).mul_(scale.unsqueeze(1))

    def columns(self, ridge: Floats, k: int, watch: Progress) -> tuple[Tensor, Tensor, Tensor]:
        """Each item's regression on its k nearest items N, without a matrix of all items.

        ``w = (SᵀS + diag λ)_NN⁻¹ (SᵀS)_Nj``, which is ``−P_Nj / P_jj`` of the same problem with
        only these items.

        Returns:
            The neighbours and their w, ``[items, k]`` each, and ``1 / P_jj``, ``[items]``.
        """
        diagonal = self.squares + ridge
        rest = torch.from_numpy(diagonal.astype(np.float32))
        extra = torch.from_numpy(ridge.astype(np.float32))

        def solve(block: NeighbourBlock) -> Tensor:
            gram, wanted = block.gram.to(self.device), block.wanted.to(self.device)
            gram.diagonal(dim1=1, dim2=2).add_(extra[block.sources].to(self.device))
            weights = cholesky_solution(gram, wanted)
            rest[block.targets] -= (weights * wanted).sum(1).cpu()
            return weights

        near = Neighbourhoods(self.scaled, self.squares, k, watch)
        return *near.columns(solve), rest


def cholesky_solution(gram: Tensor, wanted: Tensor) -> Tensor:
    """The solutions of many small systems, ``[b, k, k], [b, k] → [b, k]``.

    Only the lower triangle of the matrices is read.
    """
    factor, wrong = torch.linalg.cholesky_ex(gram)
    if wrong.any():
        raise ItemfoldError("the regressions of the items cannot be solved: try a larger 'l2'")
    half = torch.linalg.solve_triangular(factor, wanted.unsqueeze(2), upper=False)
    out: Tensor = torch.linalg.solve_triangular(factor.mT, half, upper=True).squeeze(2)
    return out


def filled_rows(rows: sp.csr_array) -> sp.csr_array:
    """The rows that have entries."""
    return sp.csr_array(rows[np.flatnonzero(np.diff(rows.indptr))])


def sum_of_squares(scaled: sp.csr_array) -> Floats:
    """The diagonal of SᵀS."""
    squares = scaled.data.astype(np.float64) ** 2
    out: Floats = np.bincount(scaled.indices, squares, scaled.shape[1]).astype(np.float64)
    return out
