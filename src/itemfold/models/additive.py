"""Explanations of models whose scores are sums over the history."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.models.base import Model


@torch.no_grad()
def explain_additive(model: Model, history: sp.csr_array, items: Tensor) -> Tensor:
    """`Model.explain` of a model whose scores are sums over the history: each item scored alone."""
    single = sp.csr_array(
        (history.data, history.indices, np.arange(history.nnz + 1)),
        shape=(history.nnz, history.shape[1]),
    )
    alone = model.scores(single, np.full(history.nnz, -1, dtype=np.int64))  # [H, items]
    return alone[:, items].T
