"""SimGCL: LightGCN with a contrastive loss between noisy passes.

Yu et al., "Are Graph Augmentations Necessary? Simple Graph Contrastive Learning for
Recommendation", SIGIR 2022. After each layer of a noisy pass every vector moves by ε:

    h ← h + ε · sign(h) ⊙ n/|n|,   n ~ U(0, 1)ᵈ        e = mean(h¹ … hᴸ), without layer 0
    L = L_list + λ·(InfoNCE over users + InfoNCE over items) between two noisy passes

The noise has length ε and stays in the vector's orthant. A zero vector (an item at layer 1 if users
have no parameters) has no orthant and stays zero. The list loss and scoring use a pass without
noise. For InfoNCE and for the choice of λ see `sgl`.
"""

from __future__ import annotations

from types import MappingProxyType

import torch
from torch import Tensor

from itemfold.graph.graph import Graph
from itemfold.graph.noisy_propagation import noisy_passes
from itemfold.models.gnn import Pooling, split_nodes
from itemfold.models.info_nce import contrast
from itemfold.models.linear_gnn import LinearGNN
from itemfold.sampling.base import Batch, Encoded
from itemfold.validation import at_least_zero, positive


class SimGCL(LinearGNN):
    """Contrastive learning between two noisy passes of LightGCN (SIGIR 2022).

    Args:
        dim: Length of a vector.
        layers: Depth of message passing; by default 3, or 2 in the inductive protocol.
        pooling: How the layers become one vector: "sum", "mean" or "concat"; "auto" is the mean,
            or the sum in the inductive protocol.
        epsilon: Length ε of the noise.
        weight: Weight λ of the contrastive term.
        temperature: Temperature τ of the contrastive term.
    """

    paper = (
        "Are Graph Augmentations Necessary? Simple Graph Contrastive Learning for Recommendation"
    )
    year = 2022
    by_columns = True
    default_loss = "bpr"
    default_training = MappingProxyType({"lr": 1e-3, "l2": 1e-4})
    first = 1  # layer 0 is left out of pooling

    def __init__(
        self,
        dim: int = 64,
        layers: int | None = None,
        pooling: Pooling = "auto",
        epsilon: float = 0.1,
        weight: float = 0.5,
        temperature: float = 0.2,
    ) -> None:
        super().__init__(dim, layers, pooling)
        positive(epsilon=epsilon, temperature=temperature)
        at_least_zero(weight=weight)
        self.epsilon, self.weight, self.temperature = epsilon, weight, temperature

    def encode_step(
        self,
        graph: Graph,
        generator: torch.Generator,
        layers: bool = False,
        users: Tensor | None = None,
    ) -> Encoded:
        """One pass without noise, and two with noise as views; all share their first sum."""
        noise = [0.0, self.epsilon, self.epsilon]
        passes = noisy_passes(graph, self.base(graph), self.depth, noise, generator, self.dim)
        clean, *noisy = passes
        views = tuple(split_nodes(graph, self.pool(each)) for each in noisy)
        return self.encoded(graph, clean, layers, views)

    def extra_loss(
        self, graph: Graph, batch: Batch, encoded: Encoded, generator: torch.Generator
    ) -> Tensor:
        """The contrastive loss between the two noisy passes."""
        one, two = encoded.views
        return self.weight * contrast(one, two, batch, self.temperature, generator)
