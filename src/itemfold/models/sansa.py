"""SANSA: EASE by a sparse approximate inverse.

Spišák et al., "Scalable Approximate NonSymmetric Autoencoder for Collaborative Filtering", RecSys
2023. With the interactions X and a permutation Q that keeps the factor sparse:

    Q(XᵀX + λI)Qᵀ = L D Lᵀ,  L unit lower triangular        M ≈ L⁻¹, sparse        W = M Q
    P ≈ Wᵀ D⁻¹ W             B = I − P·diag(1/P_jj)         scores = history · B

L and M keep the largest entries, a share ``density`` of all items². M starts from 2I − L, one step
of Schultz's method. A scan improves it block of columns by block of columns, with R = I − LM:

    M ← M + R·diag(α),   α_j = ⟨r_j, L r_j⟩/‖L r_j‖²

the minimal residual along R; further steps improve the columns with the largest residuals. B is
never formed: scores are two sparse products. The factor L is exact before it is pruned (scipy's
sparse LU in symmetric mode), so that fitting takes the memory of its fill-in.
Inductive: a user is represented by the history alone.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import scipy.sparse.linalg as spl
import torch
from torch import Tensor

from itemfold.data.csr import row_of_entry
from itemfold.errors import ItemfoldError
from itemfold.models.additive import explain_additive
from itemfold.models.base import Kind, Model
from itemfold.models.stored_csr import check_stored_csr
from itemfold.validation import is_number, positive, positive_integer

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
SCORED = 256  # histories at a time


class SANSA(Model):
    """EASE by a sparse approximate inverse (RecSys 2023).

    A user is represented by the history alone, and explanations are exact.

    Args:
        l2: Regularisation λ, positive, as EASE's.
        density: Fraction of the items × items entries that each factor keeps, above 0 and at most
            1.
        scans: Passes over all columns of the approximate inverse.
        finetune: Steps that improve the columns with the largest residuals afterwards.
    """

    paper = "Scalable Approximate NonSymmetric Autoencoder for Collaborative Filtering"
    year = 2023
    explains = True
    kind = Kind.CLOSED_FORM
    weighs = ("linear",)

    left_starts: Tensor  # Wᵀ, CSR: int64 [items + 1]
    left_items: Tensor  # int32 [entries]
    left_values: Tensor  # float32 [entries]
    right_values: Tensor  # of −D⁻¹ W diag(1/P_jj), at the places of Wᵀ transposed, as `left_values`

    def __init__(
        self, l2: float = 200.0, density: float = 0.05, scans: int = 3, finetune: int = 5
    ) -> None:
        super().__init__()
        positive(l2=l2)
        if not is_number(density) or not 0 < density <= 1:
            raise ItemfoldError(
                f"'density' must be a number above 0 and at most 1, got {density!r}"
            )
        positive_integer("scans", scans)
        positive_integer("finetune", finetune)
        self.l2, self.density, self.scans, self.finetune = l2, density, scans, finetune

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Start without factors."""
        super().setup(train, inductive=inductive, generator=generator)
        self.factors: tuple[Tensor, sp.csr_array, sp.csr_array] | None = None

    def solve(self, train: sp.csr_array) -> None:
        """Factorise, invert the factor approximately, and scale."""
        x = sp.csc_array(train, dtype=np.float64)
        lower, diagonal, order = ldl(sp.csc_array(x.T @ x + self.l2 * sp.eye_array(self.n_items)))
        kept = int(np.ceil(self.density * self.n_items**2))
        inverse = approximate_inverse(pruned(lower, kept), kept, self.scans, self.finetune)
        w = sp.csc_array(inverse[:, np.argsort(order)])  # [factors, items]
        left = sp.csr_array(w.T)
        left.sort_indices()
        squares = sp.csr_array((left.data**2, left.indices, left.indptr), shape=left.shape)
        inner = np.maximum(squares @ (1 / diagonal), 1e-300)  # P_jj
        right = -left.data / (diagonal[left.indices] * inner[row_of_entry(left)])
        parts = {
            "left_starts": left.indptr.astype(np.int64),
            "left_items": left.indices.astype(np.int32),
            "left_values": left.data.astype(np.float32),
            "right_values": right.astype(np.float32),
        }
        for name, part in parts.items():
            self.store(name, torch.from_numpy(part).to(self.device))

    def restore(self, train: sp.csr_array) -> None:
        """Check the factors of a file: compiled code that reads them trusts their positions."""
        names = ("left_starts", "left_items", "left_values", "right_values")
        check_stored_csr(self, names, "the factors", n_rows=self.n_items)

    def matrices(self) -> tuple[sp.csr_array, sp.csr_array]:
        """Wᵀ and the scaled W, made once."""
        if self.factors is None or self.factors[0] is not self.left_values:
            shape = (self.n_items, self.n_items)
            starts, items = self.left_starts.cpu().numpy(), self.left_items.cpu().numpy()
            values = (self.left_values.cpu().numpy(), self.right_values.cpu().numpy())
            left, right = (sp.csr_array((part, items, starts), shape=shape) for part in values)
            self.factors = self.left_values, left, sp.csr_array(right.T)
        return self.factors[1], self.factors[2]

    @torch.no_grad()
    def scores(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
        """Two sparse products; B has the diagonal 0, where the product has −1."""
        left, right = self.matrices()
        out = np.empty((history.shape[0], self.n_items), np.float32)
        for start in range(0, len(out), SCORED):
            part = history[start : start + SCORED].astype(np.float32)
            out[start : start + SCORED] = ((part @ left) @ right + part).toarray()
        return torch.from_numpy(out).to(self.device)

    def explain(self, history: sp.csr_array, user: int, items: Tensor) -> Tensor:
        """Score each history item alone: scores are additive."""
        return explain_additive(self, history, items)


def ldl(matrix: sp.csc_array) -> tuple[sp.csc_array, Floats, Ints]:
    """L, D and the order q of a positive definite matrix: ``A[q][:, q] = L·diag(D)·Lᵀ``."""
    order = spl.splu(
        matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0, options={"SymmetricMode": True}
    ).perm_c
    order = np.argsort(order)  # scipy's permutation moves column j to place perm_c[j]
    # a second factorisation in this order: both permutations of the first need not be equal
    found = spl.splu(
        sp.csc_array(matrix[order][:, order]),
        permc_spec="NATURAL",
        diag_pivot_thresh=0,
        options={"SymmetricMode": True},
    )
    return sp.csc_array(found.L), found.U.diagonal(), order.astype(np.int64)


def pruned(matrix: sp.csc_array, kept: int) -> sp.csc_array:
    """The diagonal and the entries of largest size, ``kept`` in all."""
    kept = max(kept, matrix.shape[0])
    if matrix.nnz <= kept:
        return matrix
    columns = np.repeat(np.arange(matrix.shape[1]), np.diff(matrix.indptr))
    size = np.abs(matrix.data)
    size[matrix.indices == columns] = np.inf
    chosen = np.sort(np.argpartition(size, len(size) - kept)[len(size) - kept :])
    ends = np.append(0, np.bincount(columns[chosen], minlength=matrix.shape[1]).cumsum())
    return sp.csc_array((matrix.data[chosen], matrix.indices[chosen], ends), shape=matrix.shape)


def approximate_inverse(lower: sp.csc_array, kept: int, scans: int, finetune: int) -> sp.csc_array:
    """A sparse M with ``LM ≈ I``, for a unit lower triangular L."""
    n = lower.shape[0]
    width = max(int(np.ceil(kept / n)), 1)  # so that a dense block is as large as the result
    identity = sp.csc_array(sp.eye_array(n, format="csc"))
    found = pruned(sp.csc_array(2 * identity - lower), kept)
    for _ in range(scans):
        blocks = [
            improved(lower, found[:, start : start + width], identity[:, start : start + width])
            for start in range(0, n, width)
        ]
        found = pruned(sp.csc_array(sp.hstack(blocks)), kept)
    for _ in range(finetune):
        residual = spl.norm(identity - lower @ found, axis=0)
        residual = residual / np.sqrt(np.arange(n, 0, -1))  # most entries of each column of L
        worst = np.sort(np.argsort(-residual, kind="stable")[:width])
        change = improved(lower, found[:, worst], identity[:, worst]) - found[:, worst]
        place = sp.csc_array(
            (np.ones(len(worst)), (np.arange(len(worst)), worst)), shape=(len(worst), n)
        )
        found = pruned(sp.csc_array(found + change @ place), kept)
    return found


def improved(lower: sp.csc_array, part: sp.csc_array, wanted: sp.csc_array) -> sp.csc_array:
    """One step along the residual of some columns, of the length that leaves the least."""
    residual = sp.csc_array(wanted - lower @ part)
    moved = lower @ residual
    along = np.asarray((residual * moved).sum(0)).ravel()
    length = np.asarray((moved * moved).sum(0)).ravel()
    step = along / np.maximum(length, 1e-300)
    return sp.csc_array(part + residual @ sp.diags_array(step))
