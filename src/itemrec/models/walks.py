"""Random walks over the interaction graph, all at once, and skip-gram on them.

Every step is a draw and two gathers for all walks together: fixed shapes, nothing waits for the
device. The graph is bipartite, so a walk t → v → x is either back at t or at distance two from it:
Node2Vec's three cases are two, and the exact law needs neither rejection nor stored tables.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import softplus

from itemrec.graph import Graph


def random_walks(
    graph: Graph,
    start: Tensor,
    length: int,
    generator: torch.Generator,
    p: float = 1.0,
    q: float = 1.0,
) -> Tensor:
    """Nodes of walks, int64 ``[B, length]``; −1 behind a start that has no neighbours.

    From v, reached from t, to neighbour x with weight 1/p where x = t and 1/q elsewhere (Node2Vec's
    law without triangles); p = q is the uniform walk.
    """
    crow, col, last = graph.crow.long(), graph.col, max(len(graph.col) - 1, 0)
    shape = (2, length, len(start))
    draws = torch.rand(shape, generator=generator, device=start.device, dtype=torch.float64)
    node, edge = start, torch.full_like(start, -1)
    alive = crow[start + 1] > crow[start]
    nodes = [start]
    for step in range(1, length):
        begin = crow[node]
        degree = crow[node + 1] - begin
        if step == 1:
            edge = begin + (draws[1, step] * degree).long()
        else:
            back = graph.reverse[edge]  # where t stands in v's row
            other = begin + (draws[1, step] * (degree - 1)).long()
            other = other + (other >= back)  # past t
            home = draws[0, step] * (1 / p + (degree - 1) / q) < 1 / p
            edge = torch.where(home, back, other)
        edge = edge.clamp(max=last)
        node = torch.where(alive, col[edge].long(), node)
        nodes.append(torch.where(alive, node, -1))
    return torch.stack(nodes, dim=1)


class NodeDraws:
    """Nodes in proportion to degree^power, drawn by one binary search each."""

    def __init__(self, degree: Tensor, power: float) -> None:
        weight = degree.double().pow(power) * (degree > 0)
        self.ends = weight.cumsum(0)

    def __call__(self, shape: tuple[int, int], generator: torch.Generator) -> Tensor:
        """int64 of the given shape."""
        device = self.ends.device
        draw = torch.rand(shape, generator=generator, device=device, dtype=torch.float64)
        found = torch.searchsorted(self.ends, draw * self.ends[-1], right=True)
        return found.clamp(max=len(self.ends) - 1)


def skip_gram(
    centre: Tensor, context: Tensor, real: Tensor, noise: Tensor, window: int, negatives: int
) -> Tensor:
    """Negative-sampling skip-gram over whole walks, a mean over (centre, context) pairs.

    ``centre``, ``context`` [B, L, d] of the walks' nodes, ``real`` bool [B, L], ``noise`` [B, M, d]
    contexts of drawn nodes. Pairs at distance 1 … window count (window − distance + 1)/window, the
    mean of word2vec's shrinking window; each pair has ``negatives`` noise contexts, estimated from
    the M that its walk shares.
    """
    length = centre.shape[1]
    place = torch.arange(length, device=centre.device)
    distance = (place.unsqueeze(1) - place).abs()
    weight = ((window - distance + 1).clamp(min=0) / window) * (distance > 0)  # [L, L]
    pairs = weight * (real.unsqueeze(2) & real.unsqueeze(1))  # [B, L, L]
    near = softplus(-(centre @ context.transpose(1, 2)))  # [B, L, L]
    far = softplus(centre @ noise.transpose(1, 2)).mean(2)  # [B, L]
    total = (near * pairs).sum() + negatives * (far * pairs.sum(2)).sum()
    return total / pairs.sum().clamp(min=1)
