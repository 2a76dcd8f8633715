"""GIN: sums over neighbours, then a small network in each layer.

Xu et al., "How Powerful are Graph Neural Networks?", ICLR 2019:

    h⁽ˡ⁺¹⁾_v = MLP⁽ˡ⁾((1 + ε⁽ˡ⁾)·h⁽ˡ⁾_v + Σ_{j∈N(v)} h⁽ˡ⁾_j)

Plain sums over neighbourhoods of very different sizes (1 to thousands) let the scale of the vectors
grow layer by layer. With ``normalise`` (the default) the sum is divided by √(d_v·d_j) as in the
other encoders; without it the layer is the paper's, term by term.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from itemfold.graph.graph import Adjacency
from itemfold.graph.propagation import neighbour_sum, propagate
from itemfold.models.gnn import Pooling
from itemfold.models.weighted_gnn import Start, WeightedGNN


class GIN(WeightedGNN):
    """Graph isomorphism network: sums over neighbours, then a small network (ICLR 2019).

    Args:
        dim: Length of a vector.
        layers: Depth of message passing; by default 3, or 2 in the inductive protocol.
        pooling: How the layers become one vector: "sum", "mean" or "concat"; "auto" is the sum.
        normalise: Divide sums by √(d_v·d_j); without it the layer is the paper's, term by term.
        shared_lr: Learning rate of the shared weights, as a multiple of lr divided by their width.
        init_std: Standard deviation of the vectors before training.
        start: Weight matrices before training: "random" (Glorot), or "identity": then an untrained
            layer already gives a user the positive parts of the vectors of their items.
    """

    paper = "How Powerful are Graph Neural Networks?"
    year = 2019
    weighs = ("graph", "loss")

    def __init__(
        self,
        dim: int = 64,
        layers: int | None = None,
        pooling: Pooling = "auto",
        normalise: bool = True,
        shared_lr: float = 1.0,
        init_std: float = 0.1,
        start: Start = "random",
    ) -> None:
        super().__init__(dim, layers, pooling, shared_lr, init_std, start)
        self.normalise = normalise

    def make_layers(self, generator: torch.Generator) -> None:
        """Allocate two linear maps and an ε per layer."""
        depths = range(self.depth)
        self.first = self.square_matrices(generator)
        self.first_bias = nn.ParameterList([torch.zeros(self.dim) for _ in depths])
        self.second = self.square_matrices(generator)
        self.second_bias = nn.ParameterList([torch.zeros(self.dim) for _ in depths])
        self.epsilon = nn.Parameter(torch.zeros(self.depth))

    def layer(self, depth: int, adjacency: Adjacency, source: Tensor, own: Tensor) -> Tensor:
        """Sum over neighbours, then apply the network."""
        gather = propagate if self.normalise else neighbour_sum
        mixed = (1 + self.epsilon[depth]) * own + gather(adjacency, source)
        hidden = torch.relu(mixed @ self.first[depth] + self.first_bias[depth])
        out: Tensor = hidden @ self.second[depth] + self.second_bias[depth]
        return out
