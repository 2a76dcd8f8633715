"""GCN: averaging with self-loops, one weight matrix and non-linearity per layer.

Kipf & Welling, "Semi-Supervised Classification with Graph Convolutional Networks", ICLR 2017.
With ``Ã = A + I`` and its degrees ``D̃``:

    h⁽ˡ⁺¹⁾ = act(D̃^-1/2 Ã D̃^-1/2 h⁽ˡ⁾ W⁽ˡ⁾ + b⁽ˡ⁾)

The last layer has no activation, as is common for embeddings.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from itemfold.graph.graph import Adjacency
from itemfold.graph.propagation import neighbour_sum
from itemfold.models.weighted_gnn import WeightedGNN


class GCN(WeightedGNN):
    """Graph convolution with self-loops and one weight matrix per layer (ICLR 2017).

    Args:
        dim: Length of a vector.
        layers: Depth of message passing; by default 3, or 2 in the inductive protocol.
        pooling: How the layers become one vector: "sum", "mean" or "concat"; "auto" is the sum.
        shared_lr: Learning rate of the shared weights, as a multiple of lr divided by their width.
        init_std: Standard deviation of the vectors before training.
        start: Weight matrices before training: "random" (Glorot), or "identity": then an untrained
            layer already gives a user the vectors of their items.
    """

    paper = "Semi-Supervised Classification with Graph Convolutional Networks"
    year = 2017
    weighs = ("graph", "loss")

    def make_layers(self, generator: torch.Generator) -> None:
        """Allocate one weight matrix and one bias per layer."""
        self.weights = self.square_matrices(generator)
        self.biases = nn.ParameterList([torch.zeros(self.dim) for _ in range(self.depth)])

    def layer(self, depth: int, adjacency: Adjacency, source: Tensor, own: Tensor) -> Tensor:
        """Transform, then average over the neighbours and the node itself."""
        weight = self.weights[depth]
        scale = (adjacency.degree + 1).rsqrt().unsqueeze(1)
        source_scale = (adjacency.source_degree + 1).rsqrt().unsqueeze(1)
        messages = neighbour_sum(adjacency, (source @ weight) * source_scale)
        out = (messages + (own @ weight) * scale) * scale + self.biases[depth]
        return out if depth == self.depth - 1 else torch.nn.functional.leaky_relu(out, 0.2)
