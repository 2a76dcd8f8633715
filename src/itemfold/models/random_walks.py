"""Random walks over the interaction graph, and the base of models that learn from them.

A step is one draw and two gathers for all walks together: shapes are fixed, and nothing
synchronises with the device. The graph is bipartite, so a walk t → v → x is either back at t or at
distance two from it: of Node2Vec's three cases two remain, and the exact distribution needs neither
rejection nor stored tables.
"""

from __future__ import annotations

import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from itemfold.graph.graph import Graph
from itemfold.models.base import Kind
from itemfold.models.embedding_model import EmbeddingModel
from itemfold.ops.pair_scores import take_rows
from itemfold.sampling.base import Batch
from itemfold.validation import at_least_zero, positive_integers


def random_walks(
    graph: Graph,
    start: Tensor,
    length: int,
    generator: torch.Generator,
    p: float = 1.0,
    q: float = 1.0,
) -> Tensor:
    """Nodes of walks, int64 ``[B, length]``; −1 after a start that has no neighbours.

    From v, reached from t, a walk goes to neighbour x with weight 1/p if x = t and 1/q otherwise
    (Node2Vec without triangles); p = q is the uniform walk.
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
            back = graph.reverse[edge]  # position of t in v's row
            other = begin + (draws[1, step] * (degree - 1)).long()
            other = other + (other >= back)  # skip t
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
        """Draw nodes, int64 of the given shape."""
        device = self.ends.device
        draw = torch.rand(shape, generator=generator, device=device, dtype=torch.float64)
        found = torch.searchsorted(self.ends, draw * self.ends[-1], right=True)
        return found.clamp(max=len(self.ends) - 1)


def skip_gram(
    centre: Tensor, context: Tensor, real: Tensor, noise: Tensor, window: int, negatives: int
) -> Tensor:
    """Negative-sampling skip-gram over whole walks, averaged over (centre, context) pairs.

    ``centre``, ``context`` [B, L, d] of the walks' nodes, ``real`` bool [B, L], ``noise`` [B, M, d]
    contexts of drawn nodes. A pair at distance 1 … window has the weight (window − distance + 1) /
    window, the mean of word2vec's shrinking window; each pair has ``negatives`` noise contexts,
    estimated from the M contexts shared by its walk.
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


class SkipGramModel(EmbeddingModel):
    """Two vectors per node, trained by skip-gram on walks with parameters p and q."""

    inductive = False
    why_not_inductive = "a node that no walk visited in training has no vector"
    kind = Kind.OWN_OBJECTIVE
    p = q = 1.0

    def __init__(
        self,
        dim: int = 64,
        length: int = 20,
        window: int = 5,
        negatives: int = 5,
        shared: int = 50,
        power: float = 0.0,
    ) -> None:
        super().__init__()
        positive_integers(dim=dim, length=length, window=window, negatives=negatives, shared=shared)
        at_least_zero(power=power)
        self.dim, self.length, self.window = dim, length, window
        self.negatives, self.shared, self.power = negatives, shared, power
        self.known: Graph | None = None

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Allocate two vectors per node."""
        super().setup(train, inductive=inductive, generator=generator)
        shape = (self.n_users + self.n_items, self.dim)
        self.centre = nn.Parameter(torch.randn(shape, generator=generator) * 0.1)
        self.context = nn.Parameter(torch.randn(shape, generator=generator) * 0.1)

    def encode(self, graph: Graph) -> tuple[Tensor, Tensor]:
        """Both vectors concatenated, for items in reverse order: ``[nodes, 2d]``."""
        n = self.n_users
        users = torch.cat([self.centre[:n], self.context[:n]], dim=1)
        return users, torch.cat([self.context[n:], self.centre[n:]], dim=1)

    def own_loss(self, graph: Graph, batch: Batch, generator: torch.Generator) -> Tensor:
        """Skip-gram on walks from the batch's users and from items."""
        if self.known is not graph:
            self.known, self.noise = graph, NodeDraws(graph.degree, self.power)
            self.starts = NodeDraws(graph.item_degree, 0.0)
        more = max(1, round(len(batch.users) * self.n_items / self.n_users))
        items = self.starts((1, more), generator).squeeze(0) + self.n_users
        start = torch.cat([batch.users, items])
        walks = random_walks(graph, start, self.length, generator, self.p, self.q)  # [B', L]
        real = walks >= 0
        real[: len(batch.users)] &= batch.mask.any(1, keepdim=True)
        nodes = walks.clamp(min=0)
        noise = self.noise((len(walks), self.shared), generator)  # [B', M]
        return skip_gram(
            take_rows(self.centre, nodes),
            take_rows(self.context, nodes),
            real,
            take_rows(self.context, noise),
            self.window,
            self.negatives,
        )
