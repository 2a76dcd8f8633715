"""DeepWalk: skip-gram on uniform random walks.

Perozzi et al., "DeepWalk: Online Learning of Social Representations", KDD 2014, with the negative
sampling of word2vec. Over the windows of walks, with centre vectors c, context vectors x and K
nodes n drawn in proportion to degree^power::

    L = −Σ_(v,w) [log σ(c_v·x_w) + K·E_n log σ(−c_v·x_n)]

An epoch starts a walk at every user and as many a node at items. The score of an item is what was
modelled, in both directions: ``c_u·x_i + x_u·c_i``. At its best it is log p(i | u) less ``power``
times the log degree of i, so uniform noise (power 0) ranks by p(i | u) itself; word2vec's 0.75
takes popularity out and recommends worse. Not inductive: a node that no walk visited in training
has no vector.
"""

from __future__ import annotations

import scipy.sparse as sp
import torch
from torch import Tensor, nn

from itemrec.batches import Batch
from itemrec.graph import Graph
from itemrec.models.base import EmbeddingModel
from itemrec.models.checks import at_least_zero, positive_integers
from itemrec.models.walks import NodeDraws, random_walks, skip_gram
from itemrec.scoring import take_rows


class DeepWalk(EmbeddingModel):
    """Skip-gram on uniform walks (KDD 2014)."""

    paper = "DeepWalk: Online Learning of Social Representations"
    year = 2014
    inductive = False
    why_not_inductive = "a node that no walk visited in training has no vector"
    own_objective = True
    p = q = 1.0

    def __init__(
        self,
        dim: int = 64,
        length: int = 20,
        window: int = 5,
        negatives: int = 5,
        shared: int = 50,
        power: float = 0.0,
    ) -> None:
        super().__init__()
        positive_integers(dim=dim, length=length, window=window, negatives=negatives, shared=shared)
        at_least_zero(power=power)
        self.dim, self.length, self.window = dim, length, window
        self.negatives, self.shared, self.power = negatives, shared, power
        self.known: Graph | None = None

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Two vectors a node."""
        super().setup(train, inductive=inductive, generator=generator)
        shape = (self.n_users + self.n_items, self.dim)
        self.centre = nn.Parameter(torch.randn(shape, generator=generator) * 0.1)
        self.context = nn.Parameter(torch.randn(shape, generator=generator) * 0.1)

    def encode(self, graph: Graph) -> tuple[Tensor, Tensor]:
        """Both vectors side by side, an item's in the other order: ``[nodes, 2d]``."""
        n = self.n_users
        users = torch.cat([self.centre[:n], self.context[:n]], dim=1)
        return users, torch.cat([self.context[n:], self.centre[n:]], dim=1)

    def extra_loss(
        self,
        graph: Graph,
        batch: Batch,
        encoded: tuple[Tensor, Tensor] | None,
        generator: torch.Generator,
    ) -> Tensor:
        """Skip-gram on walks from the batch's users and from items."""
        if self.known is not graph:
            self.known, self.noise = graph, NodeDraws(graph.degree, self.power)
            self.starts = NodeDraws(graph.item_degree, 0.0)
        more = max(1, round(len(batch.users) * self.n_items / self.n_users))
        items = self.starts((1, more), generator).squeeze(0) + self.n_users
        start = torch.cat([batch.users, items])
        walks = random_walks(graph, start, self.length, generator, self.p, self.q)  # [B', L]
        real = walks >= 0
        real[: len(batch.users)] &= batch.mask.any(1, keepdim=True)
        nodes = walks.clamp(min=0)
        noise = self.noise((len(walks), self.shared), generator)  # [B', M]
        return skip_gram(
            take_rows(self.centre, nodes),
            take_rows(self.context, nodes),
            real,
            take_rows(self.context, noise),
            self.window,
            self.negatives,
        )
