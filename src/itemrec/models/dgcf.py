"""DGCF: every interaction is split over several intents, and each intent has a graph of its own.

Wang et al., "Disentangled Graph Collaborative Filtering", SIGIR 2020. A vector is K chunks, one an
intent. Each interaction has a logit an intent, S_k(u,i) = 0 at first; a layer repeats T times::

    S̃_k = softmax_k(S_k)                              a share of the edge for each intent
    u_k = Σ_i S̃_k(u,i) / √(D_k(u) D_k(i)) · i_k⁰      D_k(v) = Σ S̃_k over v's edges; i_k alike
    S_k(u,i) += û_kᵀ tanh(î_k⁰)                       ^: of length 1; ⁰: before the layer

The last u_k, i_k are the layer's output; logits go on into the next layer. e = mean of all layers.
Intents are kept apart by the distance correlation between their chunks (`extra_loss`).

An edge has the same share in both directions, so each intent's graph is symmetric. A new user's
edges are split by the same iteration against stored item vectors and the stored D_k of the items.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from itemrec.batches import Batch
from itemrec.errors import ItemrecError
from itemrec.graph import Adjacency, Graph, fold_adjacency
from itemrec.models.base import GNN, Pooling
from itemrec.propagate import edge_dot, weighted_sum
from itemrec.scoring import take_rows

COMPARED = 1024  # users, and items, between whose chunks correlation is measured


class DGCF(GNN):
    """Disentangled graph collaborative filtering (SIGIR 2020)."""

    paper = "Disentangled Graph Collaborative Filtering"
    year = 2020
    usual_loss = "bpr"
    usual = MappingProxyType({"lr": 1e-3, "l2": 1e-3})

    intent_degree: Tensor  # [L·T, K, items]: D_k of the items at each iteration of each layer

    def __init__(
        self,
        dim: int = 64,
        layers: int | None = None,
        pooling: Pooling = "auto",
        intents: int = 4,
        iterations: int = 2,
        penalty: float = 0.01,
    ) -> None:
        super().__init__(dim, layers, pooling)
        if intents < 1 or dim % intents:
            raise ItemrecError(f"'intents' must divide 'dim' ({dim}), got {intents}")
        if iterations < 1:
            raise ItemrecError(f"'iterations' must be a positive integer, got {iterations}")
        self.intents, self.iterations, self.penalty = intents, iterations, penalty

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """One layer unless told otherwise; two where only users connect the items."""
        super().setup(train, inductive=inductive, generator=generator)
        self.depth = self.asked_layers or (2 if inductive else 1)

    def automatic_pooling(self, inductive: bool) -> str:
        """The mean, as in the paper."""
        return "mean"

    def layers(self, graph: Graph) -> list[Tensor]:
        """``h⁰ … hᴸ``."""
        return self.route(graph)[0]

    def route(self, graph: Graph) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Layers, D of every iteration ``[K, nodes]``, and the last logits ``[K, edges]``."""
        out, degrees = [self.base(graph)], []
        logits = out[0].new_zeros(self.intents, len(graph.col))
        half = len(graph.col) // 2
        for _ in range(self.depth):
            chunks = out[-1].chunk(self.intents, 1)
            heard: list[Tensor] = []
            for _ in range(self.iterations):
                share = torch.softmax(logits, 0)
                degree = torch.stack([row_sum(graph, s) for s in share])  # [K, nodes]
                heard = [
                    intent_sum(graph, share[k], degree[k], degree[k], chunks[k])
                    for k in range(self.intents)
                ]
                gained = torch.stack(
                    [agreement(graph, heard[k], chunks[k])[:half] for k in range(self.intents)]
                )  # [K, interactions]: the user's side speaks for both directions
                logits = logits + torch.cat([gained, gained[:, graph.reverse[half:]]], 1)
                degrees.append(degree)
            out.append(torch.cat(heard, 1))
        return out, degrees, logits

    @torch.no_grad()
    def freeze(self, graph: Graph) -> None:
        """Final vectors, item vectors of each layer, and the items' degrees an intent."""
        super().freeze(graph)
        degrees = torch.stack(self.route(graph)[1])[:, :, graph.n_users :]
        self.store("intent_degree", degrees.contiguous())

    @torch.no_grad()
    def fold_in(self, history: sp.csr_array) -> Tensor:
        """The same iteration for these users alone."""
        adjacency = fold_adjacency(history, self.item_degree)
        out = [self.item_vectors.new_zeros(history.shape[0], self.dim)]
        logits = out[0].new_zeros(self.intents, len(adjacency.col))
        for depth in range(self.depth):
            chunks = self.fold_layers[depth].chunk(self.intents, 1)
            heard: list[Tensor] = []
            for turn in range(self.iterations):
                share = torch.softmax(logits, 0)
                theirs = self.intent_degree[depth * self.iterations + turn]  # [K, items]
                heard = [
                    intent_sum(adjacency, s, row_sum(adjacency, s), theirs[k], chunks[k])
                    for k, s in enumerate(share)
                ]
                gained = [agreement(adjacency, h, c) for h, c in zip(heard, chunks, strict=True)]
                logits = logits + torch.stack(gained)
            out.append(torch.cat(heard, 1))
        return self.pool(out)

    def extra_loss(
        self,
        graph: Graph,
        batch: Batch,
        encoded: tuple[Tensor, Tensor] | None,
        generator: torch.Generator,
    ) -> Tensor:
        """Σ_{k<k′} distance correlation of two chunks, over users and items of the batch."""
        assert encoded is not None
        users, items = encoded
        total = users.new_zeros(())
        for table, index in ((users, batch.users), (items, batch.positives[:, 0])):
            chunks = take_rows(table, index[:COMPARED]).chunk(self.intents, 1)
            centred = [centred_distances(chunk) for chunk in chunks]
            for k, one in enumerate(centred):
                for two in centred[k + 1 :]:
                    total = total + distance_correlation(one, two)
        return self.penalty * total


def intent_sum(
    adjacency: Adjacency, share: Tensor, degree: Tensor, source_degree: Tensor, x: Tensor
) -> Tensor:
    """``Σ_j share(v,j)·x_j / √(D(v) D(j))``."""
    scaled = x * source_degree.clamp(min=1e-12).rsqrt().unsqueeze(1)
    return weighted_sum(adjacency, share, scaled) * degree.clamp(min=1e-12).rsqrt().unsqueeze(1)


def row_sum(adjacency: Adjacency, weight: Tensor) -> Tensor:
    """Sum of a listener's edge weights, [listeners]."""
    ones = weight.new_ones(len(adjacency.source_degree), 1)
    return weighted_sum(adjacency, weight, ones).squeeze(1)


def agreement(adjacency: Adjacency, heard: Tensor, source: Tensor) -> Tensor:
    """``ĥ_vᵀ tanh(ŝ_j)`` for every edge (v, j), [edges]."""
    heard, told = F.normalize(heard, dim=1), torch.tanh(F.normalize(source, dim=1))
    if not isinstance(adjacency, Graph):
        return edge_dot(adjacency, heard, told)
    out: Tensor = _EdgeDot.apply(heard, told, adjacency)  # type: ignore[no-untyped-call]
    return out


class _EdgeDot(torch.autograd.Function):
    """`edge_dot` with gradients, which are weighted sums over neighbours."""

    @staticmethod
    def forward(ctx: Any, listeners: Tensor, sources: Tensor, graph: Graph) -> Tensor:
        ctx.graph = graph
        ctx.save_for_backward(listeners, sources)
        return edge_dot(graph, listeners, sources)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        listeners, sources = ctx.saved_tensors
        to_listeners = weighted_sum(ctx.graph, grad, sources)
        to_sources = weighted_sum(ctx.graph, grad[ctx.graph.reverse], listeners)
        return to_listeners, to_sources, None


def centred_distances(x: Tensor) -> Tensor:
    """Distances between rows, less the means of row and column, plus the mean of all; [n, n]."""
    squares = x.square().sum(1)
    far = (squares.unsqueeze(1) + squares - 2 * x @ x.T).clamp(min=0)
    distance = torch.sqrt(far + 1e-8)  # the root of 0 has no slope
    return distance - distance.mean(0) - distance.mean(1, keepdim=True) + distance.mean()


def distance_correlation(one: Tensor, two: Tensor) -> Tensor:
    """dCov/√(dVar·dVar) of centred distances, between 0 (independent) and 1."""
    covariance = (one * two).mean().clamp(min=0) + 1e-8
    spread = torch.sqrt((one.square().mean() + 1e-8) * (two.square().mean() + 1e-8))
    return torch.sqrt(covariance) / torch.sqrt(spread)
