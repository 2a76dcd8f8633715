"""MF: one free vector per user and per item.

Rendle et al., "BPR: Bayesian Personalized Ranking from Implicit Feedback", UAI 2009:

    ŷ_ui = p_u · q_i
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import scipy.sparse as sp
import torch
from torch import Tensor

from itemfold.graph.graph import Graph
from itemfold.models.embedding_model import EmbeddingModel
from itemfold.ops.pair_scores import squared_lengths
from itemfold.validation import at_least_zero, positive, positive_integers


class MF(EmbeddingModel):
    """Matrix factorisation: one free vector per user and per item (UAI 2009).

    For known users only: every user vector is a trained parameter.

    Args:
        dim: Length of a vector.
        init_std: Standard deviation of the values before training; 0.01 suits BPR on sparse data.
        weight_decay: Adam's weight decay, of all vectors in every step; the `l2` of training acts
            on those of a batch.

    Examples:
        >>> import itemfold as ir
        >>> split = ir.split_interactions(ir.load("synthetic:users=60,items=80,interactions=900"))
        >>> ir.train(split, ir.models.MF(dim=8), epochs=2).metrics["model"]
        'mf'
    """

    paper = "BPR: Bayesian Personalized Ranking from Implicit Feedback"
    year = 2009
    weighs = ("loss",)
    by_columns = True
    default_loss = "bpr"
    default_training = MappingProxyType({"lr": 1e-3, "l2": 1e-3})
    inductive = False
    why_not_inductive = "every user vector is a trained parameter"
    user_tables, item_tables = ("users",), ("items",)

    def __init__(self, dim: int = 64, init_std: float = 0.1, weight_decay: float = 0.0) -> None:
        super().__init__()
        positive_integers(dim=dim)
        positive(init_std=init_std)
        at_least_zero(weight_decay=weight_decay)
        self.dim, self.init_std, self.weight_decay = dim, init_std, weight_decay

    def setup(self, train: sp.csr_array, *, inductive: bool, generator: torch.Generator) -> None:
        """Allocate free vectors of users and items."""
        super().setup(train, inductive=inductive, generator=generator)
        self.users = self.normal_table(self.n_users, self.init_std, generator)
        self.items = self.normal_table(self.n_items, self.init_std, generator)

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """All vectors with `weight_decay`."""
        groups = super().parameter_groups(lr)
        return [{**group, "weight_decay": self.weight_decay} for group in groups]

    def encode(self, graph: Graph) -> tuple[Tensor, Tensor]:
        """The vectors themselves; the graph is not used."""
        return self.users, self.items

    def base_norms(self) -> tuple[Tensor, Tensor]:
        """Squared lengths of the vectors."""
        return squared_lengths(self.users), squared_lengths(self.items)
