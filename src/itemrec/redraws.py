"""Exact draws on a CPU: from all items, and again where a positive was hit.

A binary search for every draw is what a GPU likes; a CPU spends its time on mispredicted branches.
Here a small table of marks says for nearly every draw that it is no positive of its user, and only
the few marked ones are looked up. The draws are as exact as `Draws`: an item drawn from the whole
catalogue is kept unless it *is* a positive, and is then replaced by a draw from the others.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

MARKS = 1 << 22  # entries of the table; a batch's positives fill a few per cent of it
SPREAD = 0x9E3779B1 & (MARKS - 1) | 1  # odd: rows land on different places


class Redraws:
    """Which items are positives of which user, for a batch at a time."""

    def __init__(self, train: sp.csr_array) -> None:
        self.n_items = int(train.shape[1])
        self.crow = torch.from_numpy(train.indptr.astype(np.int64))
        self.col = torch.from_numpy(train.indices.astype(np.int64))
        rows = np.repeat(np.arange(train.shape[0], dtype=np.int64), np.diff(train.indptr))
        # a last key that nothing equals: a position found is always one that exists
        keys = np.append(rows * self.n_items + train.indices, np.iinfo(np.int64).max)
        self.keys = torch.from_numpy(keys)

    def draw(self, users: Tensor, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Uniform items ``[B, n]``, and the flat places of those that are positives."""
        items = torch.randint(self.n_items, (len(users), n), generator=generator)
        marks = torch.zeros(MARKS, dtype=torch.bool)
        start = self.crow[users]
        count = self.crow[users + 1] - start
        owner = torch.repeat_interleave(torch.arange(len(users)), count)
        place = torch.arange(len(owner)) - (count.cumsum(0) - count - start)[owner]
        positives = self.col.index_select(0, place) + owner * SPREAD
        marks.index_fill_(0, positives.bitwise_and_(MARKS - 1), True)
        shift = torch.arange(len(users)).unsqueeze(1) * SPREAD  # [B, 1]
        places = (items + shift).bitwise_and_(MARKS - 1).view(-1)
        marked = torch.nonzero(marks.index_select(0, places)).squeeze(1)
        wanted = users[marked // n] * self.n_items + items.view(-1)[marked]
        found = self.keys[torch.searchsorted(self.keys, wanted)] == wanted
        return items, marked[found]
