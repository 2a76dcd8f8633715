"""Batches of training lists: by user (P positives each) or by interaction (one positive each)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from itemrec.errors import ItemrecError
from itemrec.graph.graph import Graph
from itemrec.ops.segment import on_triton
from itemrec.sampling.batch import Batch
from itemrec.sampling.exact import uniform_numbers


@dataclass(frozen=True)
class Batches:
    """Divides an epoch into batches of the same shape.

    ``by="users"``: every user once, with up to ``positives`` of its items, redrawn each epoch
    without replacement. ``by="interactions"``: every training interaction once.
    """

    graph: Graph
    by: Literal["users", "interactions"]
    size: int
    positives: int

    def epoch(self, generator: torch.Generator) -> Tensor:
        """Keys (users or interactions) in random order, one row per batch; −1 pads the last row."""
        device = self.graph.col.device
        if self.by == "users":
            keys = torch.nonzero(self.graph.degree[: self.graph.n_users] > 0).squeeze(1)
        else:
            keys = torch.arange(len(self.graph.col) // 2, device=device)
        if not len(keys):
            raise ItemrecError("there are no training interactions, so there is nothing to learn")
        keys = keys[torch.randperm(len(keys), generator=generator, device=device)]
        size = min(self.size, len(keys))
        filler = keys.new_full((-len(keys) % size,), -1)
        return torch.cat([keys, filler]).view(-1, size)

    def draw(self, keys: Tensor, generator: torch.Generator) -> Batch:
        """The lists of one row of keys."""
        real = (keys >= 0).unsqueeze(1)  # [B, 1]
        keys = keys.clamp(min=0)
        if self.by == "users":
            positives, mask = draw_positives(self.graph, keys, self.positives, generator)
            return Batch(keys, positives, mask & real)
        items = self.graph.col[keys].long() - self.graph.n_users
        return Batch(self.graph.row[keys], items.unsqueeze(1), real, distinct_users=False)


def draw_positives(
    graph: Graph, users: Tensor, count: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """``count`` distinct training items per user ``[B, count]`` and which of them are real.

    Floyd's sampling, one vectorised step per item: the j-th draw is uniform over the first m+1
    positions (m = degree − count + j), and a position drawn before is replaced by m itself. For a
    user with at most ``count`` items all are taken.
    """
    uniform = uniform_numbers((len(users), count), generator)
    if on_triton(users):
        from itemrec.ops.triton.sampling import floyd

        return floyd(graph.crow, graph.col, users, uniform, graph.n_users)
    start = graph.crow[users].long()  # [B]
    degree = graph.crow[users + 1].long() - start
    few = degree <= count
    picked: list[Tensor] = []
    for j in range(count):
        last = (degree - count + j).clamp(min=j)  # [B]
        draw = torch.where(few, torch.full_like(last, j), (uniform[:, j] * (last + 1)).long())
        for earlier in picked:
            draw = torch.where((draw == earlier) & ~few, last, draw)
        picked.append(draw)
    position = torch.stack(picked, dim=1)  # [B, count]
    mask = position < degree.unsqueeze(1)
    position = torch.where(mask, position, torch.zeros_like(position))
    return graph.col[start.unsqueeze(1) + position].long() - graph.n_users, mask
