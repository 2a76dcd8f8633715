"""Batches of training lists: by user (P positives each) or by interaction (one positive each)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from itemfold.errors import ItemfoldError
from itemfold.graph.graph import Graph
from itemfold.ops.segment import on_triton
from itemfold.sampling.base import Batch
from itemfold.sampling.exact import uniform_numbers


@dataclass(frozen=True)
class Batches:
    """Divides an epoch into batches of the same shape.

    ``by="users"``: every user once, with up to ``positives`` of its items, redrawn each epoch
    without replacement. ``by="interactions"``: every training interaction once.

    In a graph with weights interactions are drawn in proportion to their weight. The expected
    gradient is that of a loss whose terms are multiplied by the weights, whatever the loss, and no
    heavy interaction dominates a step. With equal weights every interaction occurs once.
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
            keys = self._interactions(generator)
        if not len(keys):
            raise ItemfoldError("training needs interactions, and the training part has none")
        keys = keys[torch.randperm(len(keys), generator=generator, device=device)]
        size = min(self.size, len(keys))
        filler = keys.new_full((-len(keys) % size,), -1)
        return torch.cat([keys, filler]).view(-1, size)

    def draw(self, keys: Tensor, generator: torch.Generator) -> Batch:
        """The lists of one row of keys."""
        real = (keys >= 0).unsqueeze(1)  # [B, 1]
        keys = keys.clamp(min=0)
        if self.by == "users":
            drawn = (
                draw_positives(self.graph, keys, self.positives, generator)
                if self._weight_before is None
                else draw_weighted(self.graph, self._weight_before, keys, self.positives, generator)
            )
            return Batch(keys, drawn[0], drawn[1] & real)
        items = self.graph.col[keys].long() - self.graph.n_users
        return Batch(self.graph.row[keys], items.unsqueeze(1), real, distinct_users=False)

    def _interactions(self, generator: torch.Generator) -> Tensor:
        """All interactions, or as many that are drawn by weight, int64 [interactions]."""
        keys = torch.arange(len(self.graph.col) // 2, device=self.graph.col.device)
        if self._weight_before is None or not len(keys):
            return keys
        # one offset for all: an interaction of weight w occurs ⌊w⌋ or ⌈w⌉ times
        offset = torch.rand(1, generator=generator, device=keys.device, dtype=torch.float64)
        points = (keys + offset) * (self._weight_before[-1] / len(keys))
        return _interval(self._weight_before, points)

    @cached_property
    def _weight_before(self) -> Tensor | None:
        """The sum of the weights before each interaction and at last of all, float64 [n + 1]."""
        if self.graph.weight is None:
            return None
        weight = self.graph.weight[: len(self.graph.col) // 2].cpu().double()
        ends = torch.cat([weight.new_zeros(1), weight.cumsum(0)])
        return ends.to(self.graph.col.device)


def _interval(before: Tensor, points: Tensor) -> Tensor:
    """The interaction whose interval of weight holds each point."""
    return (torch.searchsorted(before, points, right=True) - 1).clamp(0, len(before) - 2)


def draw_weighted(
    graph: Graph, before: Tensor, users: Tensor, count: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """`draw_positives` in proportion to weight: one draw from each of ``count`` equal parts.

    A user's interactions lie side by side, each as long as its weight, and the whole is cut into
    equal parts, as many as draws. An interaction that is drawn twice counts once, so that a list
    has no repetitions. For a user with fewer items than ``count`` there are as many parts as items.
    """
    uniform = uniform_numbers((len(users), count), generator)
    start, end = graph.crow[users].long(), graph.crow[users + 1].long()
    parts = (end - start).clamp(max=count).unsqueeze(1)  # [B, 1]
    part = torch.arange(count, device=users.device)
    low, high = before[start].unsqueeze(1), before[end].unsqueeze(1)
    points = low + (part + uniform) * ((high - low) / parts.clamp(min=1))
    position = _interval(before, points)  # [B, count], ascending
    position = torch.minimum(torch.maximum(position, start.unsqueeze(1)), (end - 1).unsqueeze(1))
    mask = part < parts
    mask[:, 1:] &= position[:, 1:] != position[:, :-1]
    position = torch.where(mask, position, start.unsqueeze(1).clamp(max=len(before) - 2))
    return graph.col[position].long() - graph.n_users, mask


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
        from itemfold.ops.triton.sampling import floyd

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
