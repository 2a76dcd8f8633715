"""Similarities of items: cosines of item vectors, of the users of items, or of their columns.

Items are unit vectors, dense or sparse, so the sum of the similarities to a set of items is the
product with the sum of their vectors, and no pair has to be visited.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from itemfold.data.csr import take_columns
from itemfold.models.base import Model
from itemfold.models.with_new_items import WithNewItems

UnitVectors = Tensor | sp.csr_array  # [items, d]; the length of a row is 1, or 0 without values
NEAREST = 10  # known items whose mean vector represents a new item


def item_vectors(model: Model, train: sp.csr_array) -> Tensor | None:
    """Unit vectors of the items, ``[items, d]``, or None if a model has none.

    A hybrid has those of its GNN. They are centred at the mean over the training interactions:
    vectors of popular items share a direction that has nothing to do with their similarity.
    """
    vectors = getattr(getattr(model, "gnn", model), "item_vectors", None)
    if not isinstance(vectors, Tensor):
        return None
    count = torch.from_numpy(np.bincount(train.indices, minlength=len(vectors)))
    share = (count / max(int(count.sum()), 1)).to(vectors.device, torch.float32)
    vectors = vectors.detach().float()
    return F.normalize(vectors - share @ vectors, dim=1)


def unit_sets(matrix: sp.csr_array) -> sp.csr_array:
    """Sets as unit vectors: rows of ones and zeros, scaled to length 1.

    >>> unit_sets(sp.csr_array([[1, 1, 1, 1], [0, 0, 0, 0]])).toarray().tolist()
    [[0.5, 0.5, 0.5, 0.5], [0.0, 0.0, 0.0, 0.0]]
    """
    count = np.diff(matrix.indptr)
    values = np.repeat(1 / np.sqrt(np.maximum(count, 1)), count).astype(np.float32)
    return sp.csr_array((values, matrix.indices, matrix.indptr), shape=matrix.shape)


def similar_by(model: Model, train: sp.csr_array) -> UnitVectors:
    """The item vectors of a model; if it has none, the users of each item.

    A new item has the mean vector of the known items with the most similar features.
    """
    if not isinstance(model, WithNewItems):
        vectors = item_vectors(model, train)
        return unit_sets(sp.csr_array(train.T)) if vectors is None else vectors
    known = similar_by(model.model, take_columns(train, np.arange(model.n_known)))
    weights = model.nearest_known(NEAREST)  # [new, known]
    if isinstance(known, Tensor):
        dense = torch.from_numpy(np.asarray(weights @ known.cpu().numpy())).to(known)
        return torch.cat([known, F.normalize(dense, dim=1)])
    means = sp.csr_array(weights @ known)
    length = np.sqrt(means.multiply(means).sum(axis=1))
    scale = (1 / np.maximum(length, 1e-12)).astype(np.float32)
    scaled = sp.csr_array(sp.diags_array(scale) @ means)
    return sp.csr_array(sp.vstack([known, scaled], format="csr", dtype=np.float32))


class DensePool:
    """The vectors of candidates ``[B, P]``, and the sum of the vectors that were taken."""

    def __init__(self, vectors: Tensor, pool: Tensor) -> None:
        self.vectors = vectors[pool.clamp(min=0)]  # [B, P, d]
        self.taken = self.vectors.new_zeros(len(pool), vectors.shape[1])

    def take(self, best: Tensor) -> Tensor:
        """Take a candidate of each row; returns similarities to all taken ones, ``[B, P]``."""
        row = torch.arange(len(best), device=best.device)
        self.taken += self.vectors[row, best]
        return (self.vectors @ self.taken.unsqueeze(2)).squeeze(2)


class SparsePool:
    """The same for sparse vectors: one matrix, with separate columns for each row of the pool."""

    def __init__(self, vectors: sp.csr_array, pool: Tensor) -> None:
        n_rows, self.width = pool.shape
        self.device = pool.device
        found = vectors[pool.clamp(min=0).flatten().cpu().numpy()]
        dim = vectors.shape[1]
        owner = np.repeat(np.arange(n_rows, dtype=np.int64), self.width)
        columns = found.indices + np.repeat(owner, np.diff(found.indptr)) * dim
        parts = (found.data, columns, found.indptr.astype(np.int64))
        self.vectors = sp.csr_array(parts, shape=(n_rows * self.width, n_rows * dim))
        self.taken = np.zeros(n_rows * dim, dtype=np.float32)

    def take(self, best: Tensor) -> Tensor:
        """Take a candidate of each row; returns similarities to all taken ones, ``[B, P]``."""
        at = np.arange(len(best)) * self.width + best.cpu().numpy()
        rows = self.vectors[at]
        self.taken[rows.indices] += rows.data  # different rows have different columns
        total = self.vectors @ self.taken
        return torch.from_numpy(total).view(-1, self.width).to(self.device)


def pool_of(vectors: UnitVectors, pool: Tensor) -> DensePool | SparsePool:
    """The candidates of each row, to be taken one at a time."""
    if isinstance(vectors, Tensor):
        return DensePool(vectors, pool)
    return SparsePool(vectors, pool)
