"""XSimGCL: SimGCL's contrast for the price of the one pass that is made anyway.

Yu et al., "XSimGCL: Towards Extremely Simple Graph Contrastive Learning for Recommendation", TKDE
2023. One noisy pass (`simgcl`) serves the list loss and both views::

    e = mean(h¹ … hᴸ), without layer 0
    L = L_list(e) + λ·(InfoNCE over users + InfoNCE over items) between e and h^(l*)

l* (``contrasted``) counts from 1. Scoring uses a pass without noise. λ as in `sgl`.
"""

from __future__ import annotations

from types import MappingProxyType

import scipy.sparse as sp
import torch
from torch import Tensor

from itemrec.batches import Batch
from itemrec.errors import ItemrecError
from itemrec.graph import Graph
from itemrec.models.base import Pooling, halves
from itemrec.models.checks import at_least_zero, positive
from itemrec.models.contrast import contrast
from itemrec.models.lightgcn import LightGCN
from itemrec.noise import noisy_passes


class XSimGCL(LightGCN):
    """Contrastive learning between depths of one noisy pass (TKDE 2023)."""

    paper = "XSimGCL: Towards Extremely Simple Graph Contrastive Learning for Recommendation"
    year = 2023
    usual_loss = "bpr"
    usual = MappingProxyType({"lr": 1e-3, "l2": 1e-4})
    spread = 0.01  # as small as the authors begin
    first = 1  # layer 0 is left out of pooling

    def __init__(
        self,
        dim: int = 64,
        layers: int | None = None,
        pooling: Pooling = "auto",
        epsilon: float = 0.2,
        weight: float = 0.2,
        temperature: float = 0.15,
        contrasted: int = 1,
    ) -> None:
        super().__init__(dim, layers, pooling)
        positive(epsilon=epsilon, temperature=temperature)
        at_least_zero(weight=weight)
        if pooling == "concat":
            raise ItemrecError(
                "'pooling' must be sum, mean or auto: one layer is contrasted with it"
            )
        if contrasted < 1 or (layers is not None and contrasted > layers):
            raise ItemrecError(f"'contrasted' must be a layer, 1 or more, got {contrasted}")
        self.epsilon, self.weight, self.temperature = epsilon, weight, temperature
        self.contrasted = contrasted
        self.contrast_layer: Tensor | None = None  # from `training_layers` to `extra_loss`

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Free vectors; the number of layers is known only now."""
        super().setup(train, inductive=inductive, generator=generator)
        if self.contrasted > self.depth:
            raise ItemrecError(
                f"'contrasted' must be a layer, 1 to {self.depth}, got {self.contrasted}"
            )

    def encode_step(
        self, graph: Graph, generator: torch.Generator, hops: bool = True
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Always layer by layer: each is disturbed."""
        return super().encode_step(graph, generator)

    def training_layers(self, graph: Graph, generator: torch.Generator) -> list[Tensor]:
        """The noisy pass."""
        base = self.base(graph)
        (layers,) = noisy_passes(graph, base, self.depth, [self.epsilon], generator)
        self.contrast_layer = layers[self.contrasted]
        return layers

    def extra_loss(
        self,
        graph: Graph,
        batch: Batch,
        encoded: tuple[Tensor, Tensor] | None,
        generator: torch.Generator,
    ) -> Tensor:
        """The contrast between the final vectors and those of layer l*."""
        layer, self.contrast_layer = self.contrast_layer, None
        assert encoded is not None
        assert layer is not None
        other = halves(graph, layer)
        return self.weight * contrast(encoded, other, batch, self.temperature, generator)
