"""NGCF: messages that include the product of the vectors at both ends.

Wang et al., "Neural Graph Collaborative Filtering", SIGIR 2019:

    h⁽ˡ⁺¹⁾_v = LeakyReLU(W₁ h_v + Σ_{j∈N(v)} (W₁ h_j + W₂ (h_j ⊙ h_v)) / √(d_v d_j))
    e = [h⁰ ; h¹/|h¹| ; … ; hᴸ/|hᴸ|]

The sum over products is ``h_v ⊙ Σ h_j/√(d_v d_j)``, so a layer costs one propagation. As in the
authors' code a layer's output is normalised in e but not as the input of the next layer, and
message dropout is applied to every layer's output in training. A user without parameters starts
from zero: the first product vanishes, everything else is the same.
"""

from __future__ import annotations

from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from itemrec.errors import ItemrecError
from itemrec.graph.graph import Adjacency, Graph
from itemrec.graph.propagation import propagate
from itemrec.models.gnn import GNN, glorot


class NGCF(GNN):
    """Neural graph collaborative filtering: messages include products of vectors (SIGIR 2019).

    Args:
        dim: Length of a vector.
        layers: Depth of message passing; 3 in the transductive protocol and 2 in the inductive one
            by default.
        dropout: Share of each layer's output that is dropped in training.

    Raises:
        ItemrecError: A setting is invalid.

    Examples:
        >>> import itemrec as ir
        >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> ir.train(split, ir.models.NGCF(dim=8), epochs=2).metrics["model"]
        'ngcf'
    """

    paper = "Neural Graph Collaborative Filtering"
    year = 2019
    weighs = ("graph", "loss")
    default_loss = "bpr"
    default_training = MappingProxyType({"lr": 1e-3, "l2": 1e-5})

    def __init__(self, dim: int = 64, layers: int | None = None, dropout: float = 0.1) -> None:
        super().__init__(dim, layers, "concat")
        if not 0 <= dropout < 1:
            raise ItemrecError(f"'dropout' must be at least 0 and below 1, got {dropout}")
        self.dropout = dropout

    def make_layers(self, generator: torch.Generator) -> None:
        """Allocate two weight matrices per layer."""
        shape = (self.dim, self.dim)
        self.plain = nn.ParameterList([glorot(shape, generator) for _ in range(self.depth)])
        self.product = nn.ParameterList([glorot(shape, generator) for _ in range(self.depth)])

    def layer(self, depth: int, adjacency: Adjacency, source: Tensor, own: Tensor) -> Tensor:
        """Neighbours, the node itself, and their products."""
        messages = propagate(adjacency, source)
        mixed = (own + messages) @ self.plain[depth] + (own * messages) @ self.product[depth]
        return F.leaky_relu(mixed, 0.2)

    def training_layers(self, graph: Graph, generator: torch.Generator) -> list[Tensor]:
        """The layers with message dropout."""
        out = [self.base(graph)]
        for depth in range(self.depth):
            full = self.layer(depth, graph, out[-1], out[-1])
            keep = torch.rand(full.shape, generator=generator, device=full.device) >= self.dropout
            out.append(full * keep / (1 - self.dropout))
        return out

    def pool(self, layers: list[Tensor]) -> Tensor:
        """Concatenate all layers, each except the first normalised to length 1."""
        return torch.cat([layers[0], *(F.normalize(x, dim=-1) for x in layers[1:])], dim=-1)
