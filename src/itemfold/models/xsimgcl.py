"""XSimGCL: SimGCL's contrastive loss with a single noisy pass.

Yu et al., "XSimGCL: Towards Extremely Simple Graph Contrastive Learning for Recommendation", TKDE
2023. The list loss and both views use the same noisy pass (`simgcl`):

    e = mean(h¹ … hᴸ), without layer 0
    L = L_list(e) + λ·(InfoNCE over users + InfoNCE over items) between e and h^(l*)

l* (``contrasted``) counts from 1. Scoring uses a pass without noise. For λ see `sgl`.
"""

from __future__ import annotations

from types import MappingProxyType

import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.errors import ItemfoldError
from itemfold.graph.graph import Graph
from itemfold.graph.noisy_propagation import noisy_passes
from itemfold.models.gnn import Pooling, split_nodes
from itemfold.models.info_nce import contrast
from itemfold.models.linear_gnn import LinearGNN
from itemfold.sampling.base import Batch, Encoded
from itemfold.validation import at_least_zero, positive


class XSimGCL(LinearGNN):
    """Contrastive learning between depths of one noisy pass of LightGCN (TKDE 2023).

    Args:
        dim: Length of a vector.
        layers: Depth of message passing; by default 3, or 2 in the inductive protocol.
        pooling: How the layers become one vector: "sum", "mean" or "concat"; "auto" is the mean,
            or the sum in the inductive protocol.
        epsilon: Length ε of the noise.
        weight: Weight λ of the contrastive term.
        temperature: Temperature τ of the contrastive term.
        contrasted: The layer, from 1, that is contrasted with the final vectors.
    """

    paper = "XSimGCL: Towards Extremely Simple Graph Contrastive Learning for Recommendation"
    year = 2023
    by_columns = True
    default_loss = "bpr"
    default_training = MappingProxyType({"lr": 1e-3, "l2": 1e-4})
    init_std = 0.01  # the authors' initial scale
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
            raise ItemfoldError(
                "'pooling' must be sum, mean or auto: one layer is contrasted with it"
            )
        if contrasted < 1 or (layers is not None and contrasted > layers):
            raise ItemfoldError(f"'contrasted' must be a layer, 1 or more, got {contrasted}")
        self.epsilon, self.weight, self.temperature = epsilon, weight, temperature
        self.contrasted = contrasted

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Allocate free vectors and check `contrasted`, now that the number of layers is known."""
        super().setup(train, inductive=inductive, generator=generator)
        if self.contrasted > self.depth:
            raise ItemfoldError(
                f"'contrasted' must be a layer, 1 to {self.depth}, got {self.contrasted}"
            )

    def encode_step(
        self,
        graph: Graph,
        generator: torch.Generator,
        layers: bool = False,
        users: Tensor | None = None,
    ) -> Encoded:
        """The noisy pass, with layer l* as a view."""
        base = self.base(graph)
        (noisy,) = noisy_passes(graph, base, self.depth, [self.epsilon], generator, self.dim)
        return self.encoded(graph, noisy, layers, (split_nodes(graph, noisy[self.contrasted]),))

    def extra_loss(
        self, graph: Graph, batch: Batch, encoded: Encoded, generator: torch.Generator
    ) -> Tensor:
        """The contrastive loss between the final vectors and those of layer l*."""
        final = (encoded.users, encoded.items)
        return self.weight * contrast(final, encoded.views[0], batch, self.temperature, generator)
