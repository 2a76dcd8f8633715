"""GAT: neighbours weighted by learnt attention.

Veličković et al., "Graph Attention Networks", ICLR 2018. For each head, over j ∈ N(v) ∪ {v}:

    α_vj = softmax_j(LeakyReLU(a_dst·W h_v + a_src·W h_j))
    h⁽ˡ⁺¹⁾_v = act(Σ_j α_vj W h_j + b)

The logit of an edge depends on two scalars only, so a head costs one weighted neighbourhood sum and
sums of scalars.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from itemfold.errors import ItemfoldError
from itemfold.graph.edge_ops import edge_sum, largest_source, row_total, weighted_sum
from itemfold.graph.graph import Adjacency
from itemfold.models.gnn import Pooling
from itemfold.models.random_values import glorot
from itemfold.models.weighted_gnn import Start, WeightedGNN


class GAT(WeightedGNN):
    """Graph attention network: neighbours weighted by learnt attention (ICLR 2018).

    Args:
        dim: Length of a vector.
        layers: Depth of message passing; by default 3, or 2 in the inductive protocol.
        pooling: How the layers become one vector: "sum", "mean" or "concat"; "auto" is the sum.
        heads: Number of attention heads; must divide `dim`.
        shared_lr: Learning rate of the shared weights, as a multiple of lr divided by their width.
        init_std: Standard deviation of the vectors before training.
        start: Weight matrices before training: "random" (Glorot), or "identity": then an untrained
            layer already gives a user the vectors of their items.
    """

    paper = "Graph Attention Networks"
    year = 2018

    def __init__(
        self,
        dim: int = 64,
        layers: int | None = None,
        pooling: Pooling = "auto",
        heads: int = 1,
        shared_lr: float = 1.0,
        init_std: float = 0.1,
        start: Start = "random",
    ) -> None:
        super().__init__(dim, layers, pooling, shared_lr, init_std, start)
        if heads < 1 or dim % heads:
            raise ItemfoldError(f"'heads' must divide 'dim' ({dim}), got {heads}")
        self.heads = heads

    def make_layers(self, generator: torch.Generator) -> None:
        """Allocate a weight matrix, a bias and two attention vectors per head for each layer."""
        head, depths = (self.heads, self.dim // self.heads), range(self.depth)
        self.weights = self.square_matrices(generator)
        self.to_source = nn.ParameterList([glorot(head, generator) for _ in depths])
        self.to_own = nn.ParameterList([glorot(head, generator) for _ in depths])
        self.biases = nn.ParameterList([torch.zeros(self.dim) for _ in depths])

    def layer(self, depth: int, adjacency: Adjacency, source: Tensor, own: Tensor) -> Tensor:
        """Attention over the neighbours and the node itself, head by head."""
        width = self.dim // self.heads
        source, own = source @ self.weights[depth], own @ self.weights[depth]
        out = [
            attend(
                adjacency,
                source[:, h * width : (h + 1) * width],
                own[:, h * width : (h + 1) * width],
                self.to_source[depth][h],
                self.to_own[depth][h],
            )
            for h in range(self.heads)
        ]
        messages = torch.cat(out, dim=1) + self.biases[depth]
        return messages if depth == self.depth - 1 else F.leaky_relu(messages, 0.2)


def attend(
    adjacency: Adjacency, source: Tensor, own: Tensor, to_source: Tensor, to_own: Tensor
) -> Tensor:
    """One head: ``Σ_j softmax_j(LeakyReLU(to_own·own_v + to_source·source_j)) source_j``."""
    target_logit = own @ to_own  # [targets]
    source_logit = source @ to_source  # [sources]
    logit = F.leaky_relu(edge_sum(adjacency, target_logit, source_logit), 0.2)  # [edges]
    self_logit = F.leaky_relu(target_logit + own @ to_source, 0.2)  # [targets]
    with torch.no_grad():  # any shift gives the same softmax; the row's maximum keeps exp finite
        largest = F.leaky_relu(target_logit + largest_source(adjacency, source_logit), 0.2)
        shift = torch.maximum(largest, self_logit)
    weight = torch.exp(logit - shift[adjacency.row])
    self_weight = torch.exp(self_logit - shift).unsqueeze(1)
    total = weighted_sum(adjacency, weight, source) + self_weight * own
    return total / (row_total(adjacency, weight.unsqueeze(1)) + self_weight)
