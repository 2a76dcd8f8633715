"""The smooth rank over the whole catalogue, streamed in blocks of items.

``Σ_j σ((u·e_j − s_p)/τ)`` over every item j that is not a training positive of the user. Scores are
computed block by block and recomputed in the backward pass, so that memory is B × block instead of
B × items × P.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold import ranks
from itemfold.graph.graph import Graph
from itemfold.ops.columns import sum_own_rows
from itemfold.ops.pair_scores import pair_scores
from itemfold.ops.smooth_rank import add_counts, slopes
from itemfold.sampling.base import Batch, Encoded, Sampler, ScoredLists

BLOCK = 4096  # items scored at a time


@dataclass(frozen=True)
class CatalogueScores:
    """Streamed scores of all items as negatives of a batch of users (`LazyScores`)."""

    users: Tensor  # [B, d]
    items: Tensor  # [I, d]
    rows: Tensor  # int64 [E], the user of each positive
    columns: Tensor  # int64 [E], its item; E is the same for all batches, so some are padding
    real: Tensor  # bool [E]
    block: int = BLOCK

    def count_above(self, pos: Tensor, tau: float) -> Tensor:
        """Smooth number of negatives above each positive, ``[B, P] → [B, P]``."""
        out: Tensor = _CountAll.apply(self.users, self.items, pos, tau, self)  # type: ignore[no-untyped-call]
        return out

    def blocks(self, users: Tensor, items: Tensor) -> Any:
        """Scores ``[B, n]`` of each block of items with positives at −∞, and where it begins."""
        own = ranks.own_rows(len(users))
        n_users = own.stop - own.start
        for start in range(0, len(items), self.block):
            part = items[start : start + self.block]
            width = len(part)
            # one extra row takes the positives outside the block
            scores = users.new_empty(n_users + 1, width)
            if ranks.size() == 1:
                torch.mm(users, part.T, out=scores[:n_users])
            else:
                scores[:n_users] = ranks.add_up_rows(users @ part.T)
            here = self.real & (self.columns >= start) & (self.columns < start + width)
            place = torch.where(here, self.rows * width + self.columns - start, n_users * width)
            scores.view(-1).index_fill_(0, place, -torch.inf)
            yield start, scores[:n_users], part


@dataclass
class All(Sampler):
    """Every item that is not a training positive of the user is a negative; nothing is drawn.

    For the `item_*` losses, which count the items above a positive and can stream over items.
    """

    by_columns = True

    def prepare(self, train: sp.csr_array, device: Any = "cpu") -> None:
        """Store the training positives, which are masked."""
        self._graph = Graph.from_csr(train, device)
        self._slots: dict[tuple[int, bool], Tensor] = {}

    def score(
        self, encoded: Encoded, batch: Batch, n: int, generator: torch.Generator
    ) -> ScoredLists:
        """Streamed scores of all items in place of sampled ones; ``n`` has no effect."""
        user_vectors = encoded.users_of(batch)  # [B, d]
        own = batch.users[ranks.own_rows(len(batch.users))]
        catalogue = self.catalogue(user_vectors, own, encoded.items, batch.distinct_users)
        pos = sum_own_rows(pair_scores(user_vectors, encoded.items, batch.positives))
        all_items = torch.arange(len(encoded.items), device=encoded.items.device)
        return ScoredLists(pos, catalogue, all_items)

    def slots(self, batch: int, distinct: bool) -> Tensor:
        """Slots for the training positives of a batch, of the same shape for every batch."""
        if (batch, distinct) not in self._slots:
            degree = self._graph.history_length.float()
            if distinct:  # at worst a batch holds the users with the longest histories
                most = int(torch.topk(degree, min(batch, len(degree))).values.double().sum())
            else:  # at worst the same user every time
                most = int(degree.max()) * batch
            self._slots[batch, distinct] = torch.arange(most, device=degree.device)
        return self._slots[batch, distinct]

    def catalogue(
        self, users: Tensor, index: Tensor, items: Tensor, distinct: bool
    ) -> CatalogueScores:
        """All negatives of users with vectors ``[B, d]``; ``index`` are own training rows [b]."""
        slots, graph = self.slots(len(index), distinct), self._graph
        start = graph.crow[index].long()
        count = graph.crow[index + 1].long() - start
        ends = count.cumsum(0)
        rows = torch.searchsorted(ends, slots, right=True).clamp(max=len(index) - 1)
        place = start[rows] + slots - (ends - count)[rows]
        real = slots < ends[-1]
        columns = graph.col[torch.where(real, place, 0)].long() - graph.n_users
        return CatalogueScores(users, items, rows, columns, real)


class _CountAll(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, users: Tensor, items: Tensor, pos: Tensor, tau: float, catalogue: CatalogueScores
    ) -> Tensor:
        pos = pos.contiguous()
        ctx.save_for_backward(users, items, pos)
        ctx.tau, ctx.catalogue = tau, catalogue
        counts = torch.zeros_like(pos)
        for _, scores, _ in catalogue.blocks(users, items):
            add_counts(scores, pos, counts, tau)
        return counts

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        users, items, pos = ctx.saved_tensors
        grad = (grad / ctx.tau).contiguous()
        grad_users, grad_items = torch.zeros_like(users), torch.empty_like(items)
        grad_pos = torch.zeros_like(pos)
        for start, scores, part in ctx.catalogue.blocks(users, items):
            weight = slopes(scores, pos, grad, grad_pos, ctx.tau)  # d loss / d score, [B, n]
            if ranks.size() > 1:
                weight = ranks.all_rows(weight, len(users))
            grad_users += weight @ part
            torch.mm(weight.T, users, out=grad_items[start : start + len(part)])
        return grad_users, grad_items, grad_pos, None, None
