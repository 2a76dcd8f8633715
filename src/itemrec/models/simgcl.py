"""SimGCL: LightGCN that recognises a node again after a little noise.

Yu et al., "Are Graph Augmentations Necessary? Simple Graph Contrastive Learning for
Recommendation", SIGIR 2022. After each layer of a noisy pass every vector moves by ε::

    h ← h + ε · sign(h) ⊙ n/|n|,   n ~ U(0, 1)ᵈ        e = mean(h¹ … hᴸ), without layer 0
    L = L_list + λ·(InfoNCE over users + InfoNCE over items) between two noisy passes

The noise has length ε and stays in the vector's orthant. A vector that is zero (an item at layer 1
when users have no parameters) has no orthant and stays zero. List loss and scoring use a pass
without noise. InfoNCE, and what is said of λ, as in `sgl`.
"""

from __future__ import annotations

from types import MappingProxyType

import torch
from torch import Tensor

from itemrec.batches import Batch
from itemrec.graph import Graph
from itemrec.models.base import Pooling, halves
from itemrec.models.checks import at_least_zero, positive
from itemrec.models.contrast import contrast
from itemrec.models.lightgcn import LightGCN
from itemrec.noise import noisy_passes


class SimGCL(LightGCN):
    """Contrastive learning by noise (SIGIR 2022)."""

    paper = (
        "Are Graph Augmentations Necessary? Simple Graph Contrastive Learning for Recommendation"
    )
    year = 2022
    usual_loss = "bpr"
    usual = MappingProxyType({"lr": 1e-3, "l2": 1e-4})
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
        self.noisy: list[list[Tensor]] = []  # from `training_layers` to `extra_loss`

    def encode_step(
        self, graph: Graph, generator: torch.Generator, hops: bool = True
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Always layer by layer: passes with noise share the first one."""
        return super().encode_step(graph, generator)

    def training_layers(self, graph: Graph, generator: torch.Generator) -> list[Tensor]:
        """The pass without noise; those with noise wait for `extra_loss`."""
        noise = [0.0, self.epsilon, self.epsilon]
        clean, *self.noisy = noisy_passes(graph, self.base(graph), self.depth, noise, generator)
        return clean

    def extra_loss(
        self,
        graph: Graph,
        batch: Batch,
        encoded: tuple[Tensor, Tensor] | None,
        generator: torch.Generator,
    ) -> Tensor:
        """The contrast between the two noisy passes."""
        one, two = (halves(graph, self.pool(layers)) for layers in self.noisy)
        self.noisy = []
        return self.weight * contrast(one, two, batch, self.temperature, generator)
