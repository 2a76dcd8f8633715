"""Negatives, positives and whole histories of a batch, for models with their own objective.

Tables belong to one graph and are built at the first call, before a step is recorded as a CUDA
graph; afterwards every call has the same shape and never waits for the device.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from itemfold.graph.graph import Graph
from itemfold.ops.segment import on_triton
from itemfold.sampling import Uniform
from itemfold.sampling.base import Batch
from itemfold.sampling.positives import Positives


class OwnNegatives:
    """Uniform negatives for a model that draws them itself."""

    graph: Graph | None = None

    def __call__(self, graph: Graph, users: Tensor, n: int, generator: torch.Generator) -> Tensor:
        """Item ids ``[B, n]``, none of them a training item of its user."""
        if self.graph is not graph:
            self.graph, self.sampler = graph, Uniform()
            self.sampler.prepare(graph.interactions(), graph.col.device)
        return self.sampler(users, n, generator)


class OwnInBatch:
    """Negatives among a batch's positives for a model that scores them itself."""

    graph: Graph | None = None

    def __call__(self, graph: Graph, batch: Batch) -> Tensor:
        """Which of the M = B·P positives of a batch are negatives of each user, bool ``[B, M]``."""
        if self.graph is not graph:
            self.graph, self.known = graph, Positives(graph.interactions(), graph.col.device)
        shared, real = (x.reshape(1, -1) for x in (batch.positives, batch.mask))
        return self.known.negatives(batch.users, shared, real, size=len(batch.users))


class UserItems(NamedTuple):
    """The items of several users, one list after another; entries after the last are padding."""

    starts: Tensor  # int32 [B + 1], where each list begins
    owner: Tensor  # int64 [entries], row in the batch
    item: Tensor  # int64 [entries]
    valid: Tensor  # bool [entries], False for padding


class UserRows:
    """All training items of a batch of users, as one flat list of entries."""

    graph: Graph | None = None

    def __call__(self, graph: Graph, users: Tensor, real: Tensor) -> UserItems:
        """The items of users ``[B]``; ``real`` bool [B] leaves out padding rows.

        On a GPU the number of entries is that of the B users with the most items, the same for
        every batch; elsewhere it is exact.
        """
        begin = graph.crow[users].long()  # [B]
        size = (graph.crow[users + 1].long() - begin) * real
        ends = size.cumsum(0)
        entry = torch.arange(self._capacity(graph, ends), device=users.device)
        owner = torch.searchsorted(ends, entry, right=True).clamp(max=len(users) - 1)
        place = begin[owner] + entry - (ends - size)[owner]
        item = graph.col[place.clamp(max=len(graph.col) // 2 - 1)].long() - graph.n_users
        starts = torch.cat([ends.new_zeros(1), ends]).int()
        return UserItems(starts, owner, item, entry < ends[-1])

    def _capacity(self, graph: Graph, ends: Tensor) -> int:
        if not on_triton(ends):
            return int(ends[-1])
        if self.graph is not graph:
            self.graph, self.capacities = graph, dict[int, int]()
        if len(ends) not in self.capacities:
            degree = graph.degree[: graph.n_users].long()
            self.capacities[len(ends)] = int(degree.topk(min(len(ends), len(degree))).values.sum())
        return self.capacities[len(ends)]
