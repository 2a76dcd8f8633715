"""EASE: the closed-form linear autoencoder.

Steck, "Embarrassingly Shallow Autoencoders for Sparse Data", WWW 2019. With the interactions X::

    P = (XᵀX + λI)⁻¹        B = I − P·diag(1/P_jj)        scores = history · B
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemrec.errors import ItemrecError
from itemrec.graph import fold_adjacency
from itemrec.models.base import Model
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
        """Room for the weights."""
        super().setup(train, inductive=inductive, generator=generator)
        self.store("weights", torch.zeros(self.n_items, self.n_items, device=self.device))

    def fit(self, train: sp.csr_array) -> None:
        """One Cholesky factorisation of the item–item Gram matrix."""
        gram = torch.from_numpy((train.T @ train).toarray().astype(np.float32)).to(self.device)
        gram.diagonal().add_(self.l2)
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram))
        del gram
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
