"""Batches of training lists: by users (P positives each) or by interactions (one positive each)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from itemrec.graph import Graph


@dataclass(frozen=True)
class Batch:
    """Lists to be ranked. A row without a real positive is padding and counts for nothing."""

    users: Tensor  # int64 [B]
    positives: Tensor  # int64 [B, P]
    mask: Tensor  # bool [B, P], True where a positive is real


def user_batches(
    graph: Graph, size: int, positives: int, generator: torch.Generator
) -> Iterator[Batch]:
    """Every user once in random order, with up to ``positives`` of its items.

    Items are drawn without replacement; a user with fewer uses what it has. All batches have one
    shape: the last is filled with rows that carry no positive.
    """
    device = graph.col.device
    active = torch.nonzero(graph.degree[: graph.n_users] > 0).squeeze(1)
    order = active[torch.randperm(len(active), generator=generator, device=device)]
    size = min(size, len(order))
    for start in range(0, len(order), size):
        users = order[start : start + size]
        missing = size - len(users)
        if missing:
            users = torch.cat([users, order[:missing]])
        items, mask = draw_positives(graph, users, positives, generator)
        if missing:
            mask[size - missing :] = False
        yield Batch(users, items, mask)


def interaction_batches(graph: Graph, size: int, generator: torch.Generator) -> Iterator[Batch]:
    """Every training interaction once in random order."""
    device = graph.col.device
    half = len(graph.col) // 2
    order = torch.randperm(half, generator=generator, device=device)
    size = min(size, half)
    row, col = graph.row, graph.col
    for start in range(0, half, size):
        edges = order[start : start + size]
        mask = torch.ones(size, 1, dtype=torch.bool, device=device)
        missing = size - len(edges)
        if missing:
            edges = torch.cat([edges, order[:missing]])
            mask[size - missing :] = False
        yield Batch(row[edges], (col[edges].long() - graph.n_users).unsqueeze(1), mask)


def draw_positives(
    graph: Graph, users: Tensor, count: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """``count`` distinct training items a user ``[B, count]`` and which of them are real.

    Floyd's sampling, one vector step an item: the j-th draw is uniform over the first m+1 positions
    (m = degree − count + j), and a position drawn before is replaced by m itself.
    """
    start = graph.crow[users].long()  # [B]
    degree = graph.crow[users + 1].long() - start
    picked: list[Tensor] = []
    for j in range(count):
        last = (degree - count + j).clamp(min=j)  # [B]
        uniform = torch.rand(len(users), generator=generator, device=users.device, dtype=torch.float64)
        draw = (uniform * (last + 1)).long()
        # users with at most `count` items take them all, in order
        draw = torch.where(degree <= count, torch.full_like(draw, j), draw)
        for earlier in picked:
            draw = torch.where((draw == earlier) & (degree > count), last, draw)
        picked.append(draw)
    position = torch.stack(picked, dim=1)  # [B, count]
    mask = position < degree.unsqueeze(1)
    position = torch.where(mask, position, torch.zeros_like(position))
    items = graph.col[start.unsqueeze(1) + position].long() - graph.n_users
    return items, mask
