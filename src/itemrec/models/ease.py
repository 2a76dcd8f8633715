"""EASE: the closed-form linear autoencoder.

Steck, "Embarrassingly Shallow Autoencoders for Sparse Data", WWW 2019. With the interactions X::

    P = (XᵀX + λI)⁻¹        B = I − P·diag(1/P_jj)        scores = history · B
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from scipy.linalg import lapack
from torch import Tensor

from itemrec.errors import ItemrecError
from itemrec.graph import fold_adjacency
from itemrec.models.base import Model
from itemrec.models.neighbours import BLOCK, gram_matrix
from itemrec.propagate import neighbour_sum


class EASE(Model):
    """Item–item weights in closed form (WWW 2019)."""

    paper = "Embarrassingly Shallow Autoencoders for Sparse Data"
    year = 2019
    explains = True
    closed_form = True

    weights: Tensor  # [items, items]

    def __init__(self, l2: float = 200.0) -> None:
        super().__init__()
        if l2 <= 0:
            raise ItemrecError(f"'l2' must be positive, got {l2}")
        self.l2 = l2

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Room for the weights; on the CPU it costs nothing until they are there."""
        super().setup(train, inductive=inductive, generator=generator)
        self.store("weights", torch.zeros(self.n_items, self.n_items, device=self.device))

    def fit(self, train: sp.csr_array) -> None:
        """One Cholesky factorisation of the item–item Gram matrix, inverted where it stands.

        On the CPU the whole fit holds one matrix of items × items; on a GPU at most two.
        """
        device = self.device
        self.store("weights", torch.empty(0, device=device))
        gram = gram_matrix(train)
        gram[np.diag_indices_from(gram)] += np.float32(self.l2)
        if device.type == "cpu":
            inverse = torch.from_numpy(invert(gram))
        else:
            factor = torch.linalg.cholesky(torch.from_numpy(gram).to(device))
            inverse = torch.cholesky_inverse(factor)
            del factor
        weights = inverse.div_(inverse.diagonal().clone().neg_())
        weights.fill_diagonal_(0)
        self.store("weights", weights)

    @torch.no_grad()
    def scores(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
        """Rows of the weights, summed over the history."""
        degree = self.weights.new_zeros(self.n_items)
        return neighbour_sum(fold_adjacency(history, degree), self.weights)

    @torch.no_grad()
    def explain(self, history: sp.csr_array, user: int, items: Tensor) -> Tensor:
        """The weight from each history item to each recommended one."""
        listed = torch.from_numpy(history.indices).long().to(self.device)
        return self.weights[listed][:, items].T


def invert(matrix: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The inverse of a positive definite matrix, in the same memory."""
    turned = matrix.T  # symmetric, and in the order that LAPACK overwrites
    factor, wrong = lapack.spotrf(turned, lower=1, clean=0, overwrite_a=1)
    inverse, wrong_too = lapack.spotri(factor, lower=1, overwrite_c=1)
    if wrong or wrong_too:
        raise ItemrecError("the item–item matrix cannot be inverted: try a larger 'l2'")
    for start in range(0, len(matrix), BLOCK):  # LAPACK fills one triangle: mirror it
        end = start + BLOCK
        inverse[:start, start:end] = inverse[start:end, :start].T
        corner = inverse[start:end, start:end]
        lower = np.tril(corner)
        corner[:] = lower + np.tril(lower, -1).T
    result: npt.NDArray[np.float32] = inverse.T
    return result
