"""SGL-ED: LightGCN with a contrastive loss between two graphs with dropped edges.

Wu et al., "Self-supervised Graph Learning for Recommendation", SIGIR 2021. With two graphs G′, G″
without a random share ρ of the edges each, redrawn each epoch and normalised by their own degrees:

    L = L_list + λ·(InfoNCE over users + InfoNCE over items),   z′ = encode(G′), z″ = encode(G″)
    InfoNCE = mean_i −log(e^{cos(z′_i, z″_i)/τ} / Σ_j e^{cos(z′_i, z″_j)/τ})

i ranges over the rows of a batch and j over all users, or all items, as in the paper and the
authors' code. The list loss (BPR in the paper) and scoring use the whole graph. The default λ is
the paper's for Yelp2018 and must be tuned for other data: with a few hundred users (synthetic, one
seed) 0.1 prevented the model from learning and 0.01 did not.
"""

from __future__ import annotations

from types import MappingProxyType

import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.errors import ItemfoldError
from itemfold.graph.graph import Graph
from itemfold.models.gnn import Pooling
from itemfold.models.info_nce import contrast_with_all
from itemfold.models.linear_gnn import LinearGNN
from itemfold.sampling.base import Batch, Encoded
from itemfold.validation import at_least_zero, positive


class SGL(LinearGNN):
    """Self-supervised graph learning by edge dropout on LightGCN (SIGIR 2021).

    Args:
        dim: Length of a vector.
        layers: Depth of message passing; by default 3, or 2 in the inductive protocol.
        pooling: How the layers become one vector: "sum", "mean" or "concat"; "auto" is the mean,
            or the sum in the inductive protocol.
        drop: Fraction ρ of the edges dropped from each view.
        weight: Weight λ of the contrastive term.
        temperature: Temperature τ of the contrastive term.
    """

    paper = "Self-supervised Graph Learning for Recommendation"
    year = 2021
    by_columns = True
    encodes_batch_users = True
    default_loss = "bpr"
    default_training = MappingProxyType({"lr": 1e-3, "l2": 1e-4})

    def __init__(
        self,
        dim: int = 64,
        layers: int | None = None,
        pooling: Pooling = "auto",
        drop: float = 0.1,
        weight: float = 0.1,
        temperature: float = 0.2,
    ) -> None:
        super().__init__(dim, layers, pooling)
        if not 0 < drop < 1:
            raise ItemfoldError(f"'drop' must be above 0 and below 1, got {drop}")
        positive(temperature=temperature)
        at_least_zero(weight=weight)
        self.drop, self.weight, self.temperature = drop, weight, temperature
        self.dropped_graphs: list[Graph] = []

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Allocate free vectors; discard graphs of earlier training data."""
        super().setup(train, inductive=inductive, generator=generator)
        self.dropped_graphs = []

    def begin_epoch(self, graph: Graph, generator: torch.Generator) -> None:
        """Draw the two graphs of this epoch into the memory of the previous ones."""
        drawn = [graph.drop_edges(self.drop, generator) for _ in range(2)]
        for view, new in zip(self.dropped_graphs, drawn, strict=False):
            view.become(new)
        self.dropped_graphs = self.dropped_graphs or drawn

    def extra_loss(
        self, graph: Graph, batch: Batch, encoded: Encoded, generator: torch.Generator
    ) -> Tensor:
        """The contrastive loss between the epoch's two graphs."""
        if not self.dropped_graphs:
            self.begin_epoch(graph, generator)
        one, two = (self.encode(view) for view in self.dropped_graphs)
        return self.weight * contrast_with_all(one, two, batch, self.temperature, generator)
