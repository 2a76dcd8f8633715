"""UltraGCN: the limit of infinitely many graph convolutions as weights in the loss.

Mao et al., "UltraGCN: Ultra Simplification of Graph Convolutional Networks for Recommendation",
CIKM 2021. With degrees d, N uniform negatives, ``G = XᵀX`` and its row sums g:

    β_ui = (1/d_u) √((d_u + 1)/(d_i + 1))                    ω_ij = G_ij/(g_i − G_ii) · √(g_i/g_j)
    L_O  = −Σ_(u,i) [(w₁ + w₂β_ui) log σ(e_u·e_i) + w/N Σ_j (w₃ + w₄β_uj) log σ(−e_u·e_j)]
    L_I  = −Σ_(u,i) Σ_{j∈S(i)} ω_ij log σ(e_u·e_j)           S(i): the K items of largest ω_ij
    L    = L_O + λ L_I + ½γ (|E_u|² + |E_i|²)

Sums over a batch, including the last term, are divided by its number of pairs. Not inductive: user
vectors are trained parameters.
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor
from torch.nn.functional import softplus

from itemfold.graph.graph import Graph
from itemfold.models.base import Kind
from itemfold.models.embedding_model import EmbeddingModel
from itemfold.models.item_item import cooccurrence, strongest
from itemfold.ops.pair_scores import pair_scores, take_rows
from itemfold.sampling.base import Batch
from itemfold.sampling.user_rows import OwnNegatives
from itemfold.validation import at_least_zero, positive_integers


class UltraGCN(EmbeddingModel):
    """Matrix factorisation under graph constraints (CIKM 2021).

    For known users only. It has its own objective and takes neither a loss nor a sampler.

    Args:
        dim: Length of a vector.
        w1: Weight of every positive.
        w2: Weight of β_ui for positives.
        w3: Weight of every negative.
        w4: Weight of β_uj for negatives.
        negatives: Negatives per positive, N.
        negative_weight: Total weight w of the negatives of a positive.
        item_weight: Weight λ of the item–item term.
        item_neighbours: Neighbours of an item, K.
        l2: Strength γ of the L2 penalty.
    """

    paper = "UltraGCN: Ultra Simplification of Graph Convolutional Networks for Recommendation"
    year = 2021
    default_training = MappingProxyType({"batch_by": "interactions", "lr": 1e-3})
    inductive = False
    why_not_inductive = "every user vector is a trained parameter"
    kind = Kind.OWN_OBJECTIVE

    def __init__(
        self,
        dim: int = 64,
        w1: float = 1e-7,
        w2: float = 1.0,
        w3: float = 1e-7,
        w4: float = 1.0,
        negatives: int = 200,
        negative_weight: float = 200.0,
        item_weight: float = 1e-3,
        item_neighbours: int = 10,
        l2: float = 1e-4,
    ) -> None:
        super().__init__()
        positive_integers(dim=dim, negatives=negatives, item_neighbours=item_neighbours)
        at_least_zero(negative_weight=negative_weight, item_weight=item_weight, l2=l2)
        at_least_zero(w1=w1, w2=w2, w3=w3, w4=w4)
        self.dim, self.l2, self.constants = dim, l2, (w1, w2, w3, w4)
        self.negatives, self.negative_weight = negatives, negative_weight
        self.item_weight, self.item_neighbours = item_weight, item_neighbours
        self.draw = OwnNegatives()
        self.known: Graph | None = None

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Allocate tiny vectors, so that every pair starts near probability ½."""
        super().setup(train, inductive=inductive, generator=generator)
        self.users = self.normal_table(self.n_users, 1e-4, generator)
        self.items = self.normal_table(self.n_items, 1e-4, generator)

    def encode(self, graph: Graph) -> tuple[Tensor, Tensor]:
        """The vectors themselves: the graph enters through the loss only."""
        return self.users, self.items

    def own_loss(self, graph: Graph, batch: Batch, generator: torch.Generator) -> Tensor:
        """All three terms for the batch's pairs."""
        self.prepare(graph)
        drawn = self.draw(graph, batch.users, self.negatives, generator)  # [B, N]
        around = self.near[batch.positives]  # [B, P, K]
        length, width = batch.positives.shape[1], drawn.shape[1]
        listed = torch.cat([batch.positives, drawn, around.flatten(1)], dim=1)
        user_vectors = take_rows(self.users, batch.users)
        scores = pair_scores(user_vectors, self.items, listed)
        pos, neg, close = torch.split(scores, [length, width, around[0].numel()], dim=1)
        w1, w2, w3, w4 = self.constants
        beta = (
            self.user_part[batch.users].unsqueeze(1) * self.item_part[listed[:, : length + width]]
        )
        pull = softplus(-pos) * (w1 + w2 * beta[:, :length])  # [B, P]
        push = (softplus(neg) * (w3 + w4 * beta[:, length:])).mean(1, keepdim=True)  # [B, 1]
        near = (softplus(-close).view(around.shape) * self.omega[batch.positives]).sum(2)  # [B, P]
        each = pull + self.negative_weight * push + self.item_weight * near
        norms = 0.5 * self.l2 * (self.users.square().sum() + self.items.square().sum())
        return ((each * batch.mask).sum() + norms) / batch.mask.sum().clamp(min=1)

    def prepare(self, graph: Graph) -> None:
        """Compute a graph's constants once: β as a product of two parts, S(i), ω ``[items, K]``."""
        if self.known is graph:
            return
        users, items = graph.degree[: graph.n_users], graph.item_degree
        self.user_part = (users + 1).sqrt() / users.clamp(min=1)
        self.item_part = (items + 1).rsqrt()
        near, omega = item_graph(graph.interactions(), self.item_neighbours)
        self.near, self.omega = near.to(graph.col.device), omega.to(graph.col.device)
        self.known = graph


def item_graph(train: sp.csr_array, k: int) -> tuple[Tensor, Tensor]:
    """S(i) and ω, both ``[items, k]``; an item is not its own neighbour."""
    degree = np.bincount(train.indices, minlength=train.shape[1]).astype(np.float32)
    total = np.asarray(train.T @ train.sum(axis=1), dtype=np.float32)  # g
    target = np.sqrt(np.maximum(total, 1))
    source = target / np.maximum(total - degree, 1)
    nearest, weights = [], []
    for start, counts in cooccurrence(train):
        rows = np.arange(start, start + len(counts))
        counts *= source[rows, None] / target
        counts[np.arange(len(counts)), rows] = -1
        values, columns = strongest(counts, min(k, max(len(degree) - 1, 1)))
        nearest.append(columns)
        weights.append(values.clamp(min=0))
    return torch.cat(nearest), torch.cat(weights)
