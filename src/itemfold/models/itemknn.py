"""ItemKNN: similarity of items that have users in common.

Sarwar et al., "Item-based Collaborative Filtering Recommendation Algorithms", WWW 2001, with the
shrunk cosine of Deshpande & Karypis (2004) and later practice. With counts ``G = XᵀX``, degrees d:

    s_ij = G_ij / (√(d_i d_j) + shrink)     W_ij = s_ij if i is one of the k nearest of j, else 0
    scores = history · W                                            [B, items]

Inductive: a user is represented by the history alone.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from itemfold.models.item_item import SparseWeights, cooccurrence, strongest
from itemfold.validation import at_least_zero, positive_integers


class ItemKNN(SparseWeights):
    """Nearest neighbours among items by shrunk cosine (WWW 2001).

    A user is represented by the history alone, and explanations are exact.

    Args:
        neighbours: Neighbours of an item, k.
        shrink: Added to the denominator; reduces cosines of rare items.
    """

    paper = "Item-based Collaborative Filtering Recommendation Algorithms"
    year = 2001

    def __init__(self, neighbours: int = 100, shrink: float = 10.0) -> None:
        super().__init__()
        positive_integers(neighbours=neighbours)
        at_least_zero(shrink=shrink)
        self.neighbours, self.shrink = neighbours, shrink

    def solve(self, train: sp.csr_array) -> None:
        """Count, normalise and keep the nearest, one block of items at a time."""
        squares = np.square(train.data, dtype=np.float64)  # a degree, if there are no weights
        root = np.sqrt(np.bincount(train.indices, squares, self.n_items)).astype(np.float32)
        blocks = []
        for start, similarity in cooccurrence(train):
            end = start + len(similarity)
            below = root[start:end, None] * root + np.float32(self.shrink)
            similarity /= np.maximum(below, np.float32(1e-12))
            similarity[np.arange(len(similarity)), np.arange(start, end)] = 0
            values, nearest = strongest(similarity, self.neighbours)
            blocks.append((start, nearest, values))
        self.keep(blocks)
