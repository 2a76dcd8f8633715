"""NGCF: messages that include the product of the vectors at both ends.

Wang et al., "Neural Graph Collaborative Filtering", SIGIR 2019, as in the authors' code:

    a_v = (h_v + Σ_{j∈N(v)} h_j) / (d_v + 1)
    h⁽ˡ⁺¹⁾_v = LeakyReLU(a_v W₁ + b₁) + LeakyReLU((h_v ⊙ a_v) W₂ + b₂)
    e = [h⁰ ; h¹/|h¹| ; … ; hᴸ/|hᴸ|]

The paper's formula divides by √(d_v d_j), has one LeakyReLU around the whole sum and no biases; the
published figures were made with the code. A layer's output is normalised in e but not as the input
of the next layer. In training, message dropout is applied to every layer's output, and node dropout
leaves out a share of the edges, here redrawn each epoch instead of each step. Vectors and weights
start as Xavier's. A user without parameters starts from zero; everything else is the same.
"""

from __future__ import annotations

from types import MappingProxyType

import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from itemfold.graph.graph import Adjacency, Graph
from itemfold.graph.propagation import neighbour_sum
from itemfold.models.gnn import GNN
from itemfold.models.random_values import drop_values, glorot
from itemfold.validation import share_below_one


class NGCF(GNN):
    """Neural graph collaborative filtering: messages include products of vectors (SIGIR 2019).

    Args:
        dim: Length of a vector.
        layers: Depth of message passing; by default 3, or 2 in the inductive protocol.
        dropout: Fraction of each layer's output that is dropped in training.
        node_dropout: Fraction of the edges that is left out of each epoch of training.
    """

    paper = "Neural Graph Collaborative Filtering"
    year = 2019
    weighs = ("graph", "loss")
    default_loss = "bpr"
    default_training = MappingProxyType({"lr": 1e-3, "l2": 1e-5})
    init_std = None  # Xavier's start

    def __init__(
        self,
        dim: int = 64,
        layers: int | None = None,
        dropout: float = 0.1,
        node_dropout: float = 0.1,
    ) -> None:
        super().__init__(dim, layers, "concat")
        share_below_one(dropout=dropout, node_dropout=node_dropout)
        self.dropout, self.node_dropout = dropout, node_dropout
        self.thinned: Graph | None = None

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Allocate free vectors and weights; discard the graph of earlier training data."""
        super().setup(train, inductive=inductive, generator=generator)
        self.thinned = None

    def make_layers(self, generator: torch.Generator) -> None:
        """Allocate two weight matrices and two biases per layer."""
        depths, shape, row = range(self.depth), (self.dim, self.dim), (1, self.dim)
        self.plain = nn.ParameterList([glorot(shape, generator) for _ in depths])
        self.product = nn.ParameterList([glorot(shape, generator) for _ in depths])
        self.plain_bias = nn.ParameterList([glorot(row, generator) for _ in depths])
        self.product_bias = nn.ParameterList([glorot(row, generator) for _ in depths])

    def begin_epoch(self, graph: Graph, generator: torch.Generator) -> None:
        """Draw the edges of this epoch into the memory of the previous ones."""
        if not self.node_dropout:
            return
        drawn = graph.drop_edges(self.node_dropout, generator)
        if self.thinned is None:
            self.thinned = drawn
        else:
            self.thinned.become(drawn)

    def layer(self, depth: int, adjacency: Adjacency, source: Tensor, own: Tensor) -> Tensor:
        """The mean over the neighbours and the node itself, and its product with the node."""
        total = neighbour_sum(adjacency, source) + own
        mean = total / (adjacency.degree + 1).unsqueeze(1)
        plain = mean @ self.plain[depth] + self.plain_bias[depth]
        product = (own * mean) @ self.product[depth] + self.product_bias[depth]
        return F.leaky_relu(plain, 0.2) + F.leaky_relu(product, 0.2)

    def training_layers(self, graph: Graph, generator: torch.Generator) -> list[Tensor]:
        """The layers over the edges of this epoch, with message dropout."""
        if self.node_dropout and self.thinned is None:
            self.begin_epoch(graph, generator)
        edges, out = self.thinned or graph, [self.base(graph)]
        for depth in range(self.depth):
            full = self.layer(depth, edges, out[-1], out[-1])
            out.append(drop_values(full, self.dropout, generator))
        return out

    def pool(self, layers: list[Tensor]) -> Tensor:
        """Concatenate all layers, each except the first normalised to length 1."""
        return torch.cat([layers[0], *(F.normalize(x, dim=-1) for x in layers[1:])], dim=-1)
