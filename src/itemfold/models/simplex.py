"""SimpleX: a user vector mixed with the mean of the user's items, compared by cosine.

Mao et al., "SimpleX: A Simple and Strong Baseline for Collaborative Filtering", CIKM 2021:

    u = g·p_u + (1 − g)·V·mean(q_i, i ∈ history)        ŷ_ui = cos(u, q_i) [+ b_i]

The paper trains it with the cosine contrastive loss (`ccl`) and hundreds of negatives per list. The
encoder normalises vectors to length 1, so the product used for ranking is the cosine: train with
``similarity = "dot"``, the default. As in the authors' code, training drops a share of the values
of u (after normalisation), biases of user, item and all scores are optional (only the item's
matters for ranking), and `l2` penalises all vectors, not those of a batch: ½·l2·(|P|² + |Q|²).
Vectors start tiny; since only their direction matters, the first steps are large and become smaller
as they grow.

Without user parameters (inductive) and for a new user only the history part exists; its scale does
not change the cosine. V starts as the identity: if g = 1 leaves it untrained, a new user is the
mean of its items.
"""

from __future__ import annotations

from types import MappingProxyType

import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from itemfold.errors import ItemfoldError
from itemfold.graph.graph import Graph, fold_adjacency
from itemfold.graph.propagation import neighbour_sum
from itemfold.models.embedding_model import EmbeddingModel
from itemfold.models.random_values import drop_values
from itemfold.ops.pair_scores import squared_lengths
from itemfold.sampling.base import Batch, Encoded
from itemfold.validation import at_least_zero, positive_integers, share_below_one

INIT_STD = 1e-4  # the authors' initial scale


class SimpleX(EmbeddingModel):
    """A user vector mixed with the mean of the user's items, compared by cosine (CIKM 2021).

    Args:
        dim: Length of a vector.
        g: Share of the trained user vector, 0 to 1.
        dropout: Fraction of a user vector's values that is dropped in training.
        bias: Whether scores have trained biases.
        l2: Strength of the L2 penalty on all vectors.
    """

    paper = "SimpleX: A Simple and Strong Baseline for Collaborative Filtering"
    year = 2021
    default_loss = "ccl"
    default_training = MappingProxyType(
        {"batch_by": "interactions", "similarity": "dot", "lr": 1e-3}
    )
    user_tables, item_tables = ("users",), ("items",)

    def __init__(
        self,
        dim: int = 64,
        g: float = 0.5,
        dropout: float = 0.0,
        bias: bool = False,
        l2: float = 0.0,
    ) -> None:
        super().__init__()
        positive_integers(dim=dim)
        if not 0 <= g <= 1:
            raise ItemfoldError(f"'g' must be between 0 and 1, got {g}")
        share_below_one(dropout=dropout)
        at_least_zero(l2=l2)
        self.dim, self.g, self.dropout, self.bias, self.l2 = dim, g, dropout, bias, l2

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Allocate item vectors, V, biases, and user vectors in the transductive protocol."""
        super().setup(train, inductive=inductive, generator=generator)
        self.items = self.normal_table(self.n_items, INIT_STD, generator)
        self.transform = nn.Parameter(torch.eye(self.dim))
        self.users = None if inductive else self.normal_table(self.n_users, INIT_STD, generator)
        if self.bias:
            self.item_bias = nn.Parameter(torch.zeros(self.n_items, 1))
            self.user_bias = nn.Parameter(torch.zeros(self.n_users, 1))
            self.general_bias = nn.Parameter(torch.zeros(1, 1))

    def encode(self, graph: Graph) -> tuple[Tensor, Tensor]:
        """User and item vectors of length 1; with biases [u ; 1] and [i ; b_i]."""
        if self.users is not None and self.g == 1:
            users: Tensor = self.users  # the history has no share
        else:
            users = self.history_part(graph)
            if self.users is not None:
                users = self.g * self.users + (1 - self.g) * users
        return self.with_one(F.normalize(users, dim=1)), self.item_side()

    def history_part(self, graph: Graph) -> Tensor:
        """``V·mean(q_i)`` over the items of every user, ``[users, d]``."""
        zeros = self.items.new_zeros(graph.n_users, self.dim)
        messages = neighbour_sum(graph, torch.cat([zeros, self.items]))[: graph.n_users]
        degree = graph.degree[: graph.n_users].clamp(min=1).unsqueeze(1)
        return (messages / degree) @ self.transform

    def with_one(self, users: Tensor) -> Tensor:
        """A constant that the items' biases are multiplied with."""
        return torch.cat([users, torch.ones_like(users[:, :1])], dim=1) if self.bias else users

    def item_side(self) -> Tensor:
        """Item vectors of length 1, with their biases."""
        items = F.normalize(self.items, dim=1)
        return torch.cat([items, self.item_bias], dim=1) if self.bias else items

    def encode_step(
        self,
        graph: Graph,
        generator: torch.Generator,
        layers: bool = False,
        users: Tensor | None = None,
    ) -> Encoded:
        """`encode` with dropout of the user vectors, and with the biases that do not rank."""
        vectors, items = self.encode(graph)
        vectors = drop_values(vectors, self.dropout, generator)
        if self.bias:
            vectors = torch.cat([vectors, self.user_bias + self.general_bias], dim=1)
            items = torch.cat([items, torch.ones_like(items[:, :1])], dim=1)
        return Encoded(vectors, items, (items,) if layers else (), self.pool)

    def extra_loss(
        self, graph: Graph, batch: Batch, encoded: Encoded, generator: torch.Generator
    ) -> Tensor | None:
        """The L2 penalty on all vectors."""
        if not self.l2:
            return None
        total = self.items.square().sum()
        if self.users is not None:
            total = total + self.users.square().sum()
        return 0.5 * self.l2 * total

    def base_norms(self) -> tuple[Tensor, Tensor]:
        """Squared lengths of the free vectors; users without parameters have length 0."""
        items = squared_lengths(self.items)
        users = items.new_zeros(self.n_users) if self.users is None else squared_lengths(self.users)
        return users, items

    @torch.no_grad()
    def fold_in(self, history: sp.csr_array) -> Tensor:
        """The history part only."""
        adjacency = fold_adjacency(history, self.items.new_zeros(self.n_items))
        messages = neighbour_sum(adjacency, self.items) @ self.transform
        return self.with_one(F.normalize(messages, dim=1))
