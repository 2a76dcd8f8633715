"""The positives of a batch as the negatives of each of its users."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from itemfold import ranks
from itemfold.data.csr import as_ones, row_of_entry
from itemfold.ops.columns import whole_rows
from itemfold.ops.pair_scores import take_rows
from itemfold.sampling.base import Batch, Encoded, Sampler, ScoredLists
from itemfold.sampling.exact import prepared
from itemfold.sampling.positives import Positives
from itemfold.validation import positive_integers


@dataclass
class InBatch(Sampler):
    """The positives of the whole batch, or of a part of it, are the negatives of its users.

    Nothing is drawn, so `n_negatives` has no effect; the user's training items are masked. With
    `group` a batch is cut into parts of so many rows, and each part shares its own positives: a
    large batch then costs one propagation, but not the square of its size.

    Args:
        group: Rows of a batch that share their positives; default: all.
    """

    by_columns = True
    group: int | None = None

    def __post_init__(self) -> None:
        if self.group is not None:
            positive_integers(group=self.group)

    def prepare(self, train: sp.csr_array, device: Any = "cpu") -> None:
        """Store the training positives, which are masked."""
        self._positives = Positives(train, device)
        self._train, self._device = as_ones(train), device
        self._log_rates: dict[tuple[bool, int], Tensor] = {}

    def score(
        self, encoded: Encoded, batch: Batch, n: int, generator: torch.Generator
    ) -> ScoredLists:
        """One product with the positives of each part; ``n`` has no effect.

        Each of several ranks scores its own rows of the batch, ``[b]``, with all columns of their
        vectors: as vectors are shorter than lists of shared items, exchanging them takes fewer
        bytes than sums of products.
        """
        n_rows, width = batch.positives.shape  # B, P
        shared, real, size = self.shared_items(batch)
        length = shared.shape[1]  # M
        rows, own = ranks.row_slices(n_rows), ranks.own_rows(n_rows)
        parts = [parts_of(some, size) for some in rows]  # of each rank; two may share one
        wanted = [slice(some.start * length, some.stop * length) for some in parts]
        users = whole_rows(encoded.users_of(batch), rows)  # [b, d]
        items = whole_rows(take_rows(encoded.items, shared.view(-1)), wanted)
        items = items.view(-1, length, users.shape[1])  # [parts, M, d]
        part = parts_of(own, size)
        before = own.start - part.start * size  # rows of the first part that another rank has
        positives = items.view(-1, width, users.shape[1])
        if len(positives) != len(users):
            positives = positives[before : before + len(users)]
        pos = (users.unsqueeze(1) * positives).sum(2)  # [b, P]
        neg = products(users, items, before, size)  # [b, M]
        known: Positives = prepared(self, "_positives")
        mask = known.negatives(batch.users[own], shared[part], real[part], size, before)
        return ScoredLists(pos, neg, batch.positives.reshape(-1), mask, batch.mask.reshape(-1))

    def shared_items(self, batch: Batch) -> tuple[Tensor, Tensor, int]:
        """The items that each part shares, which are real, ``[parts, M]``, and rows of a part."""
        n_rows, width = batch.positives.shape
        size = min(self.group or n_rows, n_rows)
        length = size * width
        # the last part is filled up with rows of the first, whose items do not count
        place = torch.arange(-(-n_rows // size) * size, device=batch.users.device) % n_rows
        shared, real = (x[place].view(-1, length) for x in (batch.positives, batch.mask))
        real[-1, length - (len(place) - n_rows) * width :] = False
        return shared, real, size

    def log_expected(self, batch: Batch, lists: ScoredLists) -> Tensor:
        """How often an item is a positive of the other rows of a part, on average, ``[B, M]``."""
        shared, _, size = self.shared_items(batch)
        key = (batch.distinct_users, batch.positives.shape[1])
        if key not in self._log_rates:
            self._log_rates[key] = log_rates(self._train, *key).to(self._device)
        part = torch.arange(len(batch.users), device=shared.device) // size
        return self._log_rates[key][shared][part] + math.log(max(size - 1, 1))


def log_rates(train: sp.csr_array, by_users: bool, positives: int) -> Tensor:
    """Logarithm of the expected number of times that another row has an item as a positive.

    A row is one of the interactions, or a user with some of its items. A row that lacks the item is
    not counted: one row less remains for the others.
    """
    length = np.diff(train.indptr)
    chance, rows = np.ones(train.nnz), train.nnz
    if by_users:
        chance = (np.minimum(length, positives) / np.maximum(length, 1))[row_of_entry(train)]
        rows = train.shape[0]
    rate = np.bincount(train.indices, chance, minlength=train.shape[1]) / max(rows - 1, 1)
    return torch.from_numpy(np.log(np.maximum(rate, 1e-300))).float()


def parts_of(rows: slice, size: int) -> slice:
    """The parts that rows of a batch belong to; at least one, even if there are no rows."""
    start = max(min(rows.start, rows.stop - 1), 0) // size
    return slice(start, max(-(-rows.stop // size), start + 1))


def products(users: Tensor, shared: Tensor, before: int, size: int) -> Tensor:
    """Users ``[b, d]`` times the items that their part shares, ``[parts, M, d] → [b, M]``.

    A part has ``size`` users, of which the first part lacks ``before`` and the last maybe some.
    """
    parts, n = len(shared), len(users)
    if parts == 1:
        return users @ shared[0].T
    after = parts * size - before - n
    padded = F.pad(users, (0, 0, before, after)) if before or after else users
    out = torch.bmm(padded.view(parts, size, -1), shared.transpose(1, 2))
    out = out.view(parts * size, -1)
    return out if len(out) == n else out[before : before + n]  # the gradient of a slice is a copy
