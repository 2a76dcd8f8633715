"""LINE: embeddings that predict edges, directly or through context vectors.

Tang et al., "LINE: Large-scale Information Network Embedding", WWW 2015. For an edge (u, i), with K
items j (for the other direction: users) drawn in proportion to degree^power:

    order 1: −log σ(c_u·c_i) − Σ_j log σ(−c_u·c_j)           one vector c per node
    order 2: −log σ(c_u·x_i) − Σ_j log σ(−c_u·x_j)           and a context vector x

both for u → i and for i → u. Noise nodes come from the other side of the edge, since edges always
join a user and an item. The score is the modelled quantity: ``c_u·c_i``, or ``c_u·x_i + x_u·c_i``.
Edges are the batch's positives: with ``batch_by = "interactions"`` each one once per epoch. The
paper's power is ¾; 0 keeps popularity in the scores, see `deepwalk`. Not inductive: the vectors of
nodes are trained parameters.
"""

from __future__ import annotations

from types import MappingProxyType

import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from itemrec.errors import ItemrecError
from itemrec.graph.graph import Graph
from itemrec.models.base import Kind
from itemrec.models.embedding_model import EmbeddingModel
from itemrec.models.random_walks import NodeDraws
from itemrec.ops.pair_scores import pair_scores, take_rows
from itemrec.sampling.batch import Batch
from itemrec.validation import at_least_zero, positive_integers


class LINE(EmbeddingModel):
    """First- or second-order proximity of nodes (WWW 2015).

    For known users only. It has its own objective and takes neither a loss nor a sampler.

    Args:
        dim: Length of a vector.
        order: 1 (edges directly) or 2 (edges through context vectors).
        negatives: Noise nodes per edge, K.
        power: Noise is drawn in proportion to degree^power; 0 keeps popularity in the scores.

    Raises:
        ItemrecError: A setting is invalid.

    Examples:
        >>> import itemrec as ir
        >>> split = ir.split_interactions(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> ir.train(split, ir.models.LINE(dim=8), epochs=2).metrics["model"]
        'line'
    """

    paper = "LINE: Large-scale Information Network Embedding"
    year = 2015
    default_training = MappingProxyType({"batch_by": "interactions", "lr": 1e-3})
    inductive = False
    why_not_inductive = "every node's vectors are trained parameters"
    kind = Kind.OWN_OBJECTIVE

    def __init__(
        self, dim: int = 64, order: int = 2, negatives: int = 5, power: float = 0.0
    ) -> None:
        super().__init__()
        positive_integers(dim=dim, negatives=negatives)
        at_least_zero(power=power)
        if order not in (1, 2):
            raise ItemrecError(f"'order' must be 1 or 2, got {order}")
        self.dim, self.order, self.negatives, self.power = dim, order, negatives, power
        self.known: Graph | None = None

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Allocate one vector per node and, in the second order, one context vector."""
        super().setup(train, inductive=inductive, generator=generator)

        def table(n: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(n, self.dim, generator=generator) * 0.1)

        self.users, self.items = table(self.n_users), table(self.n_items)
        if self.order == 2:
            self.user_context, self.item_context = table(self.n_users), table(self.n_items)

    def encode(self, graph: Graph) -> tuple[Tensor, Tensor]:
        """The vectors, in the second order concatenated with the context vectors."""
        if self.order == 1:
            return self.users, self.items
        users = torch.cat([self.users, self.user_context], dim=1)
        return users, torch.cat([self.item_context, self.items], dim=1)

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
        item_targets = self.item_context if self.order == 2 else self.items
        user_targets = self.user_context if self.order == 2 else self.users
        forward = edge_loss(self.users, item_targets, user, item, items)
        backward = edge_loss(self.items, user_targets, item, user, users)
        return ((forward + backward) * real).sum() / real.sum().clamp(min=1)


def edge_loss(source: Tensor, target: Tensor, one: Tensor, other: Tensor, noise: Tensor) -> Tensor:
    """−log σ(s·t) − Σ_n log σ(−s·t_n) of edges one → other; ``[E], [E], [E, K] → [E]``."""
    listed = torch.cat([other.unsqueeze(1), noise], dim=1)  # [E, 1 + K]
    scores = pair_scores(take_rows(source, one), target, listed)
    return softplus(-scores[:, 0]) + softplus(scores[:, 1:]).sum(1)
