"""SLIM: a sparse linear model with item–item weights from regression.

Ning & Karypis, "SLIM: Sparse Linear Methods for Top-N Recommender Systems", ICDM 2011, in the form
the paper calls fsSLIM: each item's column is fitted on its nearest items only. For item j with the
k items N of largest cosine to it, and ``G = XᵀX``:

    w = argmin ½ wᵀG_NN w − G_Njᵀ w + ½ l2·|w|² + l1·|w|₁        (w ≥ 0 with ``positive``)
    scores = history · W                                          [B, items]

Without l1 and sign constraint each column is one k × k Cholesky solve; otherwise coordinate descent
starts from that solution. Both run for a block of items at once. The solution is exact on the
chosen neighbours: with all items as neighbours, no l1 and free signs, W is EASE's. Memory: W with
at most k entries per column, and G of the most popular items (`neighbourhoods.py`). Inductive: a
user is represented by the history alone.
"""

from __future__ import annotations

import scipy.sparse as sp
from torch import Tensor

from itemfold import validation
from itemfold.models.item_item import SparseWeights
from itemfold.models.neighbourhoods import NeighbourBlock, Neighbourhoods
from itemfold.models.ridge_problem import cholesky_solution, sum_of_squares


class SLIM(SparseWeights):
    """Sparse linear regression on neighbouring items (ICDM 2011).

    A user is represented by the history alone, and explanations are exact.

    Args:
        neighbours: Items that a column is regressed on, k.
        l1: Strength of the L1 penalty.
        l2: Strength of the L2 penalty, positive.
        positive: Allow no negative weights.
        sweeps: Rounds of coordinate descent, if `l1` or `positive` require it.
    """

    paper = "SLIM: Sparse Linear Methods for Top-N Recommender Systems"
    year = 2011

    def __init__(
        self,
        neighbours: int = 200,
        l1: float = 0.0,
        l2: float = 200.0,
        positive: bool = False,
        sweeps: int = 20,
    ) -> None:
        super().__init__()
        validation.positive_integers(neighbours=neighbours, sweeps=sweeps)
        validation.at_least_zero(l1=l1)
        validation.positive(l2=l2)
        self.neighbours, self.l1, self.l2 = neighbours, l1, l2
        self.positive, self.sweeps = positive, sweeps

    def solve(self, train: sp.csr_array) -> None:
        """Compute the columns of W, one block of items at a time."""
        squares = sum_of_squares(train)
        near = Neighbourhoods(train, squares, self.neighbours, self.watch)

        def solve(block: NeighbourBlock) -> Tensor:
            return self.regress(block.gram.to(self.device), block.wanted.to(self.device))

        self.keep([(0, *near.columns(solve))])

    def regress(self, gram: Tensor, wanted: Tensor) -> Tensor:
        """The elastic net of many items at once, ``[b, k, k], [b, k] → [b, k]``.

        Only the lower triangle of the Gram matrices is read.
        """
        gram.diagonal(dim1=1, dim2=2).add_(self.l2)
        weights = cholesky_solution(gram, wanted)
        if self.l1 == 0 and not self.positive:
            return weights
        gram = gram.tril() + gram.tril(-1).mT
        if self.positive:
            weights.clamp_(min=0)
        rest = wanted - (gram @ weights.unsqueeze(2)).squeeze(2)  # negative gradient without l1
        scale = gram.diagonal(dim1=1, dim2=2)
        for _ in range(self.sweeps):
            for c in range(weights.shape[1]):
                old = weights[:, c].clone()
                pull = rest[:, c] + scale[:, c] * old
                size = (pull.abs() - self.l1).clamp(min=0)
                new = (size if self.positive else size * pull.sign()) / scale[:, c]
                if self.positive:
                    new = new * (pull > 0)
                weights[:, c] = new
                rest -= gram[:, c] * (new - old).unsqueeze(1)
        return weights
