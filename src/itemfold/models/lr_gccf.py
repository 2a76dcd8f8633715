"""LR-GCCF: graph convolution without non-linearities, with concatenated layers.

Chen et al., "Revisiting Graph Based Collaborative Filtering: A Linear Residual Graph Convolutional
Network Approach", AAAI 2020. With self-loops counted, d̃ = d + 1:

    h⁽ˡ⁺¹⁾_v = Σ_{j∈N(v)} h⁽ˡ⁾_j / √(d̃_v d̃_j) + h⁽ˡ⁾_v / d̃_v        e = [h⁰ ; … ; hᴸ]

The paper's residual preference (each layer predicts the residual of the previous ones) is a sum of
the layers' scores, which is the product of the concatenated vectors.
"""

from __future__ import annotations

from types import MappingProxyType

from torch import Tensor

from itemfold.graph.graph import Adjacency
from itemfold.graph.propagation import neighbour_sum
from itemfold.models.gnn import GNN


class LRGCCF(GNN):
    """Linear residual graph convolution with concatenated layers (AAAI 2020).

    Args:
        dim: Length of a vector.
        layers: Depth of message passing; by default 3, or 2 in the inductive protocol.
    """

    paper = (
        "Revisiting Graph Based Collaborative Filtering: "
        "A Linear Residual Graph Convolutional Network Approach"
    )
    year = 2020
    by_columns = True
    weighs = ("graph", "loss")
    default_loss = "bpr"
    default_training = MappingProxyType({"lr": 5e-3, "l2": 1e-2})

    def __init__(self, dim: int = 64, layers: int | None = None) -> None:
        super().__init__(dim, layers, "concat")

    def layer(self, depth: int, adjacency: Adjacency, source: Tensor, own: Tensor) -> Tensor:
        """Neighbours and the node itself, scaled by degrees that include the self-loop."""
        scale = (adjacency.degree + 1).rsqrt().unsqueeze(1)
        source_scale = (adjacency.source_degree + 1).rsqrt().unsqueeze(1)
        return neighbour_sum(adjacency, source * source_scale) * scale + own * scale.square()
