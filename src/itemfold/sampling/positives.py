"""Lookup of the training positives of users."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.data.csr import as_ones, row_of_entry
from itemfold.graph.graph import row_type
from itemfold.ops.segment import on_triton


class Positives:
    """Whether an item is a training positive of a user: one sorted table of user–item keys."""

    def __init__(self, train: sp.csr_array, device: Any = "cpu") -> None:
        train = as_ones(train)
        self.n_items = int(train.shape[1])
        keys = row_of_entry(train) * self.n_items + train.indices
        # a last key that matches nothing, so that every search result is a valid position
        self.keys = torch.from_numpy(np.append(keys, np.iinfo(np.int64).max)).to(device)
        self.starts = torch.from_numpy(train.indptr.astype(row_type(train.nnz))).to(device)
        self.items = torch.from_numpy(train.indices.astype(np.int32)).to(device)

    def is_positive(self, users: Tensor, items: Tensor) -> Tensor:
        """Users ``[B]`` against their items ``[B, N]`` or one shared list ``[N]``: bool [B, N]."""
        if items.dim() == 1 and on_triton(items):
            from itemfold.ops.triton.segment import contains

            return contains(self.starts, self.items, users, items)
        if items.dim() == 1:
            return self._among(users, items)
        wanted = users.unsqueeze(1) * self.n_items + items  # [B, N]
        return self.keys[torch.searchsorted(self.keys, wanted)] == wanted

    def _among(self, users: Tensor, items: Tensor) -> Tensor:
        """Mark histories among the distinct items, [B, D], instead of N searches."""
        distinct, place = torch.unique(items, return_inverse=True)  # [D], [N]
        column = items.new_full((self.n_items,), len(distinct))  # of each item; D for all others
        column[distinct] = torch.arange(len(distinct), device=items.device)
        start, length = self.starts[users], self.starts[users + 1] - self.starts[users]
        row = torch.repeat_interleave(length)  # [E], entries of all histories
        entry = torch.arange(len(row), device=row.device) - (length.cumsum(0) - length)[row]
        taken = torch.zeros(len(users), len(distinct) + 1, dtype=torch.bool, device=items.device)
        taken[row, column[self.items[start[row] + entry].long()]] = True
        return taken[:, place]
