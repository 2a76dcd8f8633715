"""EGCF: graph convolution without user embeddings.

Zhang et al., "Simplify to the Limit! Embedding-less Graph Collaborative Filtering for Recommender
Systems", TOIS 2024. Only items have parameters E. With R̃ the user–item block of
``Â = D^-1/2 A D^-1/2``, tanh after each step, and layer 0 left out of the sum:

    parallel:     H⁰ = [tanh(R̃E); E]      Hᵏ⁺¹ = tanh(Â Hᵏ)
    alternating:  I⁰ = E    Uᵏ⁺¹ = tanh(R̃ Iᵏ)    Iᵏ⁺¹ = tanh(R̃ᵀ Uᵏ⁺¹)
    e = Σ_{k=1}^{K} hᵏ
    L = L_list(e) + λ·(InfoNCE(u, u) + InfoNCE(i, i) + InfoNCE(u, i))

over the batch's users u and one positive i of each. InfoNCE of a view with itself spreads the
vectors; the third term aligns a user with the positive. Inductive: users have no parameters.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal, get_args

import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.graph.graph import Adjacency, Graph
from itemfold.graph.propagation import propagate
from itemfold.models.gnn import GNN, split_nodes
from itemfold.models.info_nce import first_of, info_nce, one_positive
from itemfold.ops.pair_scores import take_rows
from itemfold.sampling.base import Batch, Encoded
from itemfold.validation import at_least_zero, one_of, positive

Mode = Literal["parallel", "alternating"]
MODES = get_args(Mode)


class EGCF(GNN):
    """Graph convolution of item vectors alone, with a contrastive term (TOIS 2024).

    Args:
        dim: Length of a vector.
        layers: Depth of message passing; by default 3.
        mode: "parallel" updates users and items from the previous layer, "alternating" updates
            items from the users of the same layer.
        weight: Weight λ of the contrastive term.
        temperature: Temperature τ of the contrastive term.
    """

    paper = "Simplify to the Limit! Embedding-less Graph Collaborative Filtering"
    year = 2024
    default_loss = "bpr"
    default_training = MappingProxyType({"lr": 1e-3, "l2": 1e-4})
    user_tables = ()
    init_std = None

    def __init__(
        self,
        dim: int = 64,
        layers: int | None = None,
        mode: Mode = "parallel",
        weight: float = 0.1,
        temperature: float = 0.1,
    ) -> None:
        super().__init__(dim, layers)
        one_of("mode", mode, MODES)
        at_least_zero(weight=weight)
        positive(temperature=temperature)
        self.mode, self.weight, self.temperature = mode, weight, temperature

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Allocate item vectors; users have none in either protocol."""
        super().setup(train, inductive=True, generator=generator)
        self.depth = self.given_layers or 3

    def base(self, graph: Graph) -> Tensor:
        """Layer 0: users are computed from their items."""
        nodes = super().base(graph)  # users are 0, so a step leaves items at 0
        return torch.tanh(propagate(graph, nodes)) + nodes

    def layer(self, depth: int, adjacency: Adjacency, source: Tensor, own: Tensor) -> Tensor:
        """``tanh(Â h)``."""
        return torch.tanh(propagate(adjacency, source))

    def layers(self, graph: Graph) -> list[Tensor]:
        """``h⁰ … hᴸ`` of all nodes."""
        if self.mode == "parallel":
            return super().layers(graph)
        out = [self.base(graph)]
        for depth in range(self.depth):
            users, _ = split_nodes(graph, self.layer(depth, graph, out[-1], out[-1]))
            below = torch.cat([users, torch.zeros_like(out[-1][graph.n_users :])])
            _, items = split_nodes(graph, self.layer(depth, graph, below, below))
            out.append(torch.cat([users, items]))
        return out

    def pool(self, layers: list[Tensor]) -> Tensor:
        """The sum of all layers but the first."""
        return super().pool(layers[1:])

    def extra_loss(
        self, graph: Graph, batch: Batch, encoded: Encoded, generator: torch.Generator
    ) -> Tensor:
        """InfoNCE within users, within items, and between users and positives."""
        real = batch.mask.any(1)
        picked = one_positive(batch, generator)
        users, items = encoded.users_of(batch), take_rows(encoded.items, picked)
        tau = self.temperature
        within = info_nce(users, users, tau, first_of(batch.users, real))
        within = within + info_nce(items, items, tau, first_of(picked, real))
        return self.weight * (within + info_nce(users, items, tau, real))
