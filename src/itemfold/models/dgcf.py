"""DGCF: every interaction is divided over several intents, each with its own graph.

Wang et al., "Disentangled Graph Collaborative Filtering", SIGIR 2020. A vector has K chunks, one
per intent. Each interaction has one logit per intent, initially S_k(u,i) = 0; a layer repeats T
times:

    S̃_k = softmax_k(S_k)                              a share of the edge for each intent
    u_k = Σ_i S̃_k(u,i) / √(D_k(u) D_k(i)) · i_k⁰      D_k(v) = Σ S̃_k over v's edges; same for i_k
    S_k(u,i) += û_kᵀ tanh(î_k⁰)                       ^: of length 1; ⁰: before the layer

The last u_k, i_k are the layer's output; logits carry over to the next one. e = mean of all layers.
A penalty keeps the intents independent: with dCor the distance correlation of two chunks, over a
random sample of users and items together, as in the authors' code,

    penalty · 2/(K(K + 1)) · Σ_{k=1}^{K−1} dCor(chunk k, chunk k + 1)

(the paper's formula has all pairs, without the factor: with four intents that is many times as
strong). Vectors start as Xavier's, which the code also does.

An edge has the same share in both directions, so each intent's graph is symmetric. A new user's
edges are divided by the same iteration, with stored item vectors and the stored D_k of the items.
"""

from __future__ import annotations

from types import MappingProxyType

import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from itemfold.errors import ItemfoldError
from itemfold.graph.edge_ops import both_ways, edge_dot, row_total, weighted_sum
from itemfold.graph.graph import Adjacency, Graph, fold_adjacency
from itemfold.models.gnn import GNN, Pooling
from itemfold.ops.pair_scores import take_rows
from itemfold.sampling.base import Batch, Encoded
from itemfold.validation import at_least_zero, positive_integers

# Users, and items, between which distances are computed: the authors take nodes / batches, 252 on
# Yelp2018 in batches of 8,192.
COMPARED = 256


class DGCF(GNN):
    """Disentangled graph collaborative filtering: one graph per intent (SIGIR 2020).

    Args:
        dim: Length of a vector.
        layers: Depth of message passing; by default 1, or 2 in the inductive protocol.
        pooling: How the layers become one vector: "sum", "mean" or "concat"; "auto" is the mean.
        intents: Number of chunks of a vector, K; must divide `dim`.
        iterations: Number of times each layer divides the edges over the intents, T.
        penalty: Weight of the distance correlation between adjacent intents.
    """

    paper = "Disentangled Graph Collaborative Filtering"
    year = 2020
    default_loss = "bpr"
    default_training = MappingProxyType({"lr": 1e-3, "l2": 1e-3})
    init_std = None  # Xavier's start

    intent_degree: Tensor  # [L·T, items, K]: D_k of the items at each iteration of each layer

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
            raise ItemfoldError(f"'intents' must divide 'dim' ({dim}), got {intents}")
        positive_integers(iterations=iterations)
        at_least_zero(penalty=penalty)
        self.intents, self.iterations, self.penalty = intents, iterations, penalty

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """One layer by default; two in the inductive protocol, where users start from zero."""
        super().setup(train, inductive=inductive, generator=generator)
        self.depth = self.given_layers or (2 if inductive else 1)

    def automatic_pooling(self, inductive: bool) -> str:
        """The mean, as in the paper."""
        return "mean"

    def layers(self, graph: Graph) -> list[Tensor]:
        """``h⁰ … hᴸ``."""
        return self.route(graph)[0]

    def route(self, graph: Graph) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Layers, D of every iteration ``[nodes, K]``, and the last logits ``[edges, K]``."""
        out, degrees = [self.base(graph)], []
        logits = out[0].new_zeros(len(graph.col), self.intents)
        half = len(graph.col) // 2
        for _ in range(self.depth):
            source, own = out[-1], out[-1]
            for _ in range(self.iterations):
                share = torch.softmax(logits, 1)
                degree = row_total(graph, share)  # [nodes, K]
                own = intent_sum(graph, share, degree, degree, source)
                change = agreement(graph, own, source, self.intents)  # [edges, K]
                # the user side determines both directions
                logits = logits + both_ways(graph, change[:half])
                degrees.append(degree)
            out.append(own)
        return out, degrees, logits

    @torch.no_grad()
    def cache_embeddings(self, graph: Graph) -> None:
        """Store final vectors, item vectors of each layer, and the items' degrees per intent."""
        super().cache_embeddings(graph)
        degrees = torch.stack(self.route(graph)[1])[:, graph.n_users :]
        self.store("intent_degree", degrees.contiguous())

    @torch.no_grad()
    def fold_in(self, history: sp.csr_array) -> Tensor:
        """Run the same iteration for these users only."""
        adjacency = fold_adjacency(history, self.item_degree)
        out = [self.item_vectors.new_zeros(history.shape[0], self.dim)]
        logits = out[0].new_zeros(len(adjacency.col), self.intents)
        for depth in range(self.depth):
            source, own = self.fold_layers[depth], out[-1]
            for turn in range(self.iterations):
                share = torch.softmax(logits, 1)
                item_degree = self.intent_degree[depth * self.iterations + turn]  # [items, K]
                own = intent_sum(adjacency, share, row_total(adjacency, share), item_degree, source)
                logits = logits + agreement(adjacency, own, source, self.intents)
            out.append(own)
        return self.pool(out)

    def extra_loss(
        self, graph: Graph, batch: Batch, encoded: Encoded, generator: torch.Generator
    ) -> Tensor:
        """The distance correlation of adjacent chunks over a sample of users and items."""
        drawn = []
        for table in (encoded.users, encoded.items):  # a fixed number: a step can be recorded
            shape = (min(COMPARED, len(table)),)
            rows = torch.randint(len(table), shape, generator=generator, device=table.device)
            drawn.append(take_rows(table, rows))
        return self.penalty * independence(torch.cat(drawn), self.intents)


def independence(nodes: Tensor, intents: int) -> Tensor:
    """``2/(K(K+1)) Σ_k dCor(chunk k, chunk k+1)`` over nodes ``[n, d]``; 0 for one intent."""
    chunks = nodes.view(len(nodes), intents, -1).transpose(0, 1)  # [K, n, d/K]
    correlation = distance_correlation(centred_distances(chunks))  # [K, K]
    return correlation.diagonal(1).sum() / (intents * (intents + 1) / 2)


def intent_sum(
    adjacency: Adjacency, share: Tensor, degree: Tensor, source_degree: Tensor, x: Tensor
) -> Tensor:
    """``Σ_j share_k(v,j)·x_jk / √(D_k(v) D_k(j))`` for every chunk k, ``[targets, d]``."""
    scaled = by_intent(x, source_degree.clamp(min=1e-12).rsqrt())
    return by_intent(weighted_sum(adjacency, share, scaled), degree.clamp(min=1e-12).rsqrt())


def by_intent(x: Tensor, scale: Tensor) -> Tensor:
    """Each chunk times its own factor, ``[n, d], [n, K] → [n, d]``."""
    return (x.view(len(x), scale.shape[1], -1) * scale.unsqueeze(2)).view(x.shape)


def agreement(adjacency: Adjacency, messages: Tensor, source: Tensor, intents: int) -> Tensor:
    """``ĥ_vkᵀ tanh(ŝ_jk)`` for every edge (v, j) and chunk k, ``[edges, K]``."""
    own, source = (
        F.normalize(x.view(len(x), intents, -1), dim=2).view(x.shape) for x in (messages, source)
    )
    return edge_dot(adjacency, own, torch.tanh(source), intents)


def centred_distances(x: Tensor) -> Tensor:
    """Distances between rows, less the means of row and column, plus the mean of all.

    ``[K, n, d] → [K, n, n]``.
    """
    squares = x.square().sum(2)
    products = x @ x.transpose(1, 2)
    far = (squares.unsqueeze(2) + squares.unsqueeze(1) - 2 * products).clamp(min=0)
    distance = torch.sqrt(far + 1e-8)  # the root of 0 has no slope
    mean = distance.mean(2)  # [K, n], of a row and of a column
    return distance - mean.unsqueeze(1) - mean.unsqueeze(2) + mean.mean(1).view(-1, 1, 1)


def distance_correlation(centred: Tensor) -> Tensor:
    """dCov/√(dVar·dVar) of all pairs of centred distances, ``[K, n, n] → [K, K]``.

    Between 0 (independent) and 1.
    """
    flat = centred.flatten(1) / centred.shape[1]
    covariance = flat @ flat.T  # [K, K]
    variance = covariance.diagonal() + 1e-8
    spread = torch.sqrt(variance.unsqueeze(1) * variance)
    return torch.sqrt(covariance.clamp(min=0) + 1e-8) / torch.sqrt(spread)
