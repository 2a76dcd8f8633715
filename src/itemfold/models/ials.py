"""iALS: alternating weighted least squares, exact for one side at a time.

Hu, Koren & Volinsky, "Collaborative Filtering for Implicit Feedback Datasets", ICDM 2008, with the
objective and the frequency-scaled penalty of Rendle et al., "Revisiting the Performance of iALS on
Item Recommendation Benchmarks" (RecSys 2022):

    L = Σ_{(u,i)∈S} (1 − w_u·h_i)² + α Σ_u Σ_i (w_u·h_i)² + l2·[Σ_u a_u|w_u|² + Σ_i b_i|h_i|²]
    a_u = (|S_u| + α|I|)^ν      b_i = (|S_i| + α|U|)^ν

With the items fixed, each user is one d × d system, also a user unseen in training:

    w_u = A_u⁻¹ Σ_{i∈S_u} h_i        A_u = α HᵀH + Σ_{i∈S_u} h_i h_iᵀ + l2·a_u I

so a score is a sum over the history and each share ``h_jᵀ A_u⁻¹ h_i`` is exact. The last half-step
solves for the users, so a known user has the same vector as the same history folded in.

With weights c, the confidence of Hu et al., terms of S are multiplied by |c_ui|, |S_u| is Σ|c_ui|,
and a disliked item, c < 0, has the target −1 instead of 1.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.data.weights import is_weighted
from itemfold.errors import ItemfoldError
from itemfold.models.base import Kind
from itemfold.models.embedding_model import EmbeddingModel
from itemfold.models.item_item import history_values
from itemfold.validation import at_least_zero, positive, positive_integers

BLOCK = 2**24  # numbers in memory for one block of systems


class IALS(EmbeddingModel):
    """Alternating least squares for implicit feedback (ICDM 2008).

    A new user requires one small linear solve, and explanations are exact.

    Args:
        dim: Length of a vector.
        alpha: Weight α of unobserved pairs.
        l2: Strength of the L2 penalty, positive.
        nu: Exponent ν of the frequency that scales `l2`.
        sweeps: Number of alternations over both sides.
    """

    paper = "Collaborative Filtering for Implicit Feedback Datasets"
    year = 2008
    explains = True
    kind = Kind.CLOSED_FORM
    weighs = ("linear",)

    def __init__(
        self,
        dim: int = 64,
        alpha: float = 0.1,
        l2: float = 0.003,
        nu: float = 1.0,
        sweeps: int = 16,
    ) -> None:
        super().__init__()
        positive_integers(dim=dim, sweeps=sweeps)
        positive(alpha=alpha, l2=l2)
        at_least_zero(nu=nu)
        self.dim, self.alpha, self.l2, self.nu, self.sweeps = dim, alpha, l2, nu, sweeps

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Initialise items at random; the first half-step solves for the users."""
        super().setup(train, inductive=inductive, generator=generator)
        items = torch.randn(self.n_items, self.dim, generator=generator) * 0.1 / self.dim**0.5
        self.store("item_vectors", items.to(self.device))
        self.store("user_vectors", torch.zeros(self.n_users, self.dim, device=self.device))

    @torch.no_grad()
    def solve(self, train: sp.csr_array) -> None:
        """Solve for users, items, users, …, users."""
        by_item = sp.csr_array(train.T)
        for _ in range(self.sweeps):
            self.store("user_vectors", self.solve_side(train, self.item_vectors))
            self.store("item_vectors", self.solve_side(by_item, self.user_vectors))
        self.store("user_vectors", self.solve_side(train, self.item_vectors))

    def solve_side(self, rows: sp.csr_array, fixed: Tensor) -> Tensor:
        """``w`` of every row against fixed vectors, ``[B, others], [others, d] → [B, d]``.

        Rows of similar length are solved together, so that padding to the longest costs little.
        """
        out = fixed.new_zeros(rows.shape[0], self.dim)
        size, mass = np.diff(rows.indptr), self.mass(rows)
        order = np.argsort(size, kind="stable")
        shared = self.alpha * (fixed.T @ fixed)
        padded = torch.cat([fixed, fixed.new_zeros(1, self.dim)])
        end = len(order)
        while end > 0:  # longest rows first
            width = max(int(size[order[end - 1]]), 1)
            part = order[max(0, end - max(1, BLOCK // (self.dim * max(width, self.dim)))) : end]
            listed, weight = self.listed(rows, part, width)
            found = padded[listed]  # [b, width, d]
            matrix = self.system(shared, found, weight, mass[part], len(fixed))
            factor, wrong = torch.linalg.cholesky_ex(matrix)
            if wrong.any():
                raise ItemfoldError("the least squares cannot be solved: try a larger 'l2'")
            wanted = found.sum(1) if weight is None else (found * weight.unsqueeze(2)).sum(1)
            solved = torch.cholesky_solve(wanted.unsqueeze(2), factor).squeeze(2)
            out[torch.from_numpy(part).to(out.device)] = solved
            end -= len(part)
        return out

    def mass(self, rows: sp.csr_array) -> npt.NDArray[np.float64]:
        """Sum of the absolute weights of each row; without weights, its length."""
        return np.asarray(abs(rows).sum(axis=1, dtype=np.float64))

    def listed(
        self, rows: sp.csr_array, part: npt.NDArray[np.int64], width: int
    ) -> tuple[Tensor, Tensor | None]:
        """Entries of some rows, padded to ``[b, width]`` with the index of a zero vector.

        Their weights come with them, or None if all are 1.
        """
        begin, size = rows.indptr[part], np.diff(rows.indptr)[part]
        place = np.arange(width)
        real = place < size[:, None]
        at = np.minimum(begin[:, None] + place, max(rows.nnz - 1, 0))
        taken = rows.indices[at] if rows.nnz else at
        filled = np.where(real, taken, rows.shape[1]).astype(np.int64)
        listed = torch.from_numpy(filled).to(self.device)
        if not is_weighted(rows):
            return listed, None
        weight = np.where(real, rows.data[at], 0).astype(np.float32)
        return listed, torch.from_numpy(weight).to(self.device)

    def system(
        self,
        shared: Tensor,
        found: Tensor,
        weight: Tensor | None,
        mass: npt.NDArray[np.float64],
        others: int,
    ) -> Tensor:
        """``A`` of every row, ``[b, d, d]``."""
        ridge = self.l2 * (mass + self.alpha * others) ** self.nu
        weighted = found if weight is None else found * weight.abs().unsqueeze(2)
        matrix = shared + weighted.transpose(1, 2) @ found
        diagonal = torch.from_numpy(ridge.astype(np.float32)).to(self.device)
        matrix.diagonal(dim1=1, dim2=2).add_(diagonal.unsqueeze(1))
        return matrix

    @torch.no_grad()
    def fold_in(self, history: sp.csr_array) -> Tensor:
        """One solve per user."""
        return self.solve_side(history, self.item_vectors)

    @torch.no_grad()
    def explain(self, history: sp.csr_array, user: int, items: Tensor) -> Tensor:
        """``c_i h_jᵀ A⁻¹ h_i`` for each recommended j and history item i."""
        table = self.item_vectors
        found = table[torch.from_numpy(history.indices).long().to(self.device)]  # [H, d]
        weight = history_values(history, self.device)
        shared, mass = self.alpha * (table.T @ table), self.mass(history)
        matrix = self.system(shared, found.unsqueeze(0), weight.unsqueeze(0), mass, len(table))
        shares: Tensor = table[items] @ torch.linalg.solve(matrix[0], found.T)
        return shares * weight
