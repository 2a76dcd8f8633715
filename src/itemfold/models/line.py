"""LINE: embeddings that predict edges, directly or through context vectors.

Tang et al., "LINE: Large-scale Information Network Embedding", WWW 2015. For an edge (u, i), with K
items j (for the other direction: users) drawn in proportion to degree^power:

    order 1: −log σ(c_u·c_i) − Σ_j log σ(−c_u·c_j)           one vector c per node
    order 2: −log σ(c_u·x_i) − Σ_j log σ(−c_u·x_j)           and a context vector x

both for u → i and for i → u; "both" trains the two side by side and adds their scores, as the paper
joins them. Noise nodes come from the other side of the edge, since edges always
join a user and an item. The score is the modelled quantity: ``c_u·c_i``, or ``c_u·x_i + x_u·c_i``.
Edges are the batch's positives: with ``batch_by = "interactions"`` each one once per epoch. The
paper's power is ¾; 0 keeps popularity in the scores, see `deepwalk`. An L2 term ½·l2·|·|² of an
edge's two nodes is not in the paper, which ends training early instead. Not inductive: the vectors
of nodes are trained parameters.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal

import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from itemfold.errors import ItemfoldError
from itemfold.graph.graph import Graph
from itemfold.models.base import Kind
from itemfold.models.embedding_model import EmbeddingModel
from itemfold.models.random_walks import NodeDraws
from itemfold.ops.pair_scores import pair_scores, squared_lengths, take_rows
from itemfold.sampling.base import Batch
from itemfold.validation import at_least_zero, positive_integers


class LINE(EmbeddingModel):
    """First- or second-order proximity of nodes (WWW 2015).

    For known users only. It has its own objective and takes neither a loss nor a sampler.

    Args:
        dim: Length of a vector.
        order: 1 (edges directly), 2 (edges through context vectors) or "both".
        negatives: Noise nodes per edge, K.
        power: Noise is drawn in proportion to degree^power; 0 keeps popularity in the scores.
        l2: Strength of the L2 penalty on the vectors of a batch.
    """

    paper = "LINE: Large-scale Information Network Embedding"
    year = 2015
    default_training = MappingProxyType({"batch_by": "interactions", "lr": 1e-3})
    inductive = False
    why_not_inductive = "every node's vectors are trained parameters"
    kind = Kind.OWN_OBJECTIVE

    def __init__(
        self,
        dim: int = 64,
        order: Literal[1, 2, "both"] = 2,
        negatives: int = 5,
        power: float = 0.0,
        l2: float = 0.0,
    ) -> None:
        super().__init__()
        positive_integers(dim=dim, negatives=negatives)
        at_least_zero(power=power, l2=l2)
        if order not in (1, 2, "both"):
            raise ItemfoldError(f"'order' must be 1, 2 or \"both\", got {order!r}")
        self.dim, self.order, self.negatives, self.power = dim, order, negatives, power
        self.l2 = l2
        self.known: Graph | None = None

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Allocate the vectors of the first order, and those of the second with their contexts."""
        super().setup(train, inductive=inductive, generator=generator)
        if self.order != 2:
            self.near_users = self.normal_table(self.n_users, 0.1, generator)
            self.near_items = self.normal_table(self.n_items, 0.1, generator)
        if self.order != 1:
            self.users = self.normal_table(self.n_users, 0.1, generator)
            self.items = self.normal_table(self.n_items, 0.1, generator)
            self.user_context = self.normal_table(self.n_users, 0.1, generator)
            self.item_context = self.normal_table(self.n_items, 0.1, generator)

    def pairs(self) -> list[tuple[nn.Parameter, nn.Parameter]]:
        """Tables of users and of items whose products are the parts of a score."""
        first = [] if self.order == 2 else [(self.near_users, self.near_items)]
        if self.order == 1:
            return first
        return [*first, (self.users, self.item_context), (self.user_context, self.items)]

    def encode(self, graph: Graph) -> tuple[Tensor, Tensor]:
        """All vectors of a node, concatenated so that the product is the score."""
        users, items = zip(*self.pairs(), strict=True)
        return torch.cat(users, dim=1), torch.cat(items, dim=1)

    def own_loss(self, graph: Graph, batch: Batch, generator: torch.Generator) -> Tensor:
        """Both directions of the batch's edges, averaged over the edges."""
        if self.known is not graph:
            self.known = graph
            self.user_noise = NodeDraws(graph.degree[: graph.n_users], self.power)
            self.item_noise = NodeDraws(graph.item_degree, self.power)
        user = batch.users.repeat_interleave(batch.positives.shape[1])  # [E]
        item, real = batch.positives.flatten(), batch.mask.flatten()
        shape = (len(user), self.negatives)
        users, items = self.user_noise(shape, generator), self.item_noise(shape, generator)
        value = user.new_zeros(len(user), dtype=torch.float32)
        if self.order != 2:
            value = value + edge_loss(self.near_users, self.near_items, user, item, items)
            value = value + edge_loss(self.near_items, self.near_users, item, user, users)
        if self.order != 1:
            value = value + edge_loss(self.users, self.item_context, user, item, items)
            value = value + edge_loss(self.items, self.user_context, item, user, users)
        if self.l2:
            of_users, of_items = self.encode(graph)
            norms = squared_lengths(of_users)[user] + squared_lengths(of_items)[item]
            value = value + 0.5 * self.l2 * norms
        return (value * real).sum() / real.sum().clamp(min=1)


def edge_loss(source: Tensor, target: Tensor, one: Tensor, other: Tensor, noise: Tensor) -> Tensor:
    """−log σ(s·t) − Σ_n log σ(−s·t_n) of edges one → other; ``[E], [E], [E, K] → [E]``."""
    listed = torch.cat([other.unsqueeze(1), noise], dim=1)  # [E, 1 + K]
    scores = pair_scores(take_rows(source, one), target, listed)
    return softplus(-scores[:, 0]) + softplus(scores[:, 1:]).sum(1)
