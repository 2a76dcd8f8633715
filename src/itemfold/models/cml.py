"""CML: users and items as points; users are close to their items.

Hsieh et al., "Collaborative Metric Learning", WWW 2017. With squared distances d², N negatives j of
the user and margin m, over the positives (u, i):

    L = Σ w_ui · [m + d²_ui − min_j d²_uj]₊             w_ui = log(1 + rank_ui)
    rank_ui ≈ |I| · mean_j 1[m + d²_ui − d²_uj > 0]      |u|, |i| ≤ 1

Scores are −d². The public benchmark's command also sets a dropout; the authors' code applies it to
item features only, so without features there is none. Each step starts by projecting every vector
into the unit ball, so that gradients are computed inside the ball (projected descent); `encode`
projects the result of the last step. Not inductive: a user's point is a trained parameter.
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.graph.graph import Graph
from itemfold.models.base import Kind
from itemfold.models.embedding_model import EmbeddingModel
from itemfold.ops.pair_scores import pair_scores, take_rows
from itemfold.sampling.base import Batch
from itemfold.sampling.user_rows import OwnNegatives
from itemfold.validation import positive, positive_integers


class CML(EmbeddingModel):
    """Collaborative metric learning: distances instead of products, rank weights (WWW 2017).

    For known users only. It has its own objective and takes neither a loss nor a sampler.

    Args:
        dim: Length of a vector.
        margin: Margin m between squared distances.
        negatives: Negatives per positive, N.
    """

    paper = "Collaborative Metric Learning"
    year = 2017
    default_training = MappingProxyType({"batch_by": "interactions", "lr": 1e-3})
    inductive = False
    why_not_inductive = "every user's point is a trained parameter"
    kind = Kind.OWN_OBJECTIVE
    user_tables, item_tables = ("users",), ("items",)

    def __init__(self, dim: int = 100, margin: float = 1.9, negatives: int = 20) -> None:
        super().__init__()
        positive_integers(dim=dim, negatives=negatives)
        positive(margin=margin)
        self.dim, self.margin, self.negatives = dim, margin, negatives
        self.draw = OwnNegatives()

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Allocate points around the origin, of length about one half."""
        super().setup(train, inductive=inductive, generator=generator)
        scale = 0.5 / self.dim**0.5
        self.users = self.normal_table(self.n_users, scale, generator)
        self.items = self.normal_table(self.n_items, scale, generator)

    def encode(self, graph: Graph) -> tuple[Tensor, Tensor]:
        """The points, inside the unit ball."""
        return into_ball(self.users), into_ball(self.items)

    def own_loss(self, graph: Graph, batch: Batch, generator: torch.Generator) -> Tensor:
        """The weighted hinge loss, averaged over the batch's positives."""
        with torch.no_grad():
            self.users.copy_(into_ball(self.users))
            self.items.copy_(into_ball(self.items))
        drawn = self.draw(graph, batch.users, self.negatives, generator)  # [B, N]
        near = self.distances(batch.users, batch.positives)  # [B, P]
        far = self.distances(batch.users, drawn)  # [B, N]
        inside = self.margin + near.unsqueeze(2) - far.unsqueeze(1) > 0  # [B, P, N]
        weight = torch.log1p(self.n_items * inside.float().mean(2))  # [B, P]
        closest = far.min(1, keepdim=True).values
        hinge = (self.margin + near - closest).clamp(min=0) * weight
        return (hinge * batch.mask).sum() / batch.mask.sum().clamp(min=1)

    def distances(self, users: Tensor, items: Tensor) -> Tensor:
        """Squared distances of listed pairs, ``[B], [B, N] → [B, N]``."""
        user_vectors = take_rows(self.users, users)  # [B, d]
        user_length = user_vectors.square().sum(1, keepdim=True)
        lengths = self.items.square().sum(1, keepdim=True)  # [items, 1]
        item_length = take_rows(lengths, items).squeeze(2)  # [B, N]
        return user_length + item_length - 2 * pair_scores(user_vectors, self.items, items)

    @torch.no_grad()
    def scores(self, history: sp.csr_array, users: npt.NDArray[np.int64]) -> Tensor:
        """``−|u − i|²`` for all items."""
        user_vectors = self.vectors_of(history, users)
        items = self.item_vectors
        out: Tensor = user_vectors @ items.T
        out.mul_(2).sub_(user_vectors.square().sum(1, keepdim=True)).sub_(items.square().sum(1))
        return out


def into_ball(points: Tensor) -> Tensor:
    """Project points outside the unit ball to its surface; ``[n, d] → [n, d]``."""
    inside: Tensor = points / points.norm(dim=1, keepdim=True).clamp(min=1)
    return inside
