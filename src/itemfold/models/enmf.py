"""ENMF: a loss over all user–item pairs at the cost of the observed ones.

Chen et al., "Efficient Neural Matrix Factorization without Sampling for Recommendation", TOIS 2020.
With ``ŷ_ui = hᵀ(p_u ⊙ q_i)``, weight 1 for observed pairs and c₀ for all others:

    L(u) = Σ_{i∈R_u} (1 − ŷ)² + c₀ Σ_{i∉R_u} ŷ²
         = Σ_{i∈R_u} [(1 − c₀) ŷ² − 2ŷ] + c₀ Σ_{a,b} h_a h_b (p_u p_uᵀ)_ab (Σ_i q_i q_iᵀ)_ab + |R_u|

The second line (without its constant) needs d² numbers for the whole catalogue. Batches are users
with *all* their items; dropout is applied to the user vectors. Not inductive: user vectors are
trained parameters.
"""

from __future__ import annotations

from types import MappingProxyType

import scipy.sparse as sp
import torch
from torch import Tensor, nn

from itemfold.graph.graph import Graph
from itemfold.models.base import Kind
from itemfold.models.embedding_model import EmbeddingModel
from itemfold.models.random_values import drop_values
from itemfold.ops.pair_scores import row_scores, take_rows
from itemfold.sampling.base import Batch
from itemfold.sampling.user_rows import UserRows
from itemfold.validation import positive, positive_integers, share_below_one


class ENMF(EmbeddingModel):
    """Whole-data matrix factorisation: a loss over all pairs (TOIS 2020).

    For known users only. It has its own objective and takes neither a loss nor a sampler.

    Args:
        dim: Length of a vector.
        negative_weight: Weight c₀ of unobserved pairs.
        dropout: Fraction of each user vector that is dropped in training.
    """

    paper = "Efficient Neural Matrix Factorization without Sampling for Recommendation"
    year = 2020
    default_training = MappingProxyType({"batch": 256})
    inductive = False
    why_not_inductive = "every user vector is a trained parameter"
    kind = Kind.OWN_OBJECTIVE
    batch_by = "users"
    user_tables, item_tables = ("users",), ("items",)

    def __init__(self, dim: int = 64, negative_weight: float = 0.05, dropout: float = 0.3) -> None:
        super().__init__()
        positive_integers(dim=dim)
        positive(negative_weight=negative_weight)
        share_below_one(dropout=dropout)
        self.dim, self.negative_weight, self.dropout = dim, negative_weight, dropout
        self.rows = UserRows()

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Allocate small vectors and one weight per dimension."""
        super().setup(train, inductive=inductive, generator=generator)
        self.users = self.normal_table(self.n_users, 0.1, generator)
        self.items = self.normal_table(self.n_items, 0.1, generator)
        self.weight = nn.Parameter(torch.ones(self.dim))

    def encode(self, graph: Graph) -> tuple[Tensor, Tensor]:
        """The weights h are multiplied into the user vectors."""
        return self.users * self.weight, self.items

    def own_loss(self, graph: Graph, batch: Batch, generator: torch.Generator) -> Tensor:
        """The whole-data loss, averaged over the batch's users."""
        real = batch.mask.any(1)  # [B]
        user_vectors = take_rows(self.users, batch.users) * real.unsqueeze(1)  # [B, d]
        user_vectors = drop_values(user_vectors, self.dropout, generator)
        starts, owner, item, valid = self.rows(graph, batch.users, real)
        item = item.masked_fill(~valid, self.n_items).int()
        score = row_scores(user_vectors * self.weight, self.items, starts, item, owner)  # [entries]
        score = torch.where(valid, score, 0.0)
        observed = (1 - self.negative_weight) * score.square() - 2 * score
        of_users, of_items = user_vectors.T @ user_vectors, self.items.T @ self.items  # [d, d]
        all_pairs = of_users * of_items * torch.outer(self.weight, self.weight)
        total = observed.sum() + self.negative_weight * all_pairs.sum()
        return total / real.sum().clamp(min=1)
