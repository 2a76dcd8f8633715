"""Base of message passing with weights that all nodes share: `gcn`, `gin` and `gat`."""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
from torch import nn

from itemfold.models.gnn import GNN, Pooling
from itemfold.models.random_values import glorot
from itemfold.validation import one_of, positive

Start = Literal["random", "identity"]
STARTS = get_args(Start)


class WeightedGNN(GNN):
    """Message passing with shared weights in addition to user and item vectors.

    Every node contributes to the gradient of a shared weight, mostly in the same direction. At the
    learning rate of the vectors, scores grow to thousands within an epoch, where a smooth rank has
    no slope, and the model stays at the level of popularity. The learning rate of a shared weight
    is therefore divided by its width, so that a step changes a product equally for any width
    (docs/research/baselines.md).

    Args:
        dim: Length of a vector.
        layers: Depth of message passing; by default 3, or 2 in the inductive protocol.
        pooling: How the layers become one vector: "sum", "mean" or "concat"; "auto" is the sum.
        shared_lr: Learning rate of the shared weights, as a multiple of lr divided by their width.
        init_std: Standard deviation of the vectors before training.
        start: Weight matrices before training: "random" (Glorot), or "identity": then an untrained
            layer already gives a user the vectors of their items.
    """

    def __init__(
        self,
        dim: int = 64,
        layers: int | None = None,
        pooling: Pooling = "auto",
        shared_lr: float = 1.0,
        init_std: float = 0.1,
        start: Start = "random",
    ) -> None:
        super().__init__(dim, layers, pooling)
        positive(shared_lr=shared_lr, init_std=init_std)
        one_of("start", start, STARTS)
        self.shared_lr, self.init_std, self.start = shared_lr, init_std, start

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Vectors at ``lr``, shared weights at ``shared_lr`` times ``lr`` divided by width."""
        tables = {id(self.item_embedding), id(self.user_embedding)}
        vectors = [p for p in self.parameters() if id(p) in tables]
        shared = [p for p in self.parameters() if id(p) not in tables]
        return [
            {"params": vectors, "lr": lr},
            *({"params": [p], "lr": self.shared_lr * lr / p.shape[-1]} for p in shared),
        ]

    def square_matrices(self, generator: torch.Generator) -> nn.ParameterList:
        """A weight matrix per layer, as it is before training."""
        if self.start == "identity":
            return nn.ParameterList([torch.eye(self.dim) for _ in range(self.depth)])
        shape = (self.dim, self.dim)
        return nn.ParameterList([glorot(shape, generator) for _ in range(self.depth)])
