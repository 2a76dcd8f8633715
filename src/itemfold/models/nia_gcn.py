"""NIA-GCN: pairwise interactions between the neighbours of a node.

Sun et al., "Neighbor Interaction Aware Graph Convolution Networks for Recommendation", SIGIR 2020.
The paper leaves some details open, and no public code by its authors was found; the definition used
here is:

    a_v = Σ_{j∈N(v)} h_j / √(d_v d_j)                                graph convolution
    p_v = 2/(d_v(d_v−1)) · Σ_{i<j∈N(v)} h_i ⊙ h_j                    pairwise neighbourhood
        = ((Σ h_j)² − Σ h_j²) / (d_v(d_v−1))                         aggregation, in linear time
    h⁽ˡ⁺¹⁾_v = tanh(a_v W₁ + p_v W₂ + h_v W₃)
    e = [h⁰ ; … ; hᴸ ; Σ_{k<l} hᵏ ⊙ hˡ]                              cross-depth ensemble

The pairs are averaged (a plain sum would grow with d² and dominate). The products between depths
use the same identity as those between neighbours.
"""

from __future__ import annotations

from types import MappingProxyType

import torch
from torch import Tensor, nn

from itemfold.graph.graph import Adjacency
from itemfold.graph.propagation import neighbour_sum, propagate
from itemfold.models.gnn import GNN
from itemfold.models.random_values import glorot


class NIAGCN(GNN):
    """Neighbour-interaction-aware graph convolution (SIGIR 2020).

    Args:
        dim: Length of a vector.
        layers: Depth of message passing; by default 3, or 2 in the inductive protocol.
    """

    paper = "Neighbor Interaction Aware Graph Convolution Networks for Recommendation"
    year = 2020
    default_loss = "bpr"
    default_training = MappingProxyType({"lr": 1e-3})

    def __init__(self, dim: int = 64, layers: int | None = None) -> None:
        super().__init__(dim, layers, "concat")

    def make_layers(self, generator: torch.Generator) -> None:
        """Allocate three weight matrices per layer."""
        shape, depths = (self.dim, self.dim), range(self.depth)
        self.convolved = nn.ParameterList([glorot(shape, generator) for _ in depths])
        self.paired = nn.ParameterList([glorot(shape, generator) for _ in depths])
        self.kept = nn.ParameterList([glorot(shape, generator) for _ in depths])

    def layer(self, depth: int, adjacency: Adjacency, source: Tensor, own: Tensor) -> Tensor:
        """Neighbours, pairs of neighbours, and the node itself."""
        mixed = propagate(adjacency, source) @ self.convolved[depth]
        mixed = mixed + pairwise_mean(adjacency, source) @ self.paired[depth]
        return torch.tanh(mixed + own @ self.kept[depth])

    def pool(self, layers: list[Tensor]) -> Tensor:
        """Concatenate all depths and the sum of the products between them."""
        stacked = torch.stack(layers)
        crossed = (stacked.sum(0).square() - stacked.square().sum(0)) / 2
        return torch.cat([*layers, crossed], dim=-1)


def pairwise_mean(adjacency: Adjacency, source: Tensor) -> Tensor:
    """Mean of ``h_i ⊙ h_j`` over all pairs of neighbours i < j, 0 if there is no pair."""
    total = neighbour_sum(adjacency, source)
    squares = neighbour_sum(adjacency, source.square())
    pairs = adjacency.degree * (adjacency.degree - 1)  # twice their number
    return (total.square() - squares) / pairs.clamp(min=1).unsqueeze(1) * (pairs > 0).unsqueeze(1)
