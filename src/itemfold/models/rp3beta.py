"""RP3β: three steps of a random walk, divided by a power of popularity.

Paudel et al., "Updatable, Accurate, Diverse, and Scalable Recommendations for Interactive
Applications", TiiS 2017. With interactions X, degrees d of users and items:

    W_ij = Σ_u (x_ui/d_i)^α · (x_uj/d_u)^α / d_j^β for i ≠ j, the k largest of each i, else 0
    scores = history · W                                            [B, items]

With `normalise` the weights from each item sum to 1, as in the best settings of Anelli et al.,
"Challenging the Myth of Graph Collaborative Filtering", RecSys 2023.
The k most probable ends of the walks from each item are kept: the largest weights *into* an item
would all come from rare items, from which few walks lead elsewhere.
Inductive: a user is represented by the history alone.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from itemfold.models.item_item import BLOCK, SparseWeights, strongest
from itemfold.validation import at_least_zero, positive, positive_integers


class RP3Beta(SparseWeights):
    """Random walks of three steps with a penalty on popularity (TiiS 2017).

    A user is represented by the history alone, and explanations are exact. With β = 0 it is P3α.

    Args:
        neighbours: Items that the walks from an item may end at, k.
        alpha: Power α of the transition probabilities.
        beta: Power β of the popularity that scores are divided by.
        normalise: Whether the weights from each item are divided by their sum.
    """

    paper = "Updatable, Accurate, Diverse, and Scalable Recommendations"
    year = 2017

    def __init__(
        self,
        neighbours: int = 200,
        alpha: float = 1.0,
        beta: float = 0.4,
        normalise: bool = True,
    ) -> None:
        super().__init__()
        positive_integers(neighbours=neighbours)
        positive(alpha=alpha)
        at_least_zero(beta=beta)
        self.neighbours, self.alpha, self.beta = neighbours, alpha, beta
        self.normalise = normalise

    def solve(self, train: sp.csr_array) -> None:
        """Multiply the steps from item to user and back, and keep the largest, block by block."""
        x = train.astype(np.float64)
        to_items = powered(x, self.alpha)  # [users, items]
        from_items = powered(sp.csr_array(x.T), self.alpha)  # [items, users]
        popularity = np.bincount(x.indices, x.data, self.n_items)
        scale = np.where(popularity > 0, np.maximum(popularity, 1e-12) ** -self.beta, 0.0)
        blocks = []
        for start in range(0, self.n_items, BLOCK):
            part = (from_items[start : start + BLOCK] @ to_items).toarray() * scale  # [b, items]
            rows = np.arange(len(part))
            part[rows, start + rows] = 0
            values, nearest = (x.numpy() for x in strongest(part, self.neighbours))
            if self.normalise:
                values /= np.maximum(values.sum(1, keepdims=True), 1e-30)
            ends = np.arange(len(part) + 1) * values.shape[1]
            shape = (len(part), self.n_items)
            blocks.append(sp.csr_array((values.ravel(), nearest.ravel(), ends), shape=shape))
        matrix = sp.csr_array(sp.vstack(blocks))
        matrix.eliminate_zeros()
        matrix.sort_indices()
        self._put(matrix.indptr, matrix.indices, matrix.data.astype(np.float32))


def powered(matrix: sp.csr_array, alpha: float) -> sp.csr_array:
    """Rows divided by their sums, entries to the power α; empty rows stay empty."""
    out = sp.csr_array(matrix, copy=True)
    lengths = np.diff(out.indptr)
    total = np.repeat(np.asarray(out.sum(1)).ravel(), lengths)
    out.data = (out.data / np.maximum(total, 1e-300)) ** alpha
    return out
