"""LightGCN++: LightGCN with unit vectors before each step and a split normalisation.

Lee et al., "Revisiting LightGCN: Unexpected Inflexibility, Inconsistency, and A Remedy Towards
Improved Recommendation", RecSys 2024. With N(v) the neighbours of node v and d its degree:

    e_v⁽ᵏ⁺¹⁾ = d_v^-α · Σ_{w ∈ N(v)} d_w^-β · e_w⁽ᵏ⁾/‖e_w⁽ᵏ⁾‖
    e_v = γ·e_v⁽⁰⁾ + (1 − γ)/K · Σ_{k=1}^{K} e_v⁽ᵏ⁾

α sets how the length of a vector grows with the degree, β how much popular neighbours contribute,
γ how much layer 0 does. LightGCN has α = β = ½, no unit vectors, and γ = 1/(K + 1).
"""

from __future__ import annotations

from types import MappingProxyType

import torch
from torch import Tensor
from torch.nn.functional import normalize

from itemfold.errors import ItemfoldError
from itemfold.graph.graph import Adjacency
from itemfold.graph.propagation import neighbour_sum
from itemfold.models.gnn import GNN
from itemfold.validation import is_number


class LightGCNPP(GNN):
    """LightGCN with unit vectors before each step and a split normalisation (RecSys 2024).

    Args:
        dim: Length of a vector.
        layers: Depth of message passing; by default 3, or 2 in the inductive protocol.
        alpha: Power α of a node's own degree that its sum is divided by.
        beta: Power β of a neighbour's degree that its message is divided by.
        gamma: Weight γ of layer 0, from 0 to 1; the other layers share the rest.
    """

    paper = "Revisiting LightGCN: Unexpected Inflexibility, Inconsistency, and A Remedy"
    year = 2024
    default_loss = "bpr"
    default_training = MappingProxyType({"lr": 1e-3, "l2": 1e-4})

    def __init__(
        self,
        dim: int = 64,
        layers: int | None = None,
        alpha: float = 0.6,
        beta: float = -0.1,
        gamma: float = 0.2,
    ) -> None:
        super().__init__(dim, layers)
        for name, value in {"alpha": alpha, "beta": beta}.items():
            if not is_number(value):
                raise ItemfoldError(f"'{name}' must be a number, got {value!r}")
        if not is_number(gamma) or not 0 <= gamma <= 1:
            raise ItemfoldError(f"'gamma' must be a number from 0 to 1, got {gamma!r}")
        self.alpha, self.beta, self.gamma = alpha, beta, gamma

    def layer(self, depth: int, adjacency: Adjacency, source: Tensor, own: Tensor) -> Tensor:
        """Sum of the neighbours' unit vectors, scaled on both sides."""
        messages = normalize(source, eps=1e-12) * power(adjacency.source_degree, -self.beta)
        return neighbour_sum(adjacency, messages) * power(adjacency.degree, -self.alpha)

    def pool(self, layers: list[Tensor]) -> Tensor:
        """γ times layer 0 plus 1 − γ times the mean of the others."""
        rest = torch.stack(layers[1:]).mean(0)
        return self.gamma * layers[0] + (1 - self.gamma) * rest


def power(degree: Tensor, exponent: float) -> Tensor:
    """``dᵖ`` as a column, 0 for nodes without neighbours; ``[n] → [n, 1]``."""
    return torch.where(degree > 0, degree.clamp(min=1e-30) ** exponent, 0.0).unsqueeze(1)
