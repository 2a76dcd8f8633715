"""SimpleX: a user vector mixed with the mean of the user's items, compared by cosine.

Mao et al., "SimpleX: A Simple and Strong Baseline for Collaborative Filtering", CIKM 2021:

    u = g·p_u + (1 − g)·V·mean(q_i, i ∈ history)        ŷ_ui = cos(u, q_i)

The paper trains it with the cosine contrastive loss (`ccl`) and hundreds of negatives per list. The
encoder normalises vectors to length 1, so the product used for ranking is the cosine. Without user
parameters (inductive) and for a new user only the history part exists; its scale does not change
the cosine. V starts as the identity: if g = 1 leaves it untrained, a new user is the mean of its
items.
"""

from __future__ import annotations

from types import MappingProxyType

import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from itemrec.errors import ItemrecError
from itemrec.graph.graph import Graph, fold_adjacency
from itemrec.graph.propagation import neighbour_sum
from itemrec.models.embedding_model import EmbeddingModel
from itemrec.ops.pair_scores import squared_lengths


class SimpleX(EmbeddingModel):
    """A user vector mixed with the mean of the user's items, compared by cosine (CIKM 2021).

    Args:
        dim: Length of a vector.
        g: Share of the trained user vector, 0 to 1.

    Raises:
        ItemrecError: A setting is invalid.

    Examples:
        >>> import itemrec as ir
        >>> split = ir.split_users(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> ir.train(split, ir.models.SimpleX(dim=8), epochs=2).metrics["model"]
        'simplex'
    """

    paper = "SimpleX: A Simple and Strong Baseline for Collaborative Filtering"
    year = 2021
    default_loss = "ccl"
    default_training = MappingProxyType(
        {"batch_by": "interactions", "similarity": "cosine", "lr": 1e-3}
    )
    user_tables, item_tables = ("users",), ("items",)

    def __init__(self, dim: int = 64, g: float = 0.5) -> None:
        super().__init__()
        if dim < 1:
            raise ItemrecError(f"'dim' must be a positive integer, got {dim}")
        if not 0 <= g <= 1:
            raise ItemrecError(f"'g' must be between 0 and 1, got {g}")
        self.dim, self.g = dim, g

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Allocate item vectors, V, and user vectors in the transductive protocol."""
        super().setup(train, inductive=inductive, generator=generator)
        self.items = nn.Parameter(torch.randn(self.n_items, self.dim, generator=generator) * 0.1)
        self.transform = nn.Parameter(torch.eye(self.dim))
        self.users = (
            None
            if inductive
            else nn.Parameter(torch.randn(self.n_users, self.dim, generator=generator) * 0.1)
        )

    def encode(self, graph: Graph) -> tuple[Tensor, Tensor]:
        """User and item vectors of length 1."""
        zeros = self.items.new_zeros(graph.n_users, self.dim)
        messages = neighbour_sum(graph, torch.cat([zeros, self.items]))[: graph.n_users]
        degree = graph.degree[: graph.n_users].clamp(min=1).unsqueeze(1)
        users = (messages / degree) @ self.transform
        if self.users is not None:
            users = self.g * self.users + (1 - self.g) * users
        return F.normalize(users, dim=1), F.normalize(self.items, dim=1)

    def base_norms(self) -> tuple[Tensor, Tensor]:
        """Squared lengths of the free vectors; users without parameters have length 0."""
        items = squared_lengths(self.items)
        users = items.new_zeros(self.n_users) if self.users is None else squared_lengths(self.users)
        return users, items

    @torch.no_grad()
    def fold_in(self, history: sp.csr_array) -> Tensor:
        """The history part only."""
        adjacency = fold_adjacency(history, self.items.new_zeros(self.n_items))
        return F.normalize(neighbour_sum(adjacency, self.items) @ self.transform, dim=1)
